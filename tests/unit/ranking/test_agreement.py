"""`ai500 rank` and `ai500 verify` agree on every file: what one refuses the other does."""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai500.core import events
from ai500.ranking.read import judge_file
from ai500.records import run_folder
from ai500.records.run_folder import RunFolder
from ai500.roofline.place_run import place_run
from ai500.submission import archive, packing
from ai500.submission.manifest import MANIFEST, open_submission
from ai500.submission.verify import recompute
from ai500.workloads.image_classification import CLASSES
from tests.support.metered import write_log
from tests.support.submitted import contents, packed, small_run, submittable_run
from tests.support.synthetic_roofline import synthetic_roofline

MEMORY = Path("/dev/shm")


def metered(run: RunFolder) -> RunFolder:
    """Add what a run need not have: meters of each member, and ceilings that bound nothing."""
    ceilings = synthetic_roofline(device="cpu", device_name="CPU", unit="core")
    run_folder.write(run.roofline, place_run(run, ceilings))
    for event in events.read(run.events):
        if event["event"] == "first_batch":
            meters = run.trial(event["trial"]).meters
            meters.mkdir(exist_ok=True)
            write_log(
                meters, host=event["host"], member=event["member"],
                covers={"rapl": ["processors"]}, columns=[("rapl", "package", "watts", None)],
                times=[event["wall"] + 5 * second for second in range(-1, 7)],
                monotonic_zero=event["wall"] - event["monotonic"],
                values=lambda _: [50.0],
            )  # fmt: skip
    return run


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, bytes]]:
    """A submission that is valid, and a smaller one that breaks rules.

    The class has one member and two epochs: many cases in minutes.
    """
    smoke = CLASSES["smoke"]
    reference = replace(smoke.reference, epochs=2, warmup_epochs=1)
    short = replace(smoke, ensemble_size=1, required_runs=1, reference=reference)
    monkeypatch.setitem(CLASSES, "smoke", short)
    return [
        contents(packed(metered(submittable_run(tmp_path / "run")), tmp_path / "valid.ai500")),
        contents(packed(small_run(tmp_path / "small"), tmp_path / "small.ai500")),
    ]


def change(value: Any, generator: random.Random) -> Any:
    """Change one value somewhere below."""
    while isinstance(value, dict | list) and value:
        key = (
            generator.choice(sorted(value))
            if isinstance(value, dict)
            else generator.randrange(len(value))
        )
        below = value[key]
        if not isinstance(below, dict | list) or not below or generator.random() < 0.05:
            value[key] = generator.choice(
                [None, 0, -1, 1e300, "", "x", [], {}, True, 2**53]
                + ([below * 2, below + 1e-7, below + 1] if isinstance(below, int | float) else [])
            )
            return
        value = below


def forged(files: dict[str, bytes], seed: int) -> bytes:
    """Change a value, a line or a byte of some file, and mostly seal the archive again."""
    generator = random.Random(seed)
    changed = dict(files)
    name = generator.choice(sorted(changed))
    data = changed[name]
    kind = generator.randrange(5)
    if kind == 0 and name.endswith(".json"):
        value = json.loads(data)
        change(value, generator)
        changed[name] = json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
    elif kind == 1 and name.endswith(".jsonl"):
        lines = data.decode().splitlines(keepends=True)
        place = generator.randrange(len(lines))
        event = json.loads(lines[place])
        change(event, generator)
        lines[place] = json.dumps(event) + "\n"
        changed[name] = "".join(lines).encode()
    elif kind == 2:
        del changed[name]
    elif kind == 3 and data:
        place = generator.randrange(len(data))
        changed[name] = data[:place] + bytes([generator.randrange(256)]) + data[place + 1 :]
    else:
        # The valid submission, unchanged or with a signature of nobody.
        changed.update({"signature.json": b"{}\n"} if generator.random() < 0.5 else {})
    if generator.random() < 0.9 and name != MANIFEST:
        changed.pop(MANIFEST, None)
        packing.seal(changed, key=None)
    return b"".join(archive.blocks(changed))


def agree(files: list[dict[str, bytes]], seeds: range) -> int:
    """Judge forged submissions both ways; return how many are ranked."""
    ranked = 0
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        path = Path(folder) / "s.ai500"
        for seed in seeds:
            path.write_bytes(forged(files[seed % 8 == 0], seed))
            with open_submission(path) as submission:
                verification = recompute(submission)
                valid = verification.valid
            judged = judge_file(path, name="s.ai500", trusted_keys=None)
            assert (judged.ranked is not None) == valid, (seed, judged.rejected, verification)
            ranked += valid
    return ranked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"problem_class": "smoke"', b'"problem_class": "x"'), (b'"uint8"', b'"9int8"')],
)
def test_a_plan_of_no_class_is_one_reason_among_others(
    files: list[dict[str, bytes]], tmp_path: Path, old: bytes, new: bytes
) -> None:
    assert old in files[0]["plan.json"]
    changed = files[0] | {"plan.json": files[0]["plan.json"].replace(old, new), "extra": b""}
    changed.pop(MANIFEST)
    packing.seal(changed, key=None)
    path = tmp_path / "changed.ai500"
    path.write_bytes(b"".join(archive.blocks(changed)))
    with open_submission(path) as submission:
        problems = recompute(submission).problems
    assert {problem.partition(":")[0] for problem in problems} >= {"plan.json", "extra"}


@pytest.mark.slow
def test_rank_and_verify_agree(files: list[dict[str, bytes]]) -> None:
    assert agree(files, range(60)) >= 5


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_rank_and_verify_agree_on_20000_files(files: list[dict[str, bytes]], part: int) -> None:
    assert agree(files, range(5_000 * part, 5_000 * (part + 1))) >= 250
