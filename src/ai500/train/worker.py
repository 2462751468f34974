"""One rank of one member: `python -m ai500.train.worker TASK.json`, alone or under torchrun; or all
members that share a process [D11].

This file is the process: its parent, its cores, its signals. What it trains is in `member.py`;
what it does where members search (AIPerf) is in `automl/worker.py`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from ai500.core.errors import AI500Error
from ai500.records import Slot, Task, run_folder
from ai500.records.run_folder import RunFolder

INTERRUPTED_EXIT_CODE = 143
_PR_SET_PDEATHSIG = 1


class Interrupted(Exception):  # noqa: N818 - not an error: the controller asked for it
    """Training stopped at a step's end on request; the checkpoint is written."""


@dataclass(frozen=True, slots=True)
class Rank:
    """This process among those of the member; torchrun tells it by the environment."""

    rank: int
    local_rank: int
    local_world_size: int
    world_size: int

    @classmethod
    def from_environment(cls) -> Rank:
        """Alone unless torchrun says otherwise."""
        environ = os.environ
        return cls(
            rank=int(environ.get("RANK", "0")),
            local_rank=int(environ.get("LOCAL_RANK", "0")),
            local_world_size=int(environ.get("LOCAL_WORLD_SIZE", "1")),
            world_size=int(environ.get("WORLD_SIZE", "1")),
        )


class StopRequest:
    """SIGTERM asks for a checkpoint and an end. Rank 0 decides when, the others wait for it."""

    def __init__(self, rank: Rank) -> None:
        self.received = False
        self._decides = rank.rank == 0
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle

    def _receive(self, signum: int, frame: object) -> None:
        self.received = True

    def __call__(self) -> bool:
        """Whether this rank should stop after the step it is in."""
        return self.received and self._decides


def main() -> int:
    """Run the task named on the command line."""
    _die_with_parent()
    task = run_folder.read(Task, Path(sys.argv[1]))
    rank = Rank.from_environment()
    stop = StopRequest(rank)
    try:
        if rank.world_size != task.parallel_degree:
            raise AI500Error(
                f"member {task.member} runs as {rank.world_size} processes, its plan says "
                f"parallel.degree = {task.parallel_degree}. Start it through `ai500 run`."
            )
        slot = task.slots[rank.local_rank]
        threads = _pin(slot, rank)
        tasks = _unfinished(task)
        # Imported here: torch reads the process's cores when it is loaded.
        if len(tasks) > 1:
            # Each stream a queue of its own on the device; read by its driver when it starts.
            os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
            from ai500.train.shared_process import run_together

            run_together(tasks, rank=rank, device=slot.device, threads=threads, stop=stop)
        else:
            module, _, function = task.entry_point.partition(":")
            run = getattr(import_module(module), function)
            run(tasks[0], rank=rank, device=slot.device, threads=threads, stop=stop)
    except AI500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        # A rank that waits for one that has stopped sees a broken connection: not a failure.
        if isinstance(error, Interrupted) or stop.received:
            return INTERRUPTED_EXIT_CODE
        raise
    return 0


def _unfinished(task: Task) -> list[Task]:
    """Of the members that share this process, those without a record; one is left alone."""
    if not task.process_members:
        return [task]
    trial = RunFolder(Path(task.run)).trial(task.trial)
    folders = [trial.member(member) for member in task.process_members]
    left = [run_folder.read(Task, one.task) for one in folders if not one.record.exists()]
    return left if len(left) > 1 else [replace(one, process_members=()) for one in left or [task]]


def _die_with_parent() -> None:
    """A worker never outlives the process that watches it (on Linux)."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _cores(slot: Slot, rank: Rank) -> tuple[int, ...] | int | None:
    """A CPU slot is a fixed set of cores [D8]: the plan's, or on a cluster an equal share of those
    that the scheduler bound the job to; a number where it bound none. None: an accelerator's."""
    if slot.cores:
        return slot.cores
    if slot.device != "cpu":
        return None
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    granted = int(os.environ.get("SLURM_CPUS_PER_TASK", len(found) or 1))
    each = max(1, granted // rank.local_world_size)
    if len(found) > granted:
        return each
    first = rank.local_rank * each % len(found)
    return tuple(found[first : first + each])


def _pin(slot: Slot, rank: Rank) -> int | None:
    """Bind this process to its cores, if they are known; how many threads it may use."""
    cores = _cores(slot, rank)
    if isinstance(cores, tuple):
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        return len(cores)
    return cores


if __name__ == "__main__":
    sys.exit(main())
