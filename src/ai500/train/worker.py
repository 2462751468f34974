"""The worker process, `python -m ai500.train.worker TASK.json`: one rank of one member, or all
members that share a process [D11].

This file sets up the process: its parent, its cores, its signals. The training is in
`member_process.py` and `shared_process.py`, a worker of a search (AIPerf) in `automl/worker.py`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from ai500.core.atomic import PROCESS_LIMIT
from ai500.core.errors import AI500Error, EnvironmentLacksError
from ai500.core.processes import AGENT_VARIABLE, is_descendant, parent_of, usable_cores
from ai500.records import Slot, Task, run_folder
from ai500.records.run_folder import RunFolder

INTERRUPTED_EXIT_CODE = 143  # a shell's code for a process that SIGTERM ended
NO_THREAD = "can't start new thread"  # Python's words for it, in a RuntimeError without a type
_PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>


class Interrupted(Exception):  # noqa: N818 - not an error: the controller asked for it
    """Training stopped after a step on request; the checkpoint is written."""


@dataclass(frozen=True, slots=True)
class Rank:
    """Rank of this process in the member, as torchrun sets it in the environment."""

    rank: int
    local_rank: int
    local_world_size: int
    world_size: int

    @classmethod
    def from_environment(cls) -> Rank:
        """Read torchrun's variables; without them the process is the only rank."""
        environ = os.environ
        return cls(
            rank=int(environ.get("RANK", "0")),
            local_rank=int(environ.get("LOCAL_RANK", "0")),
            local_world_size=int(environ.get("LOCAL_WORLD_SIZE", "1")),
            world_size=int(environ.get("WORLD_SIZE", "1")),
        )


class StopRequest:
    """SIGTERM requests a checkpoint and an exit. Rank 0 decides when, the others follow it."""

    def __init__(self, rank: Rank) -> None:
        self.received = False
        self._decides = rank.rank == 0
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle

    def _receive(self, signum: int, frame: object) -> None:
        self.received = True

    def __call__(self) -> bool:
        """Return whether this rank has to stop after the current step."""
        return self.received and self._decides


def main(entry_point: str | None = None) -> int:
    """Run the task named on the command line, by its own entry point or by this one."""
    die_with_parent()
    task = run_folder.read(Task, Path(sys.argv[1]))
    rank = Rank.from_environment()
    stop = StopRequest(rank)
    try:
        if rank.world_size != task.parallel_degree:
            raise AI500Error(
                f"member {task.member} runs as {rank.world_size} processes, its plan says "
                f"parallel.degree = {task.parallel_degree}.",
                key="parallel.degree",
                value=task.parallel_degree,
                remedy="Start it through `ai500 run`.",
            )
        slot = task.slots[rank.local_rank]
        threads = _pin(slot, rank)
        tasks = _unfinished(task)
        # Imported here: torch reads the process's cores when it is loaded.
        if len(tasks) > 1:
            # A hardware queue for each stream; the driver reads this when it starts.
            os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
            from ai500.train import shared_process

            shared_process.run(tasks, rank=rank, device=slot.device, threads=threads, stop=stop)
        else:
            module, _, function = (entry_point or task.entry_point).partition(":")
            run = getattr(import_module(module), function)
            run(tasks[0], rank=rank, device=slot.device, threads=threads, stop=stop)
    except AI500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        # A rank that waits for a stopped one sees a broken connection: not a failure.
        if isinstance(error, Interrupted) or stop.received:
            return INTERRUPTED_EXIT_CODE
        if NO_THREAD in str(error):
            print(f"error: the worker {NO_THREAD}: {PROCESS_LIMIT}", file=sys.stderr)
            return EnvironmentLacksError.exit_code
        raise
    return 0


def _unfinished(task: Task) -> list[Task]:
    """Return the tasks of this process that have no record; a single one trains alone."""
    if not task.process_members:
        return [task]
    trial = RunFolder(Path(task.run)).trial(task.trial)
    folders = [trial.member(member) for member in task.process_members]
    tasks = [run_folder.read(Task, folder.task) for folder in folders if not folder.record.exists()]
    if len(tasks) > 1:
        return tasks
    return [replace(single, process_members=()) for single in tasks or [task]]


def die_with_parent() -> None:
    """Let Linux kill the worker when its parent dies; exit if torchrun has died before that.

    Such a rank is a child of another process already, and would wait for the others without end.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        agent, own = int(os.environ.get(AGENT_VARIABLE, "0")), os.getpid()
        has_proc = parent_of(own) is not None
        if agent and has_proc and not is_descendant(own, of=agent):
            os._exit(1)


def cores_of(slot: Slot, rank: Rank) -> tuple[int, ...] | int | None:
    """Return the cores of a CPU slot [D8]: the plan's, or on a cluster an equal share of those that
    the scheduler bound the job to; only their number if it bound none. None for accelerators."""
    if slot.cores:
        return slot.cores
    if slot.device != "cpu":
        return None
    bound = usable_cores()
    granted = int(os.environ.get("SLURM_CPUS_PER_TASK", len(bound)))
    if os.environ.get("AI500_TASKS_PER_NODE"):  # a task of Slurm is a slot, not a node's share
        granted *= rank.local_world_size
    each = max(1, granted // rank.local_world_size)
    if len(bound) > granted:
        return each
    first = rank.local_rank * each % len(bound)
    return bound[first : first + each]


def _pin(slot: Slot, rank: Rank) -> int | None:
    """Bind this process to its cores if they are known; return its number of threads."""
    cores = cores_of(slot, rank)
    if isinstance(cores, tuple):
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        return len(cores)
    return cores


if __name__ == "__main__":
    sys.exit(main())
