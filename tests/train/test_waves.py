"""On a CPU a member of a later wave prepares while the one before it trains, then trains alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.core import events
from ai500.records import Score, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import Start, processes_of, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def settings(store: Path, *, slots: int) -> list[str | Path]:
    values = {
        # Enough epochs that training takes several times as long as a preparation.
        "ensemble.size": 2, "parallel.degree": 1, "train.epochs": 40,
        "system.accelerators_per_node": slots, "system.cores_per_slot": 1,
        "scheduler.poll_seconds": 0.05,
    }  # fmt: skip
    pairs = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    return ["--data", store, *pairs]


def weights(run: Path) -> list[str]:
    trial = RunFolder(run).trial(1)
    return [run_folder.read(TrainRecord, trial.member(m).record).weights_sha256 for m in range(2)]


def times(run: Path, event: str, member: int) -> list[float]:
    log = events.read(RunFolder(run).events)
    return [e["monotonic"] for e in log if e["event"] == event and e.get("member") == member]


def test_the_next_member_is_ready_when_the_one_before_it_ends(
    start: Start, tiny_store: Path, tmp_path: Path
) -> None:
    at_once, waves = tmp_path / "at once", tmp_path / "waves"
    for run, slots in ((at_once, 2), (waves, 1)):
        command = start("run", "--out", run, *settings(tiny_store, slots=slots))
        assert command.wait(timeout=600) == 0, command.err
    assert weights(waves) == weights(at_once)
    (ended,), (ready,), (began,) = (
        times(waves, *of) for of in (("end", 0), ("start", 1), ("first_batch", 1))
    )
    assert ready < ended < began  # `start` is logged after the imports
    score = run_folder.read(Score, RunFolder(waves).score)
    assert score.waves == 2
    launched, first = times(waves, "job_started", 0)[0], times(waves, "first_batch", 0)[0]
    assert score.idle_seconds == pytest.approx(began - ended, abs=0.01)
    assert score.idle_seconds < (first - launched) / 2  # it does not start from nothing
    assert not (waves / "trials/01/slots").exists()


def test_control_c_while_a_member_waits_for_its_slot(
    start: Start, tiny_store: Path, tmp_path: Path
) -> None:
    run, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    command = start("run", "--out", run, *settings(tiny_store, slots=1))
    trial = RunFolder(run).trial(1)
    wait_for(trial.member(1).events, "start", timeout=400)
    command.interrupt()
    assert command.wait(timeout=200) == 130
    assert processes_of(run) == []
    assert not times(run, "first_batch", 1)
    for words in (["resume", run], ["run", "--out", undisturbed, *settings(tiny_store, slots=2)]):
        command = start(*words)
        assert command.wait(timeout=600) == 0, command.err
    assert weights(run) == weights(undisturbed)
