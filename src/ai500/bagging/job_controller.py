"""Job Controller (V3 §3.3): submit the members, watch them, retry, cancel, collect.

It knows members and records; the scheduler knows jobs. Its state is in the run folder, so that
another controller can take over after this one has stopped.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ai500.bagging.member_reports import ReportFollower
from ai500.bagging.member_views import SUSPENDED, Collector, DetailsReader, MemberView
from ai500.config import Config
from ai500.core import events
from ai500.core.errors import AI500Error, EnvironmentLacksError, RunFolderError
from ai500.core.heartbeat import turn_of
from ai500.core.reading import read_tail
from ai500.core.units import human_seconds
from ai500.jobs.outage import Answer, Outage, ask_patiently
from ai500.jobs.schedulers import (
    ACTIVE,
    ATTEMPT_MARK,
    JobSpec,
    JobStatus,
    Scheduler,
    SchedulerUnavailableError,
    StartsEarly,
)
from ai500.jobs.trial_jobs import job_spec, known_jobs, python_of
from ai500.records import JobRecord, Plan, Task, WorkerExit, run_folder
from ai500.records.run_folder import MemberFolder, RunFolder
from ai500.records.worker_exit import ExitCause, exit_cause
from ai500.workloads.protocol import sample_noun

LOG_TAIL_LINES = 15
LATE_LOG_SECONDS = 60  # NFS caches a file's size for as long, unless it is mounted otherwise
TORCHRUN_MARK = "torch/distributed/elastic/"
PREPARATION_FACTOR = 3.0
"""Longest preparation beside a member that trains, in that of a member alone: both share the cores,
and what is too early costs memory only."""
MAX_SAVE_FRACTION = 0.05
"""Largest fraction of the controller's time that goes into writing jobs.json."""

ShowMembers = Callable[[Sequence[MemberView]], None]


