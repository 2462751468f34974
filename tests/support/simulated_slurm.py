"""A simulation of Slurm's commands, for ensembles larger than a test machine can run.

It replaces `run_slurm`; the rest of ai500 is real. `tests/jobs` has the tests with a real Slurm.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from ai500.bagging.job_controller import JobController
from ai500.bagging.program import ENSEMBLE
from ai500.bagging.tasks import member_tasks
from ai500.config import Config, load
from ai500.core.events import EventLog
from ai500.jobs.schedulers.slurm import SLURM
from ai500.jobs.trial_jobs import scheduler_context
from ai500.pipeline import planning
from ai500.records import BootstrapRecord, Cluster, Placement, Plan, System
from ai500.records.run_folder import RunFolder, TrialFolder

TRIAL = 1
POLLS_REMEMBERED = 10
"""Polls after which squeue forgets an ended task (MinJobAge)."""
MACHINE = System(
    hostname="login", operating_system="", kernel="", python="", cpu="", cores=2,
    memory_bytes=None, accelerator=None, accelerators=(), libraries={},
)  # fmt: skip


class SimulatedSlurm:
    """Accepts arrays; at most `at_once` tasks run at a time, each from one poll to the next."""

    def __init__(self, trial: TrialFolder, *, at_once: int) -> None:
        self._trial = trial
        self._at_once = at_once
        self._members: dict[tuple[int, int], int] = {}
        self._waiting: deque[tuple[int, int]] = deque()
        self._running: list[tuple[int, int]] = []
        self._ended: deque[list[tuple[int, int]]] = deque(maxlen=POLLS_REMEMBERED)
        self._jobs = 0
        self.calls: Counter[str] = Counter()
        self.cpu_seconds = 0.0

    def __call__(self, words: Sequence[str], *, timeout: float, stdin: str = "") -> str:
        """Replace `run_slurm`."""
        began = time.process_time()
        self.calls[words[0]] += 1
        if words[0] == "sbatch":
            output = self._sbatch(stdin)
        elif words[0] == "squeue":
            self._pass_time()
            output = self._squeue()
        else:
            output = "AccountingStorageType = accounting_storage/none\n"
        self.cpu_seconds += time.process_time() - began
        return output

    def _sbatch(self, script: str) -> str:
        match = re.search(r"^members=\((.*)\)$", script, flags=re.MULTILINE)
        assert match, "not an array's script"
        self._jobs += 1
        for task, member in enumerate(match[1].split()):
            self._members[self._jobs, task] = int(member)
            self._waiting.append((self._jobs, task))
        return f"{self._jobs}\n"

    def _pass_time(self) -> None:
        for task in self._running:
            write_record(self._trial, self._members[task])
        self._ended.append(self._running)
        starting = min(self._at_once, len(self._waiting))
        self._running = [self._waiting.popleft() for _ in range(starting)]

    def _squeue(self) -> str:
        rows = [f"{job}_{task}|RUNNING|0|0|None" for job, task in self._running]
        for job, tasks in groupby(self._waiting, key=lambda task: task[0]):
            numbers = [task for _, task in tasks]
            rows.append(f"{job}_[{numbers[0]}-{numbers[-1]}]|PENDING|0|0|Resources")
        for tasks in self._ended:
            rows += [f"{job}_{task}|COMPLETED|0|0|None" for job, task in tasks]
        return "\n".join(rows) + "\n"


def write_record(trial: TrialFolder, member: int) -> None:
    """Write the files of a member that has trained."""
    folder = trial.member(member)
    common = {"wall": 1.0, "monotonic": 1.0, "host": "n1", "boot": "b",
              "trial": TRIAL, "member": member, "attempt": 1}  # fmt: skip
    lines = [
        json.dumps({"event": kind, "sequence": number, **common})
        for number, kind in enumerate(("start", "first_batch", "end"), start=1)
    ]
    folder.events.write_text("\n".join(lines) + "\n")
    for file in folder.of_running:
        file.touch()
    folder.record.write_text("{}")


def plan_ensemble(members: int, *, nodes: int, start: str = "array") -> tuple[Config, Plan]:
    """Plan an ensemble of one-slot members on a simulated cluster."""
    cluster = Cluster(
        name="simulated", partition="batch", nodes=tuple(f"n{i}" for i in range(nodes)),
        unusable={}, cpus_per_node=8, threads_per_core=1, accelerators_per_node=8,
        max_array_size=1001, max_seconds=None, accounting=False,
        version="22.05",
    )  # fmt: skip
    config = load(
        overrides={
            "ensemble.size": members,
            "parallel.degree": 1,
            "system.device": "cuda",
            "scheduler.kind": "slurm",
            "scheduler.poll_seconds": 0.001,
            "slurm.start": start,
            "data.stage": False,
        }
    )
    return config, planning.make_plan(config, MACHINE, cluster)


def controller_for(
    path: Path, config: Config, plan: Plan, *, note: Callable[[str], None] = lambda text: None
) -> JobController:
    """Make the real controller with the real Slurm scheduler, as the pipeline does."""
    run = RunFolder(path)
    bootstraps = [
        BootstrapRecord(m, f"trials/01/bootstraps/{m}", 4_000, 4_000, 2_500, "0" * 64)
        for m in range(plan.ensemble_size)
    ]
    placements = [Placement(node.name, "/store", "0" * 64, None, 0, 0, 0.0) for node in plan.nodes]
    tasks = member_tasks(
        run,
        plan,
        trial=TRIAL,
        seed=1,
        bootstraps=bootstraps,
        placements=placements,
        config=config,
        entry_point=ENSEMBLE.entry_point,
    )
    context = scheduler_context(run, config, plan, trial=TRIAL, store=None)
    return JobController(
        run,
        config,
        plan,
        trial=TRIAL,
        tasks=tasks,
        scheduler=SLURM.make(replace(context, note=note)),
        log=EventLog(run.events),
        details_reader=ENSEMBLE.details_reader,
        note=note,
    )
