"""Configurations and event logs from a stranger: one clear error or a result, never a crash.

Each case is quick; a longer run: HYPOTHESIS_CASES=5000 pytest tests/unit/core/test_fuzzing.py
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable
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
from ai500.report.run_data import read_run_data
from ai500.rules.layers import LEVELS
from tests.support.synthetic_run import Shape, write_synthetic_run
from tests.support.trial_events import MACHINE

CASES = int(os.environ.get("HYPOTHESIS_CASES", "60"))
FUZZED = settings(
    max_examples=CASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    database=None,
    derandomize=True,
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


# --- 20,000 of each ------------------------------------------------------------------------

PARTS, CASES_OF_PART = range(4), 5_000
MEMORY = Path("/dev/shm")
STRANGE_VALUES = [
    None, True, 0, -1, 2**63, 10**310, 1e308, -1e-320, 0.5, "", "x", "..", "\x00", "end", "epoch",
    [], [1], {}, {"a": 1},
]  # fmt: skip
THINGS: list[Callable[[Path], object]] = [
    Path.unlink, os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.name),
    lambda path: path.symlink_to("/dev/zero"), lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    *(
        lambda path, text=text: path.write_bytes(text)
        for text in (
            b"", b'{"a": ' + b"[" * 100_000, b'{"trials": NaN, "event": "epoch"}\n',
            b'{"trials": 1' + b"0" * 6000 + b"}\n", b"\xff\xfe\x00", b"\0" * 100, b"[1]\n",
        )
    ),
]  # fmt: skip


@pytest.fixture
def in_memory(run: tuple[RunFolder, list[str]]) -> Any:
    """A copy of the run where writing costs little."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        shutil.copytree(run[0].path, Path(folder) / "run")
        signal.alarm(3000)  # a pipe that is opened waits for ever
        yield RunFolder(Path(folder) / "run"), run[1]
        signal.alarm(0)


def forged_log(lines: list[str], generator: random.Random) -> str:
    """Change values, remove, repeat and reorder events, or tear bytes."""
    records = [json.loads(line) for line in lines]
    for _ in range(generator.randrange(1, 4)):
        place = generator.randrange(len(records))
        event, name = records[place], generator.choice(FIELDS)
        match generator.randrange(6):
            case 0 | 1:
                event[name] = generator.choice(
                    [*STRANGE_VALUES, *([event[name]] * 3 if name in event else [])]
                )
                if isinstance(event[name], float):
                    event[name] *= generator.choice([-1, 1e-12, 0.1, 2, 1e9])
            case 2:
                event.pop(name, None)
            case 3 if len(records) > 2:
                del records[place]
            case 4:
                records.insert(generator.randrange(len(records)), dict(event))
            case _:
                other = generator.randrange(len(records))
                records[place], records[other] = records[other], records[place]
    text = "".join(json.dumps(record) + "\n" for record in records)
    if generator.random() < 0.3:
        place = generator.randrange(len(text))
        torn = generator.randbytes(generator.randrange(6)).decode("latin-1")
        text = text[:place] + torn + text[place + generator.randrange(6) :]
    return text


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", PARTS)
def test_forged_runs_are_scored_or_explained(
    in_memory: tuple[RunFolder, list[str]], part: int
) -> None:
    run, lines = in_memory
    for seed in range(CASES_OF_PART * part, CASES_OF_PART * (part + 1)):
        generator = random.Random(seed)
        run.events.write_text(forged_log(lines, generator), encoding="utf-8")
        try:
            score, judgement = scoring.judge_run(run, level=generator.choice(sorted(LEVELS)))
        except AI500Error as error:
            assert str(error), seed
        else:
            assert json.dumps(score.vflops, allow_nan=False), seed
            assert judgement.broken, seed


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", PARTS)
def test_hostile_folders_are_read_or_explained(
    in_memory: tuple[RunFolder, list[str]], part: int
) -> None:
    """Pipes, folders, circles of links, devices and senseless texts in place of a run's files."""
    run, _ = in_memory
    intact = {path: path.read_bytes() for path in sorted(run.path.rglob("*")) if path.is_file()}
    for seed in range(CASES_OF_PART * part, CASES_OF_PART * (part + 1)):
        generator = random.Random(seed)
        changed = generator.sample(list(intact), generator.choice([1, 1, 2, 3]))
        for path in changed:
            thing = generator.choice(THINGS)
            if thing is not Path.unlink:
                path.unlink()
            thing(path)
        try:
            scoring.judge_run(run, level=generator.choice(sorted(LEVELS)))
            read_run_data(run)
        except AI500Error as error:
            assert str(error), seed
        for path in changed:
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            path.unlink(missing_ok=True)
            path.write_bytes(intact[path])
