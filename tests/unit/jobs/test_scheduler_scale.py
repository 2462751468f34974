"""The controller's cost as the ensemble grows, counted in operations, not in seconds.

`benchmarks/scheduler.py` measures the same on a real Slurm, and to 100,000 members.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ai500.core import events
from ai500.core.heartbeat import turn_of
from ai500.jobs.schedulers import slurm_commands
from ai500.jobs.schedulers.slurm_output import SlurmJob
from ai500.records.run_folder import RunFolder
from tests.support.simulated_slurm import TRIAL, SimulatedSlurm, controller_for, plan_ensemble

pytestmark = pytest.mark.slow

SMALL, LARGE = 100, 2_000

counting: list[str] | None = None


@pytest.fixture(scope="module")
def hook() -> None:
    """Install an audit hook that records opened files while `counting` is a list."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and counting is not None:
            counting.append(str(arguments[0]))

    sys.addaudithook(note)


@dataclass
class Followed:
    """One ensemble, followed to its end."""

    run: RunFolder
    polls: list[int]
    """Slurm's commands that each look at the queue took."""
    calls: Counter[str]
    opened: list[str]


@pytest.fixture(scope="module")
def followed(hook: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Followed, Followed]:
    """A small ensemble and a large one."""
    small, large = (follow(tmp_path_factory.mktemp("run"), size) for size in (SMALL, LARGE))
    return small, large


def follow(path: Path, members: int) -> Followed:
    global counting
    config, plan = plan_ensemble(members, nodes=1)
    run = RunFolder(path)
    slurm = SimulatedSlurm(run.trial(TRIAL), at_once=members // 20)
    job_states = slurm_commands.job_states
    polls: list[int] = []

    def poll(ids: list[str], **options: Any) -> dict[str, SlurmJob]:
        before = slurm.calls.total()
        jobs = job_states(ids, **options)
        polls.append(slurm.calls.total() - before)
        return jobs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm_commands, "run_slurm", slurm)
        patch.setattr(slurm_commands, "job_states", poll)
        slurm_commands._accounting.cache_clear()
        counting = opened = []
        controller = controller_for(path, config, plan)
        controller.start()
        assert controller.run(lambda views: None) == []
        counting = None
    slurm_commands._accounting.cache_clear()
    return Followed(run, polls, slurm.calls, opened)


def test_an_ensemble_of_twenty_times_the_size_takes_as_many_slurm_commands_a_look(
    followed: tuple[Followed, Followed],
) -> None:
    small, large = followed
    # Twenty waves, each seen once while it runs; one squeue knows those that have ended, too.
    assert len(small.polls) == len(large.polls) == 21
    assert max(small.polls) == max(large.polls) == 1
    assert small.calls["squeue"] == large.calls["squeue"]
    assert (small.calls["sbatch"], large.calls["sbatch"]) == (1, 2)  # MaxArraySize is 1,001


def test_files_opened_grow_no_faster_than_the_ensemble_and_no_member_is_lost(
    followed: tuple[Followed, Followed],
) -> None:
    small, large = followed
    assert len(large.opened) / LARGE <= len(small.opened) / SMALL
    # Of the run's own files the number follows the polls alone.
    shared = [
        Counter(
            Path(name).name for name in ensemble.opened if Path(name).parent == ensemble.run.path
        )
        for ensemble in (small, large)
    ]
    assert shared[1]["events.jsonl"] <= shared[0]["events.jsonl"] + 3
    for ensemble, members in ((small, SMALL), (large, LARGE)):
        counted = Counter((e["event"], e["member"]) for e in events.read(ensemble.run.events))
        kinds = ("job_submitted", "job_started", "job_ended", "start", "first_batch", "end")
        assert counted == {(kind, member): 1 for kind in kinds for member in range(members)}


def test_files_of_running_members_are_removed_when_they_have_ended(
    followed: tuple[Followed, Followed],
) -> None:
    for ensemble, members in zip(followed, (SMALL, LARGE), strict=True):
        folders = [ensemble.run.trial(TRIAL).member(member) for member in range(members)]
        left = {file.name for folder in folders for file in folder.path.iterdir()}
        assert left == {"task.json", "events.jsonl", "record.json"}


def test_a_lock_that_a_copy_has_waited_for_stays(hook: None, tmp_path: Path) -> None:
    """A worker that it replaced learns that when it wakes, and ends."""
    members = [RunFolder(tmp_path).trial(TRIAL).member(member) for member in range(20)]
    members[3].path.mkdir(parents=True)
    turn_of(members[3].lock).touch()
    follow(tmp_path, len(members))
    assert [member for member in members if member.lock.exists()] == [members[3]]


@pytest.mark.parametrize("start", ["array", "gang"])
def test_planning_takes_as_many_steps_per_member_for_twenty_times_the_members(
    tmp_path: Path, start: str
) -> None:
    def plan(members: int) -> None:
        # As many nodes as the members fill: both grow together.
        config, made = plan_ensemble(members, nodes=members // 10, start=start)
        controller_for(tmp_path, config, made)

    plan(SMALL)  # what is done once in a process
    small, large = (steps_of(lambda size=size: plan(size)) for size in (SMALL, LARGE))
    assert large / LARGE <= small / SMALL


def steps_of(action: Callable[[], None]) -> int:
    """Lines of Python that are executed."""
    lines = 0

    def trace(frame: object, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines
