"""What an ensemble costs its controller as it grows, counted in operations, not in seconds.

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
from ai500.jobs.schedulers import slurm_commands
from ai500.jobs.schedulers.slurm_output import SlurmJob
from ai500.records.run_folder import RunFolder
from tests.support.simulated_slurm import TRIAL, SimulatedSlurm, controller_for, plan_ensemble

SMALL, LARGE = 100, 2_000

counting: list[str] | None = None


@pytest.fixture(scope="module")
def hook() -> None:
    """Python's own record of opened files; a hook stays for good, so it is told when to listen."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and counting is not None:
            counting.append(str(arguments[0]))

    sys.addaudithook(note)


@dataclass
class Followed:
    """One ensemble, followed to its end."""

    run: RunFolder
    looks: list[int]
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
    looks: list[int] = []

    def look(ids: list[str]) -> dict[str, SlurmJob]:
        before = slurm.calls.total()
        found = job_states(ids)
        looks.append(slurm.calls.total() - before)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm_commands, "run_slurm", slurm)
        patch.setattr(slurm_commands, "job_states", look)
        slurm_commands._accounting.cache_clear()
        counting = opened = []
        controller = controller_for(path, config, plan)
        controller.start()
        assert controller.run(lambda views: None) == []
        counting = None
    slurm_commands._accounting.cache_clear()
    return Followed(run, looks, slurm.calls, opened)


def test_an_ensemble_of_twenty_times_the_size_takes_as_many_slurm_commands_a_look(
    followed: tuple[Followed, Followed],
) -> None:
    small, large = followed
    # Twenty waves, each seen once while it runs; who has ended is asked for in a second call.
    assert len(small.looks) == len(large.looks) == 21
    assert max(small.looks) == max(large.looks) == 2
    assert small.calls["squeue"] == large.calls["squeue"]
    assert (small.calls["sbatch"], large.calls["sbatch"]) == (1, 2)  # MaxArraySize is 1,001


def test_files_opened_grow_no_faster_than_the_ensemble_and_no_member_is_lost(
    followed: tuple[Followed, Followed],
) -> None:
    small, large = followed
    assert len(large.opened) / LARGE <= len(small.opened) / SMALL
    # Of the run's own files the number follows the looks alone.
    shared = [
        Counter(Path(name).name for name in one.opened if Path(name).parent == one.run.path)
        for one in (small, large)
    ]
    assert shared[1]["events.jsonl"] <= shared[0]["events.jsonl"] + 3
    for one, members in ((small, SMALL), (large, LARGE)):
        told = Counter((e["event"], e["member"]) for e in events.read(one.run.events))
        kinds = ("job_submitted", "job_started", "job_ended", "start", "first_batch", "end")
        assert told == {(kind, member): 1 for kind in kinds for member in range(members)}


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
