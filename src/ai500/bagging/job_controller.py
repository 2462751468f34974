"""Job Controller (V3 §3.3): submit the members, watch them, retry, cancel, collect.

It knows members and records; the scheduler knows jobs. All that it learns is in the run folder,
so another controller can take over where this one stopped.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ai500.bagging.member_views import Collector, MemberView
from ai500.bagging.program import Program
from ai500.core import events
from ai500.jobs.schedulers import (
    ATTEMPT_MARK,
    JobSpec,
    JobStatus,
    Scheduler,
    SchedulerUnavailableError,
)
from ai500.jobs.trial_jobs import ACTIVE, job_spec, known_jobs
from ai500.records import JobRecord, Share, Task, TrainRecord, run_folder
from ai500.records.run_folder import MemberFolder, RunFolder

LOG_TAIL_LINES = 15
TORCHRUN_MARK = "torch/distributed/elastic/"
SAVE_SHARE = 0.05
"""Of the controller's time at most so much goes into writing jobs.json over and over."""

Watch = Callable[[Sequence[MemberView]], None]


class JobController:
    """Runs the members of one trial to their ends."""

    def __init__(
        self,
        run: RunFolder,
        *,
        trial: int,
        program: Program,
        tasks: Sequence[Task],
        shares: Mapping[int, tuple[Share, ...]],
        scheduler: Scheduler,
        python: str,
        log: events.EventLog,
        max_retries: int,
        poll_seconds: float | None,
    ) -> None:
        self._run = run
        self._trial = run.trial(trial)
        self._number = trial
        self._tasks = {task.member: task for task in tasks}
        self._shares = shares
        self._scheduler = scheduler
        self._python = python
        self._log = log
        self._max_retries = max_retries
        self._poll_seconds = poll_seconds or scheduler.poll_seconds
        self._ask_seconds = self._poll_seconds
        self._asked = 0.0
        self._unreachable = False
        self._unsaved = False
        self._saved = 0.0
        self._save_seconds = 0.0
        self._jobs: dict[int, JobRecord] = {}
        self._retries: Counter[int] = Counter()
        self._restarts = Counter(
            event["job"] for event in events.read(run.events) if event["event"] == "job_requeued"
        )
        self._program = program
        self._collector = self._new_collector()
        self.views = {member: MemberView(member) for member in self._tasks}

    def start(self) -> None:
        """Follow what an earlier controller left running, submit the rest."""
        self._scheduler.follow()
        self._take_over()
        todo = [m for m in self._tasks if m not in self._jobs and not self._finished(m)]
        self._submit(todo)

    def run(self, watch: Watch) -> list[int]:
        """Until every member has ended; the members that failed."""
        while True:
            if self._run.cancel_request.exists():
                raise KeyboardInterrupt  # somebody asked for it on another host
            self._poll()
            watch([self.views[member] for member in sorted(self.views)])
            if not self._active():
                break
            time.sleep(self._poll_seconds)
        # A member that was given up may have ended all the same.
        self._collector.collect(self.views, sorted(self.views))
        self._save()
        self._scheduler.close()
        return [member for member in self._tasks if not self._finished(member)]

    def cancel(self) -> None:
        """End all jobs of the trial, and remember it."""
        # Also what was handed over a moment ago and not recorded yet.
        known = {**known_jobs(self._trial, self._scheduler), **self._jobs}
        active = {m: job for m, job in known.items() if job.state in ACTIVE}
        self._scheduler.cancel([job.id for job in active.values()])
        # A new one: Ctrl-C may have struck the old between an event it read and the log.
        self._collector = self._new_collector()
        self._collector.collect(self.views, sorted(self.views))
        for member, job in active.items():
            self._record(member, replace(job, state="cancelled"))
        self._save()

    def leave(self) -> None:
        """Go away; jobs that outlive this process are another controller's to follow."""
        self._scheduler.close()

    def _new_collector(self) -> Collector:
        return Collector(
            self._run,
            trial=self._number,
            members=sorted(self._tasks),
            read_details=self._program.details_reader(self._trial),
        )

    def _active(self) -> dict[int, JobRecord]:
        return {m: job for m, job in self._jobs.items() if job.state in ACTIVE}

    def _finished(self, member: int) -> bool:
        return self._trial.member(member).record.exists()

    def _take_over(self) -> None:
        """Jobs of an earlier controller that still run are followed, not started again."""
        self._collector.collect(self.views, sorted(self.views))
        finished = {member for member in self._tasks if self._finished(member)}
        for member in finished:
            self.views[member].state = "done"
        known = known_jobs(self._trial, self._scheduler)
        for job in known.values():
            self.views[job.member].attempt = max(self.views[job.member].attempt, job.attempt)
            if job.member in finished:
                self._jobs[job.member] = replace(job, state="done")
        waiting = {m: job for m, job in known.items() if m not in finished}
        states = self._scheduler.states([job.id for job in waiting.values()])
        for member, job in waiting.items():
            if states[job.id].state in ACTIVE:
                self._record(member, replace(job, state="pending"), states[job.id])

    def _submit(self, members: Sequence[int]) -> None:
        if not members:
            return
        specs = [self._spec(group) for group in self._processes(members)]
        for spec, job_id in zip(specs, self._scheduler.submit(specs), strict=True):
            for member in spec.members:
                self._jobs[member] = JobRecord(member, job_id, spec.attempt, "pending")
        self._log.emit_all(
            "job_submitted",
            [
                {"trial": self._number, "member": member, "attempt": s.attempt,
                 "job": self._jobs[member].id}
                for s in specs for member in s.members
            ],
        )  # fmt: skip
        self._save()

    def _processes(self, members: Sequence[int]) -> list[tuple[int, ...]]:
        """Those of one process together, without its members that have ended [D11]."""
        found: dict[tuple[int, ...], list[int]] = {}
        for member in members:
            found.setdefault(self._tasks[member].process_members or (member,), []).append(member)
        return [tuple(group) for group in found.values()]

    def _spec(self, group: tuple[int, ...]) -> JobSpec:
        attempt = 1 + max(self.views[member].attempt for member in group)
        for member in group:
            self.views[member].attempt = attempt
            self.views[member].state = "pending"
            together = group if len(group) > 1 else ()
            task = replace(self._tasks[member], process_members=together)
            run_folder.write(self._trial.member(member).task, task)
        return job_spec(
            self._trial,
            members=group,
            attempt=attempt,
            shares=self._shares[group[0]],
            python=self._python,
        )

    def _poll(self) -> None:
        """New events of the members that train, and now and then one question for all jobs.

        A quiet run is asked about less often: it is the scheduler's time, too.
        """
        running = [m for m, job in self._jobs.items() if job.state == "running"]
        self._collector.collect(self.views, self._collector.in_turn(running))
        if any(0 < self.views[m].epochs <= self.views[m].epoch for m in running):
            self._ask_seconds = self._poll_seconds  # it has trained: its job is about to end
        now = time.monotonic()
        if now - self._asked < self._ask_seconds:
            return
        self._asked = now
        slowest = max(self._poll_seconds, self._scheduler.slowest_poll_seconds)
        changed = self._ask()
        self._ask_seconds = self._poll_seconds if changed else min(slowest, 1.2 * self._ask_seconds)

    def _ask(self) -> bool:
        """The states of all jobs in one call; whether any changed."""
        active = self._active()
        try:
            states = self._scheduler.states([job.id for job in active.values()])
        except SchedulerUnavailableError as error:
            if not self._unreachable:
                self._log.emit("scheduler_unreachable", trial=self._number, reason=str(error))
            self._unreachable = True
            return False
        if self._unreachable:
            self._unreachable = False
            self._log.emit("scheduler_reachable", trial=self._number)
        now = {member: states[job.id] for member, job in active.items()}
        self._tell_requeued(active, now)
        changes = {m: status for m, status in now.items() if status.state != active[m].state}
        self._collector.collect(self.views, sorted(changes))
        for member, status in changes.items():
            self._change(member, self._jobs[member], status)
        self._tell(changes)
        for member, status in now.items():
            self.views[member].reason = status.reason
        self._submit([member for member in changes if self._tries_again(member)])
        self._save_now_and_then()
        return bool(changes)

    def _change(self, member: int, job: JobRecord, status: JobStatus) -> None:
        """Take note of a job's new state."""
        state = status.state
        if state not in ACTIVE:
            # The member's record decides: a clean exit without one is no end, and a job that
            # the scheduler has forgotten may well have left one.
            state = "done" if self._finished(member) else "failed" if state == "done" else state
        self._record(member, replace(job, state=state, exit_code=status.exit_code), status)

    def _tell(self, changes: Mapping[int, JobStatus]) -> None:
        """The new states into the log, with one write for all that started, one for the rest."""
        told: dict[str, list[dict[str, object]]] = {
            "job_started": [], "job_ended": []
        }  # fmt: skip
        for member, status in changes.items():
            job = self._jobs[member]
            about = {"trial": self._number, "member": member, "job": job.id}
            if job.state == "running":
                told["job_started"].append(about)
            elif job.state != "pending":
                end = {"state": job.state, "exit_code": job.exit_code, "reason": status.reason}
                told["job_ended"].append({**about, **end})
        for event, many in told.items():
            if many:
                self._log.emit_all(event, many)

    def _tell_requeued(self, before: Mapping[int, JobRecord], now: Mapping[int, JobStatus]) -> None:
        """Jobs that the scheduler put back by itself: they may run again before anybody asks."""
        told: list[dict[str, object]] = []
        for member, status in now.items():
            job = before[member]
            known, restarts = self._restarts[job.id], status.restarts
            if restarts is None:
                restarts = known + (job.state == "running" and status.state == "pending")
            if restarts > known:
                self._restarts[job.id] = restarts
                about = {"trial": self._number, "member": member, "job": job.id}
                told.append({**about, "reason": status.reason})
        if told:
            self._log.emit_all("job_requeued", told)

    def _tries_again(self, member: int) -> bool:
        """Whether the member failed, and has been repeated less often than it may be."""
        failed = self._jobs[member].state in ("failed", "lost")
        if not failed or self._retries[member] >= self._max_retries:
            return False
        self._retries[member] += 1
        return True

    def _record(self, member: int, job: JobRecord, status: JobStatus | None = None) -> None:
        self._jobs[member] = job
        self._unsaved = True
        self.views[member].state = job.state
        self.views[member].reason = status.reason if status else None

    def _save(self) -> None:
        began = time.monotonic()
        run_folder.write(self._trial.jobs, [self._jobs[member] for member in sorted(self._jobs)])
        self._saved = time.monotonic()
        self._save_seconds = self._saved - began
        self._unsaved = False

    def _save_now_and_then(self) -> None:
        """A large ensemble changes with every look; who takes over asks for the states anyway."""
        if self._unsaved and time.monotonic() - self._saved >= self._save_seconds / SAVE_SHARE:
            self._save()


def log_tail(folder: MemberFolder, *, lines: int = LOG_TAIL_LINES) -> str:
    """The end of a member's log, for a person."""
    try:
        text = folder.log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return (
            "error: there is none: the job did not begin, or its node does not see the run folder "
            "(choose one that all nodes see with --out)."
        )
    last_attempt = text.rpartition(ATTEMPT_MARK)[2].splitlines()[1:]
    # A worker that knows what is wrong says so in a line; the ranks that then miss it, and
    # torchrun, add pages that say nothing more.
    if known := [line for line in last_attempt if line.startswith("error: ")]:
        return "\n".join(dict.fromkeys(known))
    said = list(itertools.takewhile(lambda line: TORCHRUN_MARK not in line, last_attempt))
    return "\n".join((said or last_attempt)[-lines:])


def train_record(folder: MemberFolder) -> TrainRecord:
    """What a finished member recorded."""
    return run_folder.read(TrainRecord, folder.record)
