"""Real searches on few images: to the end, killed, interrupted, on two ranks. Nothing counts twice.

The best model of three seeds against the initial one at equal epochs is a long test.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from ai500.automl.history import (
    EXHAUSTED,
    FINISHED,
    HISTORY_FILE,
    Ended,
    Presence,
    resume_state,
)
from ai500.automl.morphism import Weights
from ai500.automl.worker import Worker, network
from ai500.core import events
from ai500.records import Task, TrainRecord, run_folder
from ai500.records.findings import Finding
from ai500.records.run_folder import RunFolder
from ai500.train.worker import Interrupted, Rank
from ai500.workloads.models.architecture import Architecture
from ai500.workloads.models.architecture_network import Network
from tests.support.commands import Command, Start, processes_of, wait_for
from tests.support.searches import check, read_history, settings

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def searched(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two workers to the end of their time."""
    folder = tmp_path_factory.mktemp("searched")
    command = Command(
        "run", "--out", folder / "run", *settings(tiny_store, seconds=10),
        cwd=folder, environment={"TMPDIR": str(folder)},
    )  # fmt: skip
    assert command.wait() == 0, command.err
    return folder / "run"


def test_a_search_of_two_workers(searched: Path) -> None:
    score = check(searched, workers=2)
    history, lines = read_history(searched)
    children = [model for model in history.models.values() if model.candidate.parent is not None]
    assert len(history.models) >= 3
    assert {m.candidate.parent for m in children} <= set(history.models)
    # Nobody repeats a child that he could know of: the other worker may make the same meanwhile.
    for worker in (0, 1):
        first = [m for m in children if m.worker == worker and m.candidate.trial == 1]
        own = [m.candidate.digest for m in first]
        assert len(own) == len(set(own))
    assert all(m.candidate.tuned == (m.candidate.round >= 5) for m in history.models.values())
    for model in children:
        parent = history.models[str(model.candidate.parent)]
        assert model.candidate.architecture != parent.candidate.architecture
    spans = {
        worker: [line.event["monotonic"] for line in lines if line.worker == worker]
        for worker in (0, 1)
    }
    assert all(10 <= max(times) - min(times) < 40 for times in spans.values())
    assert score.seconds >= 10  # never short by chance: the window ends when its workers do


def test_only_the_weights_of_the_best_are_kept(searched: Path) -> None:
    history, _ = read_history(searched)
    kept = {path.stem for path in (searched / "trials/01/members").glob("*/weights/*.pt")}
    assert kept <= set(history.models)
    best = max(history.models.values(), key=lambda model: model.accuracy or 0)
    assert best.id in kept


def unstarted(run: Path, to: Path) -> Task:
    """Worker 0's task of a run, in a folder where it has not begun and no other worker searches."""
    shutil.copytree(run, to)
    task = run_folder.read(Task, RunFolder(to).trial(1).member(0).task)
    for folder in (to / "trials/01/members").iterdir():
        shutil.rmtree(folder)
    folder = RunFolder(to).trial(1).member(0).path
    folder.mkdir()
    assert task.search is not None
    search = dataclasses.replace(task.search, minutes=60)
    return dataclasses.replace(
        task, run=str(to), folder=str(folder), search=search, staged=None, stage=False
    )


