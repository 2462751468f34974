"""Configurations and event logs from a stranger: one clear error or a result, never a crash.

Each case is quick; a longer run: HYPOTHESIS_CASES=5000 pytest tests/unit/core/test_fuzzing.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ai500 import config
from ai500.config import documented_keys
from ai500.core.errors import AI500Error
from ai500.pipeline import scoring
from ai500.pipeline.planning import make_plan
from ai500.records.run_folder import RunFolder
from ai500.rules.layers import LEVELS
from tests.support.synthetic_run import Shape, write_synthetic_run
from tests.support.trial_events import MACHINE

CASES = int(os.environ.get("HYPOTHESIS_CASES", "60"))
FUZZED = settings(
    max_examples=CASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    database=None,
)
KEYS = [key for key, _, _ in documented_keys()]
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**300, max_value=10**320),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["nan", "1e999", "..", "/", "\x00", "valid", "sgd", "smoke", "{}", "'"]),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def toml(value: Any) -> str:
    """A value as TOML, or something like it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


@FUZZED
@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=4))
def test_any_values_of_known_keys_plan_or_are_explained(
    tmp_path: Path, changes: list[tuple[str, Any]]
) -> None:
    """A configuration that loads is planned, too: planning rejects combinations."""
    lines = [f"{key} = {toml(value)}" for key, value in dict(changes).items()]
    path = tmp_path / "ai500.toml"
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    try:
        make_plan(config.load(path), MACHINE)
    except AI500Error as error:
        assert str(error)


@FUZZED
@given(st.one_of(st.binary(max_size=64), st.text(max_size=64).map(str.encode)))
def test_any_bytes_are_no_configuration_or_one(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "ai500.toml"
    path.write_bytes(data)
    try:
        config.load(path)
    except AI500Error as error:
        assert str(path) in str(error)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, list[str]]:
    """A small run, and the lines of its events."""
    shape = Shape(members=2, epochs=2, trials=3)
    made = write_synthetic_run(tmp_path_factory.mktemp("fuzz") / "run", shape)
    return made, made.events.read_text().splitlines()


FIELDS = [
    "event", "trial", "member", "attempt", "epoch", "samples", "steps", "quality", "wall",
    "monotonic", "host", "boot", "result", "forward_per_sample", "convention", "seed", "loss",
]  # fmt: skip
MUTATIONS = st.lists(
    st.tuples(st.integers(0, 10**6), st.sampled_from(FIELDS), VALUES, st.booleans()),
    min_size=1,
    max_size=3,
)


def judged(run: RunFolder, text: str) -> None:
    """Score and judge it at every level."""
    run.events.write_text(text, encoding="utf-8", errors="surrogatepass")
    for level in LEVELS:
        try:
            score, judgement = scoring.judge_run(run, level=level)
        except AI500Error as error:
            assert str(error)
            return
        assert json.dumps(score.vflops, allow_nan=False)
        assert judgement.broken  # no mutation makes this class's own run an official one


@FUZZED
@given(MUTATIONS)
def test_changed_events_are_scored_or_explained(
    run: tuple[RunFolder, list[str]], mutations: list[tuple[int, str, Any, bool]]
) -> None:
    folder, lines = run
    records = [json.loads(line) for line in lines]
    for at, name, value, remove in mutations:
        event = records[at % len(records)]
        if remove:
            event.pop(name, None)
        else:
            event[name] = value
    judged(folder, "\n".join(map(json.dumps, records)) + "\n")


@FUZZED
@given(st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=6)), min_size=1, max_size=4))
def test_torn_bytes_of_events_are_scored_or_explained(
    run: tuple[RunFolder, list[str]], tears: list[tuple[int, bytes]]
) -> None:
    folder, lines = run
    data = bytearray("\n".join(lines).encode() + b"\n")
    for at, bytes_there in tears:
        at %= len(data)
        data[at : at + len(bytes_there)] = bytes_there
    judged(folder, bytes(data).decode("utf-8", errors="replace"))


@FUZZED
@given(st.permutations(range(20)), st.lists(st.integers(0, 200), max_size=20))
def test_events_in_another_order_or_lost_are_scored_or_explained(
    run: tuple[RunFolder, list[str]], order: list[int], lost: list[int]
) -> None:
    folder, lines = run
    kept = [line for at, line in enumerate(lines) if at not in lost]
    shuffled = [kept[at] for at in order if at < len(kept)] + kept[20:]
    judged(folder, "\n".join(shuffled) + "\n")