class JobController:
    """Controller of the members of one trial."""

    def __init__(
        self,
        run: RunFolder,
        config: Config,
        plan: Plan,
        *,
        trial: int,
        tasks: Sequence[Task],
        scheduler: Scheduler,
        log: events.EventLog,
        details_reader: Callable[[RunFolder, int], DetailsReader],
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._run = run
        # A process of a deleted run may make the folder again, never this file.
        self._marker = run.state if run.state.exists() else run.path
        self._trial = run.trial(trial)
        self._number = trial
        self._tasks = {task.member: task for task in tasks}
        self._shares = {mapping.member: mapping.shares for mapping in plan.mapping}
        self._scheduler = scheduler
        self._python = python_of(config)
        self._log = log
        self._max_retries = config.scheduler.max_retries
        self._poll_seconds = config.scheduler.poll_seconds or scheduler.poll_seconds
        self._query_seconds = self._poll_seconds
        self._queried = 0.0
        self._outage = Outage(60 * config.scheduler.patience_minutes)
        self._note = note
        self._unsaved = False
        self._saved = 0.0
        self._save_seconds = 0.0
        self._jobs: dict[int, JobRecord] = {}
        self._retries: Counter[int] = Counter()
        self._suspended: set[int] = set()
        self._postponed: list[int] = []
        """Members that the scheduler had no room for."""
        self._submitted = 0.0
        self._room = False
        """True if a job has ended since the scheduler had no room."""
        self._restarts = Counter(
            event["job"]
            for event in events.read_checked(run.events)
            if event["event"] == "job_requeued"
        )
        self._reports: ReportFollower | None = None
        if config.scheduler.follow == "events":
            overdue_seconds = 60 * config.scheduler.overdue_minutes
            self._reports = ReportFollower(self._trial, overdue_seconds=overdue_seconds)
        self._details_reader = details_reader
        self._collector = self._new_collector()
        noun = sample_noun(plan.workload)
        self.views = {member: MemberView(member, sample_noun=noun) for member in self._tasks}

    def start(self) -> None:
        """Follow the jobs that an earlier controller left running, and submit the rest."""
        self._ask(self._scheduler.follow)
        self._take_over()
        self._submit([m for m in self._tasks if m not in self._jobs and not self._finished(m)])

    def run(self, show: ShowMembers) -> list[int]:
        """Poll until every member has ended. Return the members that failed."""
        try:
            self._poll_until_ended(show)
        except (OSError, AI500Error):
            self._require_folder()  # the cause, if it was deleted
            raise
        self._require_folder()  # members of a deleted run fail
        # A member whose job was reported lost may have finished nevertheless.
        self._collector.collect(self.views, sorted(self.views))
        done = [member for member, job in sorted(self._jobs.items()) if job.state == "done"]
        self._collector.await_ends(self.views, done, seconds=LATE_LOG_SECONDS)
        self._save()
        self._scheduler.close()
        return [member for member in self._tasks if not self._finished(member)]

    def _poll_until_ended(self, show: ShowMembers) -> None:
        while True:
            if self._run.cancel_request.exists():
                raise KeyboardInterrupt  # `ai500 cancel` on another host
            self._require_folder()
            self._poll()
            show([self.views[member] for member in sorted(self.views)])
            if not self._active() and not self._postponed:
                return
            time.sleep(self._poll_seconds)

    def _require_folder(self) -> None:
        if not self._marker.exists():
            raise RunFolderError(
                f"{self._run.path} was deleted while its members trained.",
                path=self._run.path,
                remedy="Start a new run; end its jobs that a cluster still runs by scancel.",
            )

    def cancel(self) -> None:
        """Cancel all jobs of the trial, and record it."""
        # The scheduler also knows jobs that were submitted a moment ago and not recorded yet.
        known = {**self._known_jobs(), **self._jobs}
        active = {m: job for m, job in known.items() if job.state in ACTIVE}
        self._scheduler.cancel([job.id for job in active.values()])
        # Ctrl-C may have interrupted the old collector between reading and logging an event.
        self._collector = self._new_collector()
        self._collector.collect(self.views, sorted(self.views))
        for member, job in active.items():
            self._record(member, replace(job, state="cancelled"))
        self._save()

    def detach(self) -> None:
        """Disconnect from the scheduler; another controller can follow jobs that still run."""
        self._scheduler.close()

    def _new_collector(self) -> Collector:
        return Collector(
            self._run,
            trial=self._number,
            members=sorted(self._tasks),
            read_details=self._details_reader(self._run, self._number),
        )

    def _active(self) -> dict[int, JobRecord]:
        return {m: job for m, job in self._jobs.items() if job.state in ACTIVE}

    def _finished(self, member: int) -> bool:
        return self._trial.member(member).record.exists()

    def _take_over(self) -> None:
        """Follow the jobs of an earlier controller that still run."""
        self._collector.collect(self.views, sorted(self.views))
        finished = {member for member in self._tasks if self._finished(member)}
        for member in finished:
            self.views[member].state = "done"
        known = self._known_jobs()
        for job in known.values():
            self.views[job.member].attempt = max(self.views[job.member].attempt, job.attempt)
            if job.member in finished:
                self._jobs[job.member] = replace(job, state="done")
        waiting = {m: job for m, job in known.items() if m not in finished}
        states = self._ask(lambda: self._scheduler.states([job.id for job in waiting.values()]))
        for member, job in waiting.items():
            if states[job.id].state in ACTIVE:
                self._record(member, replace(job, state="pending"), states[job.id])

    def _known_jobs(self) -> dict[int, JobRecord]:
        return self._ask(lambda: known_jobs(self._trial, self._scheduler, members=self._tasks))

    def _ask(self, query: Callable[[], Answer]) -> Answer:
        """Return the scheduler's answer; wait for it as long as the user's patience lasts."""
        return ask_patiently(
            query,
            patience_seconds=self._outage.patience_seconds,
            on_outage=lambda reason: self._note(f"waiting for the scheduler: {reason}"),
        )

    def _submit(self, members: Sequence[int]) -> None:
        if not members:
            return
        specs = [self._spec(group) for group in self._processes(members)]
        ids = self._scheduler.submit(specs)
        self._postpone([member for spec in specs[len(ids) :] for member in spec.members])
        specs = specs[: len(ids)]
        for spec, job_id in zip(specs, ids, strict=True):
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

    def _postpone(self, members: Sequence[int]) -> None:
        """Keep members for which the scheduler has no room until it may have some."""
        self._postponed += members
        self._submitted = time.monotonic()
        for member in members:
            view = self.views[member]
            view.attempt -= 1  # this attempt has not begun
            view.reason = "room in the scheduler's queue"

    def _submit_postponed(self) -> None:
        """Submit members that were postponed: after the end of a job, or now and then."""
        waited = time.monotonic() - self._submitted
        if self._postponed and (self._room or waited >= self._scheduler.slowest_poll_seconds):
            members, self._postponed, self._room = self._postponed, [], False
            self._submit(members)

    def _processes(self, members: Sequence[int]) -> list[tuple[int, ...]]:
        """Group members that share a process, without those that have ended [D11]."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for member in members:
            groups.setdefault(self._tasks[member].process_members or (member,), []).append(member)
        return [tuple(group) for group in groups.values()]

    def _spec(self, group: tuple[int, ...]) -> JobSpec:
        attempt = 1 + max(self.views[member].attempt for member in group)
        for member in group:
            self.views[member].attempt = attempt
            self.views[member].state = "pending"
            process_members = group if len(group) > 1 else ()
            task = replace(self._tasks[member], process_members=process_members)
            run_folder.write(self._trial.member(member).task, task)
        return job_spec(
            self._trial,
            members=group,
            attempt=attempt,
            shares=self._shares[group[0]],
            python=self._python,
            reports=self._reports is not None,
        )

    def _poll(self) -> None:
        """Collect the events of running members, and query the scheduler when it is due.

        While nothing changes the interval between queries grows, to spare the scheduler.
        """
        running = [m for m, job in self._jobs.items() if job.state == "running"]
        turn = self._collector.in_turn(running)
        self._collector.collect(self.views, turn)
        if self._reports is not None and not self._take_reports(self._reports, turn):
            return
        self._announce_ends(turn)
        if any(0 < self.views[m].epochs <= self.views[m].epoch for m in running):
            self._query_seconds = self._poll_seconds  # trained: its job is about to end
        now = time.monotonic()
        if now - self._queried < self._query_seconds:
            return
        self._queried = now
        slowest = max(self._poll_seconds, self._scheduler.slowest_poll_seconds)
        changed = self._query()
        self._query_seconds = (
            self._poll_seconds if changed else min(slowest, 1.2 * self._query_seconds)
        )

    def _announce_ends(self, running: Sequence[int]) -> None:
        """Let the scheduler start the next members while these still train."""
        if not isinstance(self._scheduler, StartsEarly):
            return
        preparations = [
            seconds
            for view in self.views.values()
            if (seconds := view.preparation_seconds) is not None
        ]
        if preparations:
            # The shortest: that of a member that waited for its slots is longer.
            lead = PREPARATION_FACTOR * min(preparations)
            soon = [m for m in running if (left := self.views[m].seconds_left) is not None
                    and left <= lead]  # fmt: skip
            self._scheduler.end_soon([self._jobs[member].id for member in soon])

    def _query(self) -> bool:
        """Query the states of all jobs in one call. Return True if any changed."""
        active = self._active()
        try:
            states = self._scheduler.states([job.id for job in active.values()])
        except (SchedulerUnavailableError, EnvironmentLacksError) as error:
            self._note_outage(error)
            return self._note_finished(active)
        self._note_answer()
        now = {member: states[job.id] for member, job in active.items()}
        if self._reports is not None:
            self._reports.answered(now)
        self._log_suspended(now)
        return self._take_states(active, now)

    def _take_reports(self, reports: ReportFollower, running: Sequence[int]) -> bool:
        """Take the states that members reported. Return True if the scheduler has to be asked."""
        started, ended = reports.new_states(self._active())
        self._take_states(self._active(), started)
        self._take_states(self._active(), ended)
        waiting = [m for m, job in self._active().items() if job.state == "pending"]
        return reports.is_due(running, waiting=waiting)

    def _take_states(self, active: Mapping[int, JobRecord], now: Mapping[int, JobStatus]) -> bool:
        """Record the present states of these jobs, and submit retries. Return True for any new."""
        self._log_requeued(active, now)
        changes = {m: status for m, status in now.items() if status.state != active[m].state}
        self._collector.collect(self.views, sorted(changes))
        for member, status in changes.items():
            self._change(member, self._jobs[member], status)
        self._log_changes(changes)
        for member, status in now.items():
            if status.state in ACTIVE:
                self.views[member].reason = status.reason
        self._submit([member for member in changes if self._take_retry(member)])
        self._room |= any(status.state not in ACTIVE for status in changes.values())
        self._submit_postponed()
        self._save_if_due()
        return bool(changes)

    def _note_outage(self, error: SchedulerUnavailableError | EnvironmentLacksError) -> None:
        """Log that the scheduler does not answer; raise once the user's patience is used up."""
        if self._outage.note(error):
            self._log.emit("scheduler_unreachable", trial=self._number, reason=str(error))
            patience = human_seconds(self._outage.patience_seconds)
            self._note(f"the scheduler does not answer; asking again for {patience}: {error}")

    def _note_finished(self, active: Mapping[int, JobRecord]) -> bool:
        """Take members with a record as done while the scheduler does not answer."""
        finished = [member for member in active if self._finished(member)]
        self._collector.collect(self.views, finished)
        done = JobStatus("done")
        for member in finished:
            self._change(member, active[member], done)
        self._log_changes(dict.fromkeys(finished, done))
        return bool(finished)

    def _note_answer(self) -> None:
        """Log that the scheduler answers again."""
        if (seconds := self._outage.end()) is not None:
            self._log.emit("scheduler_reachable", trial=self._number, seconds=seconds)
            self._note(f"the scheduler answers again, after {human_seconds(seconds)}")

    def _change(self, member: int, job: JobRecord, status: JobStatus) -> None:
        """Record a job's new state."""
        state = status.state
        if state not in ACTIVE:
            # The member's record decides: a clean exit without a record is a failure, and a job
            # that the scheduler no longer knows may have left one.
            state = "done" if self._finished(member) else "failed" if state == "done" else state
        job = replace(job, state=state, exit_code=status.exit_code)
        if state in ("failed", "lost"):
            job = replace(job, cause=self._cause(member, job, status))
        if state == "done":
            _remove_files_of_running(self._trial.member(member))
        self._record(member, job, status)

    def _cause(self, member: int, job: JobRecord, status: JobStatus) -> ExitCause | None:
        """Return why a job failed, by the scheduler and by the agents of its nodes."""
        files = self._trial.member(member).exits()
        exits = [run_folder.read(WorkerExit, file) for file in files]
        current = [end for end in exits if end.attempt == job.attempt]
        return exit_cause(status.exit_code, status.reason, current)

    def _log_changes(self, changes: Mapping[int, JobStatus]) -> None:
        """Log the new states, with one write for all started jobs and one for all ended ones."""
        started: list[dict[str, object]] = []
        ended: list[dict[str, object]] = []
        for member, status in changes.items():
            job = self._jobs[member]
            fields = {"trial": self._number, "member": member, "job": job.id}
            if job.state == "running":
                started.append(fields)
            elif job.state != "pending":
                end = {"state": job.state, "exit_code": job.exit_code, "reason": status.reason}
                ended.append({**fields, **end, "cause": job.cause})
        if started:
            self._log.emit_all("job_started", started)
        if ended:
            self._log.emit_all("job_ended", ended)

    def _log_requeued(self, before: Mapping[int, JobRecord], now: Mapping[int, JobStatus]) -> None:
        """Log jobs that the scheduler requeued; they may run again before the next query."""
        requeued: list[dict[str, object]] = []
        for member, status in now.items():
            job = before[member]
            known, restarts = self._restarts[job.id], status.restarts
            if restarts is None:
                restarts = known + (job.state == "running" and status.state == "pending")
            if restarts > known:
                self._restarts[job.id] = restarts
                fields = {"trial": self._number, "member": member, "job": job.id}
                requeued.append({**fields, "reason": status.reason})
        if requeued:
            self._log.emit_all("job_requeued", requeued)

    def _log_suspended(self, now: Mapping[int, JobStatus]) -> None:
        """Log members whose jobs are suspended, or run again: the time counts in the window."""
        suspended = {member for member, status in now.items() if status.reason in SUSPENDED}
        ended = self._suspended - suspended
        for kind, members in (
            ("job_suspended", suspended - self._suspended),
            ("job_continued", ended & now.keys()),
        ):
            if members:
                fields = [
                    {"trial": self._number, "member": member, "job": self._jobs[member].id}
                    for member in sorted(members)
                ]
                self._log.emit_all(kind, fields)
        self._suspended = suspended

    def _take_retry(self, member: int) -> bool:
        """Return True if the member failed and has a retry left, which this call uses up.

        A preempted member is submitted again in any case.
        """
        job = self._jobs[member]
        if job.state not in ("failed", "lost"):
            return False
        if job.cause == "preempted":
            return True  # the site's decision, not a failure of the member
        if self._retries[member] >= self._max_retries:
            return False
        self._retries[member] += 1
        return True

    def _record(self, member: int, job: JobRecord, status: JobStatus | None = None) -> None:
        self._jobs[member] = job
        self._unsaved = True
        if job.state == "running" and self.views[member].state != "running":
            self.views[member].launched = time.time()
        self.views[member].state = job.state
        self.views[member].reason = job.end or (status.reason if status else None)

    def _save(self) -> None:
        if not self._run.path.exists():
            return  # deleted: do not make it again
        began = time.monotonic()
        run_folder.write(self._trial.jobs, [self._jobs[member] for member in sorted(self._jobs)])
        self._saved = time.monotonic()
        self._save_seconds = self._saved - began
        self._unsaved = False

    def _save_if_due(self) -> None:
        """Write jobs.json unless that would take too much time; a successor queries the states."""
        if (
            self._unsaved
            and time.monotonic() - self._saved >= self._save_seconds / MAX_SAVE_FRACTION
        ):
            self._save()


def _remove_files_of_running(folder: MemberFolder) -> None:
    """Remove the files of a running member that has ended.

    Once a copy has waited for the lock, a worker that it replaced may sleep: it learns from the
    lock that it was replaced, and would train on without.
    """
    kept = folder.lock if turn_of(folder.lock).exists() else None
    with contextlib.suppress(OSError):
        for file in folder.of_running:
            if file != kept:
                file.unlink(missing_ok=True)


def log_tail(folder: MemberFolder, *, lines: int = LOG_TAIL_LINES) -> str:
    """Return the end of a member's log: the errors of its last attempt, else its last lines."""
    attempts = [_last_attempt(log) for log in folder.logs() if log.exists()]
    if not attempts:
        return (
            "error: there is no log: the job did not start, or its node does not see the run "
            "folder (choose one that all nodes see with --out)."
        )
    # A worker reports a known error in one line; the tracebacks that other ranks and torchrun
    # print afterwards add nothing.
    if errors := [line for attempt in attempts for line in attempt if line.startswith("error: ")]:
        return "\n".join(dict.fromkeys(errors))
    last_attempt = attempts[0]
    own = list(itertools.takewhile(lambda line: TORCHRUN_MARK not in line, last_attempt))
    return "\n".join((own or last_attempt)[-lines:])


def _last_attempt(log: Path) -> list[str]:
    """Return the lines that the last attempt wrote to a log."""
    try:
        return read_tail(log).rpartition(ATTEMPT_MARK)[2].splitlines()[1:]
    except OSError:
        return []