@pytest.mark.long
def test_a_model_that_there_is_no_memory_to_build_is_lost_and_the_search_goes_on(
    searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Architecture] = []

    def too_large(architecture: Architecture, weights: Weights | None) -> Network:
        built.append(architecture)
        if len(built) in (2, 3):
            torch.empty(1 << 50)  # the allocator's own refusal
        return network(architecture, weights)

    monkeypatch.setattr("ai500.automl.worker.network", too_large)
    task = unstarted(searched, tmp_path / "run")
    alone, cpu = Rank.from_environment(), torch.device("cpu")
    worker = Worker(task, rank=alone, device=cpu, stop=lambda: len(built) > 4)
    with pytest.raises(Interrupted):
        worker.search(ready=lambda: None)
    history, lines = read_history(tmp_path / "run")
    assert not history.unreadable
    states = [history.models[f"000-{number:04d}"].state for number in (1, 2, 3)]
    assert states == ["trained", "lost", "lost"]
    lost = [x.entry for x in lines if isinstance(x.entry, Ended) and x.entry.state == "lost"]
    assert [entry.reason for entry in lost] == ["out of memory while it was built"] * 2
    after = history.models["000-0004"]
    assert (after.state, after.candidate.parent) == ("trained", "000-0001")
    log = events.read(Path(task.folder) / "events.jsonl")
    assert [e["model"] for e in log if e["event"] == "model_lost"] == ["000-0002", "000-0003"]


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 4])
def test_workers_killed_at_random_moments(
    kills: int, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    moments = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
    command = start("run", "--out", run, *settings(tiny_store, seconds=5 + 2 * kills))
    code = None
    for attempt in range(1, kills + 1):
        folder = RunFolder(run).trial(1).member(0)
        begun = wait_for(folder.events, "start", where=lambda e, n=attempt: e["attempt"] == n)
        time.sleep(moments.uniform(0.0, 4.0))
        try:
            os.kill(begun["pid"], signal.SIGKILL)
        except ProcessLookupError:
            break  # it was faster than the kill
        code = command.wait()
        assert processes_of(run) == []
        assert (code == 0) == folder.record.exists()
        if code == 0:
            break
        assert "worker 0 of trial 1 failed" in command.err
        command = start("resume", run)
    if command.process.poll() is None:
        code = command.wait()
    assert code == 0, command.err
    check(run, workers=2)
    # The time of all attempts together is the search's, and was not searched again by each.
    searched = resume_state(read_history(run)[1], worker=0).seconds
    assert 5 + 2 * kills <= searched < 5 + 2 * kills + 6


@pytest.mark.long
def test_control_c_and_resume(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = start("run", "--out", run, *settings(tiny_store, seconds=6, workers=1))
    folder = RunFolder(run).trial(1).member(0)
    wait_for(folder.path / HISTORY_FILE, "ended")
    command.interrupt()
    assert command.wait() == 130, command.err
    assert processes_of(run) == []
    before, _ = read_history(run)
    (current,) = [m.id for m in before.models.values() if m.ended is None]
    with (folder.path / HISTORY_FILE).open("a") as file:
        file.write('{"event": "work", "tor')  # as a power cut leaves it
    command = start("resume", run)
    assert command.wait() == 0, command.err
    history, _ = read_history(run)
    assert history.models[current].state != "lost"  # its checkpoint was written
    assert [str(line) for line in history.unreadable]
    assert any(e["event"] == "history_unreadable" for e in events.read(folder.events))


@pytest.mark.long
def test_finish_ends_a_search_with_a_score(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = start("run", "--out", run, *settings(tiny_store, seconds=3600, workers=2))
    for worker in (0, 1):
        wait_for(RunFolder(run).trial(1).member(worker).path / HISTORY_FILE, "epoch")
    refused = start("finish", run)
    assert refused.wait() == 2
    assert "the least time of class smoke is 2 min 00 s" in " ".join(refused.err.split())
    assert command.process.poll() is None
    early = start("finish", run, "--early")
    assert early.wait() == 0, early.err
    assert command.wait() == 0, command.err
    score = check(run, workers=2)
    assert score.seconds < 120
    _, lines = read_history(run)
    ends = [x.entry for x in lines if isinstance(x.entry, Presence) and x.entry.change == "end"]
    assert [entry.reason for entry in ends] == [FINISHED, FINISHED]
    findings = run_folder.read_all(Finding, RunFolder(run).findings)
    (least,) = [finding for finding in findings if finding.rule == "least time"]
    assert "finish --early" in least.advice


@pytest.mark.long
def test_a_worker_of_two_ranks(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = start("run", "--out", run, *settings(tiny_store, seconds=5, workers=1, degree=2))
    assert command.wait() == 0, command.err
    check(run, workers=1)
    history, _ = read_history(run)
    assert len(history.models) >= 2
    assert all(m.candidate.batch_size % 2 == 0 for m in history.models.values())
    record = run_folder.read(TrainRecord, RunFolder(run).trial(1).member(0).record)
    assert record.world_size == 2
    # Each model's bytes belong to its own steps: two ranks send 2 (n−1)/n of 4 bytes a parameter.
    for model in history.models.values():
        assert model.ended is not None and model.ended.counted_steps > 0
        sent = model.ended.bytes_inside_node / model.ended.counted_steps
        assert sent == pytest.approx(2 * 4 * model.candidate.operations.parameters, rel=0.02)


@pytest.mark.long
def test_a_search_with_nothing_left_to_try_ends_with_what_it_has(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    small = ["--set", "automl.max_growth=1.01"]
    command = start("run", "--out", run, *settings(tiny_store, seconds=300, workers=1), *small)
    assert command.wait() == 0, command.err
    score = check(run, workers=1)
    assert score.seconds < 200
    (ended,) = [
        x.entry for x in read_history(run)[1] if isinstance(x.entry, Presence) and x.entry.reason
    ]
    assert ended.reason == EXHAUSTED
    log = events.read(RunFolder(run).trial(1).member(0).events)
    assert any(event["event"] == "search_space_exhausted" for event in log)


@pytest.mark.long
def test_a_search_too_short_for_an_epoch_says_so(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    command = start("run", "--out", tmp_path / "r", *settings(tiny_store, seconds=0.05, workers=1))
    assert command.wait() == 1
    assert "Start a new run with a larger automl.minutes" in " ".join(command.err.split())
