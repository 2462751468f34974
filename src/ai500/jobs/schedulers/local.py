"""The local scheduler: one process group per job on this machine, as many as slots allow."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ai500.config import Config
from ai500.core.atomic import explained, explaining_write_errors
from ai500.core.errors import EnvironmentLacksError, setting_error
from ai500.core.processes import resident_bytes
from ai500.core.slot_locks import VARIABLE
from ai500.core.source import DIE_WITH_PARENT
from ai500.jobs.free_memory import free_bytes
from ai500.jobs.launchers import RUNTIMES, Launcher
from ai500.jobs.schedulers import ATTEMPT_MARK, PREPARING, JobSpec, JobStatus, SchedulerContext
from ai500.records import Cluster

GRACE_SECONDS = 15.0  # for a cancelled worker to write its checkpoint
EARLY_MEMORY = 1.5
"""Free memory that an early start needs, in that of the job on its slots: it will take as much."""


class LocalScheduler:
    """Starts a job when the slots of its mapping are free; later waves wait for them [D13].

    With a folder of slot locks a job starts as soon as those on its slots are about to end. Its
    member prepares meanwhile, and trains when they release the locks.

    Jobs end with this process: each runs in a session of its own that is killed as a whole, the
    kernel kills it when this process dies, and torchrun's ranks when torchrun dies.
    """

    poll_seconds = 0.5
    slowest_poll_seconds = 0.5  # a poll is cheap, and its delay counts as training time

    def __init__(
        self,
        launcher: Launcher,
        *,
        jobs_per_slot: int = 1,
        slot_locks: Path | None = None,
        early_memory: float = EARLY_MEMORY,
    ) -> None:
        self._launcher = launcher
        self._jobs_per_slot = jobs_per_slot
        self._slot_locks = slot_locks
        self._early_memory = early_memory
        self._ending: set[str] = set()
        self._before: dict[str, frozenset[str]] = {}
        """Job that was started early → jobs that ran on its slots then."""
        self._queue: dict[str, JobSpec] = {}
        self._running: dict[str, tuple[JobSpec, subprocess.Popen[bytes]]] = {}
        self._ended: dict[str, JobStatus] = {}
        self._submitted = 0

    def submit(self, jobs: Sequence[JobSpec]) -> list[str]:
        """Queue the jobs; start those whose slots are free."""
        ids = []
        for job in jobs:
            self._submitted += 1
            ids.append(f"local-{os.getpid()}-{self._submitted}")
            self._queue[ids[-1]] = job
        self._start_ready()
        return ids

    def submitted_before(self) -> dict[int, str]:
        """Return no jobs: they end with the controller that started them."""
        return {}

    def follow(self) -> None:
        """Prepare nothing."""

    def end_soon(self, ids: Sequence[str]) -> None:
        """Let the jobs that wait for the slots of these start at the next poll."""
        self._ending |= set(ids)

    def states(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """Reap ended processes, start jobs whose slots are free, return the states."""
        for job_id, (_, process) in list(self._running.items()):
            if (code := process.poll()) is not None:
                del self._running[job_id]
                self._kill_group(process)  # a crashed rank must not leave processes behind
                self._ended[job_id] = JobStatus("done" if code == 0 else "failed", code)
        self._start_ready()
        return {job_id: self._state(job_id) for job_id in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        """Send SIGTERM (workers write a checkpoint), then kill the group after a grace period."""
        cancelled = set(ids)
        for job_id in cancelled & self._queue.keys():
            del self._queue[job_id]
            self._ended[job_id] = JobStatus("cancelled")
        running = {i: self._running.pop(i)[1] for i in cancelled & self._running.keys()}
        for process in running.values():
            _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        for job_id, process in running.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            self._kill_group(process)
            self._ended[job_id] = JobStatus("cancelled", process.returncode)
        if not self._running:
            self.close()

    def close(self) -> None:
        """Remove the slots' locks; jobs end with this process."""
        if self._slot_locks is not None:
            shutil.rmtree(self._slot_locks, ignore_errors=True)

    def _state(self, job_id: str) -> JobStatus:
        if job_id in self._queue:
            return JobStatus("pending")
        if job_id in self._running:
            waits = not self._before.get(job_id, frozenset()).isdisjoint(self._running)
            return JobStatus("running", reason=PREPARING if waits else None)
        return self._ended.get(job_id, JobStatus("lost"))

    def _start_ready(self) -> None:
        """Start the jobs whose slots are free, or will be soon."""
        taken = _slots_of(job for job, _ in self._running.values())
        ending = _slots_of(self._running[i][0] for i in self._ending & self._running.keys())
        for job_id, job in list(self._queue.items()):
            slots = _slots_of([job])
            is_free = all(taken[slot] < self._jobs_per_slot for slot in slots)
            # One more job than trains: the third would be early by a whole member.
            soon = self._slot_locks and all(taken[slot] == ending[slot] <= 1 for slot in slots)
            if is_free or (soon and self._has_memory_beside(slots)):
                taken += slots
                del self._queue[job_id]
                self._before[job_id] = frozenset(self._running_on(slots))
                self._running[job_id] = (job, self._start(job))

    def _running_on(self, slots: Counter[int]) -> list[str]:
        """Return the jobs that run on some of these slots."""
        return [
            i for i, (job, _) in self._running.items() if slots.keys() & _slots_of([job]).keys()
        ]

    def _has_memory_beside(self, slots: Counter[int]) -> bool:
        """Return True if memory is free for one more job like the largest on these slots."""
        beside = [resident_bytes(self._running[i][1].pid) for i in self._running_on(slots)]
        free = free_bytes()
        return free is not None and all(
            size is not None and free >= self._early_memory * size for size in beside
        )

    def _start(self, job: JobSpec) -> subprocess.Popen[bytes]:
        command = self._launcher(job.command)
        # Inside a Slurm job this process is not one of its steps: the worker must not see them.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        # Nor the locks of a member whose script runs ai500: that one would wait for itself.
        environment.pop(VARIABLE, None)
        environment |= job.environment
        if self._slot_locks is not None:
            with explaining_write_errors(self._slot_locks):
                self._slot_locks.mkdir(parents=True, exist_ok=True)
            environment[VARIABLE] = str(self._slot_locks)
        with explaining_write_errors(job.log), job.log.open("ab") as log:
            log.write(f"{ATTEMPT_MARK}{job.attempt} of member {job.member}\n".encode())
            log.flush()
            try:
                return subprocess.Popen(
                    [sys.executable, "-S", DIE_WITH_PARENT, str(os.getpid()), *command],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise explained(error, f"cannot start member {job.member}", path=None) from error

    @staticmethod
    def _kill_group(process: subprocess.Popen[bytes]) -> None:
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _slots_of(jobs: Iterable[JobSpec]) -> Counter[int]:
    """Count the jobs on each slot."""
    return Counter(slot for job in jobs for share in job.shares for slot in share.slots)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class LocalKind:
    """Processes on this machine."""

    outlives_controller = False
    controller_places_data = True

    def survey(self, config: Config) -> Cluster | None:
        """Return None: there is this machine only."""
        return None

    def make(self, context: SchedulerContext) -> LocalScheduler:
        """Make the scheduler of one trial."""
        plan = context.plan
        one_process = plan.sharing.mode == "process"
        # On an accelerator a member that prepares would disturb the one that trains, and take
        # its memory; that of a container is not known here.
        is_known = plan.device == "cpu" and plan.launcher == "bare"
        overlaps = is_known and plan.waves > 1 and plan.members_per_accelerator == 1
        return LocalScheduler(
            context.launcher,
            jobs_per_slot=1 if one_process else plan.members_per_accelerator,
            slot_locks=context.trial / "slots" if overlaps else None,
        )

    def preview(self, context: SchedulerContext, jobs: Sequence[JobSpec]) -> list[tuple[str, str]]:
        """Return no scripts, since processes are started directly; check the launcher."""
        launcher, runtime = context.plan.launcher, context.config.container.runtime
        if context.launcher.srun_flags:
            raise setting_error(
                "scheduler.launcher",
                launcher,
                "it needs Slurm to start the container.",
                "Set scheduler.kind = 'slurm', or another launcher.",
            )
        program = runtime[0] if runtime else launcher
        if launcher in RUNTIMES and shutil.which(program) is None:
            raise EnvironmentLacksError(
                f"scheduler.launcher = {launcher!r} starts the program {program!r}, which is not "
                "on this machine.",
                key="scheduler.launcher",
                value=launcher,
                remedy="Install it, name another with container.runtime, or set another launcher.",
            )
        return []


LOCAL = LocalKind()
