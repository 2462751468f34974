"""Bad luck: killed members, Ctrl-C, a dead controller. Nothing is lost, and the result is the same.

The weights of a disturbed run are compared bit by bit with those of an undisturbed one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ai500.core import events
from ai500.data.generated import generate
from ai500.records import TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.workloads.learnable_images import SMOKE
from tests.support.commands import TINY, Start, processes_of, wait_for

pytestmark = pytest.mark.timeout(400)


def settings(store: Path, *, degree: int, size: int, epochs: int = 10) -> list[str | Path]:
    values = {
        "parallel.degree": degree,
        "ensemble.size": size,
        "train.epochs": epochs,
        # A checkpoint every few steps, so that a kill finds training between two epochs' ends.
        "train.checkpoint_minutes": 0.002,
        "scheduler.poll_seconds": 0.05,
        "system.accelerators_per_node": 2,
        "system.cores_per_slot": 1,
    }
    pairs = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    return ["--data", store, *pairs]


def weights(run: Path, size: int) -> list[str]:
    trial = RunFolder(run).trial(1)
    return [
        run_folder.read(TrainRecord, trial.member(m).record).weights_sha256 for m in range(size)
    ]


def results(run: Path) -> dict[str, Any]:
    score = json.loads((run / "score.json").read_text())
    keys = ["operations", "ensemble_quality", "members_mean_quality", "out_of_bag_quality"]
    return {key: score[key] for key in keys}


@pytest.fixture(
    scope="module",
    params=[(1, 2), pytest.param((2, 1), marks=pytest.mark.long)],
    ids=["P=1 M=2", "P=2 M=1"],
)
def shape(request: pytest.FixtureRequest) -> tuple[int, int]:
    degree, size = request.param
    return degree, size


@pytest.fixture(scope="module")
def undisturbed(
    shape: tuple[int, int], tiny_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run to its end, once for each shape."""
    from tests.support.commands import Command

    degree, size = shape
    folder = tmp_path_factory.mktemp("undisturbed")
    command = Command(
        "run", "--out", folder / "run", *settings(tiny_store, degree=degree, size=size),
        cwd=folder, environment={"TMPDIR": str(folder)},
    )  # fmt: skip
    assert command.wait() == 0, command.err
    return folder / "run"


@pytest.mark.long
def test_members_killed_at_random_moments_end_with_the_same_weights(
    shape: tuple[int, int], undisturbed: Path, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    degree, size = shape
    run = tmp_path / "run"
    moments = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
    command = start("run", "--out", run, *settings(tiny_store, degree=degree, size=size))
    for attempt in range(1, 4):
        log = RunFolder(run).trial(1).member(0).events
        begun = wait_for(log, "start", where=lambda e, n=attempt: e["attempt"] == n)
        wait_for(log, "first_batch")
        time.sleep(moments.uniform(0.0, 1.5))
        try:
            os.kill(begun["pid"], signal.SIGKILL)
        except ProcessLookupError:
            break  # it was faster than the kill
        code = command.wait()
        assert processes_of(run) == []
        if code == 0:
            break  # killed after its record was written
        assert code == 1
        assert "member 0 of trial 1 failed: killed by SIGKILL (exit code 137)" in command.err
        assert f"ai500 resume {run}" in command.err
        command = start("resume", run)
    if command.process.poll() is None:
        assert command.wait() == 0, command.err
    assert weights(run, size) == weights(undisturbed, size)
    assert results(run) == results(undisturbed)


def test_damaged_predictions_are_refused_and_the_named_command_mends_them(
    shape: tuple[int, int], undisturbed: Path, start: Start, tmp_path: Path
) -> None:
    """The weights are in the checkpoint: the member predicts again, and the result is the same."""
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    trial = RunFolder(run).trial(1)
    for finished in (trial.score, trial.ensemble):
        finished.unlink()
    member = trial.member(0)
    np.save(member.validation, np.load(member.validation)[::-1])
    refused = start("resume", run)
    assert refused.wait() != 0
    assert str(member.validation) in refused.err.replace("\n", "")
    assert f"rm {member.record} && ai500 resume {run}" in refused.err.replace("\n", " ")
    assert not trial.ensemble.exists()
    member.record.unlink()
    mended = start("resume", run)
    assert mended.wait() == 0, mended.err
    assert weights(run, shape[1]) == weights(undisturbed, shape[1])
    assert results(run) == results(undisturbed)


@pytest.mark.long
def test_control_c_cancels_and_resume_ends_with_the_same_weights(
    shape: tuple[int, int], undisturbed: Path, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    degree, size = shape
    run = tmp_path / "run"
    command = start("run", "--out", run, *settings(tiny_store, degree=degree, size=size))
    log = RunFolder(run).trial(1).member(0).events
    wait_for(log, "epoch")
    command.interrupt()
    assert command.wait() == 130
    assert f"ai500 resume {run}" in command.err
    assert processes_of(run) == []
    # A member that was asked to stop wrote its checkpoint at the end of the step it was in.
    stopped = wait_for(log, "interrupted", timeout=1)
    command = start("resume", run)
    assert command.wait() == 0, command.err
    went_on = wait_for(log, "resumed", timeout=1)
    assert (went_on["epoch"], went_on["step"]) == (stopped["epoch"], stopped["step"])
    assert weights(run, size) == weights(undisturbed, size)
    assert results(run) == results(undisturbed)
    score = json.loads((run / "score.json").read_text())
    assert score["idle_seconds"] > 0


@pytest.mark.parametrize("degree", [1, pytest.param(2, marks=pytest.mark.long)])
def test_members_die_with_a_killed_controller(
    degree: int, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """Enough epochs that no member ends by itself while the test watches."""
    run = tmp_path / "run"
    many = settings(tiny_store, degree=degree, size=3 - degree, epochs=500)
    command = start("run", "--out", run, *many)
    log = RunFolder(run).trial(1).member(0).events
    wait_for(log, "epoch")
    command.kill()
    deadline = time.monotonic() + 20
    while processes_of(run) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_of(run) == []
    assert not any(event["event"] == "end" for event in events.read(log))
    status = start("status", run, "--json")
    assert status.wait() == 0
    assert json.loads(status.out)["state"] == "stopped"


def test_resume_after_a_killed_controller_ends_with_the_same_weights(
    shape: tuple[int, int], undisturbed: Path, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    degree, size = shape
    run = tmp_path / "run"
    command = start("run", "--out", run, *settings(tiny_store, degree=degree, size=size))
    wait_for(RunFolder(run).trial(1).member(0).events, "epoch")
    command.kill()
    command = start("resume", run)
    assert command.wait() == 0, command.err
    assert weights(run, size) == weights(undisturbed, size)
    assert results(run) == results(undisturbed)
    numbers = [e["member_sequence"] for e in events.read(run / "events.jsonl") if "pid" not in e
               and e.get("member") == 0 and "member_sequence" in e]  # fmt: skip
    assert len(numbers) == len(set(numbers))


@pytest.mark.long
def test_one_crash_does_not_stop_the_others_and_resume_repeats_only_it(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = start("run", "--out", run, *settings(tiny_store, degree=1, size=2))
    trial = RunFolder(run).trial(1)
    victim = wait_for(trial.member(1).events, "start")
    os.kill(victim["pid"], signal.SIGKILL)
    assert command.wait() == 1
    assert trial.member(0).record.exists()
    score = json.loads((run / "score.json").read_text())
    assert score["complete"] is False
    assert "INCOMPLETE" in (run / "report.html").read_text(encoding="utf-8")
    finished = trial.member(0).record.stat().st_mtime_ns
    command = start("resume", run)
    assert command.wait() == 0, command.err
    assert trial.member(0).record.stat().st_mtime_ns == finished
    score = json.loads((run / "score.json").read_text())
    assert score["complete"] is True
    begun = [e for e in events.read(run / "events.jsonl") if e["event"] == "start"]
    assert sorted(e["member"] for e in begun) == [0, 1, 1]


def test_cancel_from_another_shell(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    run = tmp_path / "a folder; with 'quotes' and ünicode"
    many = settings(tiny_store, degree=2, size=1, epochs=500)
    command = start("run", "--out", run, *many)
    wait_for(RunFolder(run).trial(1).member(0).events, "epoch")
    second = start("resume", run)
    assert second.wait() == 2
    assert "is in use by process" in second.err
    status = start("status", run, "--json")
    assert status.wait() == 0
    printed = json.loads(status.out)
    assert printed["state"] == "running"
    assert printed["members"][0]["state"] == "running"
    assert printed["members"][0]["epoch"] >= 1
    cancel = start("cancel", run)
    assert cancel.wait() == 0, cancel.err
    assert command.wait() == 130
    assert processes_of(run) == []


@pytest.mark.long
def test_max_retries_starts_a_failed_member_again(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = start(
        "run", "--out", run, *settings(tiny_store, degree=2, size=1),
        "--set", "scheduler.max_retries=1",
    )  # fmt: skip
    begun = wait_for(RunFolder(run).trial(1).member(0).events, "start")
    os.kill(begun["pid"], signal.SIGKILL)
    assert command.wait() == 0, command.err
    kinds = [e["event"] for e in events.read(run / "events.jsonl")]
    assert kinds.count("job_submitted") == 2


@pytest.mark.long
def test_a_full_disk_is_named_and_resume_goes_on(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """Files past a few kilobytes are refused, as by a full disk or a quota; then there is room."""
    run = tmp_path / "run"
    arguments = settings(tiny_store, degree=2, size=1)
    command = start(
        "run", "--out", run, *arguments, "--set", "data.stage=false", largest_file_bytes=60_000
    )
    assert command.wait() == 1
    assert "checkpoint.pt (EFBIG)" in command.err
    assert "ulimit" in command.err
    command = start("resume", run)
    assert command.wait() == 0, command.err


def test_a_store_swapped_between_stop_and_resume_is_refused(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(tiny_store, store)
    run = tmp_path / "run"
    command = start("run", "--out", run, *settings(store, degree=2, size=1, epochs=500))
    wait_for(RunFolder(run).trial(1).member(0).events, "epoch")
    command.interrupt()
    assert command.wait() == 130
    shutil.rmtree(store)
    classes = [f"class {number}" for number in range(SMOKE.classes)]
    other = dataclasses.replace(SMOKE, seed=8)
    generate(store, other, name="tiny", classes=classes, splits=TINY, workers=1)
    command = start("resume", run)
    assert command.wait() == 2
    assert "trial 1 began with" in command.err


@pytest.mark.long
def test_two_runs_of_one_seed_do_not_share_what_they_stage(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """The same bootstraps, so the same subset; the first to finish removes its copy."""
    many = settings(tiny_store, degree=2, size=2, epochs=25)
    long = start("run", "--out", tmp_path / "long", *many)
    wait_for(RunFolder(tmp_path / "long").trial(1).member(0).events, "start")
    short = settings(tiny_store, degree=2, size=2, epochs=1)
    command = start("run", "--out", tmp_path / "short", *short)
    assert command.wait() == 0, command.err
    assert long.wait() == 0, long.err


def test_control_c_while_data_is_made_says_how_to_go_on(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "store"
    command = start("data", "generate", "--class", "workstation", "--out", store)
    deadline = time.monotonic() + 60
    while not list(store.glob("*.images.npy")) and time.monotonic() < deadline:
        time.sleep(0.05)
    command.interrupt()
    assert command.wait() == 130
    assert "run the same command again" in command.err
    assert not (store / "manifest.json").exists()
