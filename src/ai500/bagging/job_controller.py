"""Job Controller (V3 §3.3): submit the members, watch them, retry, cancel, collect.

It knows members and records; the scheduler knows processes. All that it learns is in the run
folder, so another controller can take over where this one stopped.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ai500
from ai500 import events, rundir, schema
from ai500.bagging.launchers import Launcher
from ai500.bagging.schedulers import ATTEMPT_MARK, JobSpec, JobStatus, Scheduler
from ai500.records import JobRecord, JobState, Progress, Share, Task, TrainRecord
from ai500.rundir import MemberFolder, RunFolder, TrialFolder

LOG_TAIL_LINES = 15
TORCHRUN_MARK = "torch/distributed/elastic/"


@dataclass
class MemberView:
    """A member as the live view shows it."""

    member: int
    state: JobState = "pending"
    attempt: int = 0
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps_per_epoch: int = 0
    loss: float | None = None
    quality: float | None = None
    images_per_second: float | None = None
    started: float | None = None
    """When this attempt began to train, and how many epochs were done then."""
    epochs_at_start: float = 0.0

    @property
    def epochs_done(self) -> float:
        """With the part of the epoch in progress."""
        return self.epoch + (self.step / self.steps_per_epoch if self.steps_per_epoch else 0.0)

    @property
    def seconds_left(self) -> float | None:
        """At the pace since this attempt began; None while there is no pace yet."""
        trained = self.epochs_done - self.epochs_at_start
        if self.state != "running" or self.started is None or trained <= 0:
            return None
        return (self.epochs - self.epochs_done) * (time.time() - self.started) / trained


Watch = Callable[[Sequence[MemberView]], None]


class JobController:
    """Runs the members of one trial to their ends."""

    def __init__(
        self,
        run: RunFolder,
        *,
        trial: int,
        tasks: Sequence[Task],
        shares: Mapping[int, tuple[Share, ...]],
        scheduler: Scheduler,
        launcher: Launcher,
        log: events.EventLog,
        max_retries: int,
        poll_seconds: float,
    ) -> None:
        self._run = run
        self._trial = run.trial(trial)
        self._number = trial
        self._tasks = {task.member: task for task in tasks}
        self._shares = shares
        self._scheduler = scheduler
        self._launcher = launcher
        self._log = log
        self._max_retries = max_retries
        self._poll_seconds = poll_seconds
        self._jobs: dict[int, JobRecord] = {}
        self._retries: Counter[int] = Counter()
        self._collector = Collector(run, trial=trial, members=sorted(self._tasks))
        self.views = {member: MemberView(member) for member in self._tasks}

    def run(self, watch: Watch) -> list[int]:
        """Until every member has ended; the members that failed."""
        self._take_over()
        todo = [m for m in self._tasks if m not in self._jobs and not self._finished(m)]
        self._submit(todo)
        wait = self._poll_seconds
        while True:
            changed = self._poll()
            watch([self.views[member] for member in sorted(self.views)])
            if all(job.state not in ("pending", "running") for job in self._jobs.values()):
                break
            # A quiet run is asked less often: it is the scheduler's time, too.
            slowest = max(self._poll_seconds, self._scheduler.slowest_poll_seconds)
            wait = self._poll_seconds if changed else min(slowest, wait * 1.1)
            time.sleep(wait)
        return [member for member in self._tasks if not self._finished(member)]

    def cancel(self) -> None:
        """End all jobs of the trial, and remember it."""
        active = {m: j for m, j in self._jobs.items() if j.state in ("pending", "running")}
        self._scheduler.cancel([job.id for job in active.values()])
        self._collector.collect(self.views)
        for member, job in active.items():
            self._record(member, replace(job, state="cancelled"))
        self._save()

    def _finished(self, member: int) -> bool:
        return self._trial.member(member).record.exists()

    def _take_over(self) -> None:
        """Jobs of an earlier controller that still run are followed, not started again."""
        self._collector.collect(self.views)
        for member in self._tasks:
            if self._finished(member):
                self.views[member].state = "done"
        if not self._trial.jobs.exists():
            return
        known = rundir.read_all(JobRecord, self._trial.jobs)
        states = self._scheduler.states([job.id for job in known])
        for job in known:
            view = self.views[job.member]
            view.attempt = max(view.attempt, job.attempt)
            if self._finished(job.member):
                self._jobs[job.member] = replace(job, state="done")
            elif states[job.id].state in ("pending", "running"):
                self._jobs[job.member] = job

    def _submit(self, members: Sequence[int]) -> None:
        specs = []
        for member in members:
            view = self.views[member]
            view.attempt += 1
            view.state = "pending"
            specs.append(self._spec(member, attempt=view.attempt))
        for spec, job_id in zip(specs, self._scheduler.submit(specs), strict=True):
            self._log.emit(
                "job_submitted",
                trial=self._number, member=spec.member, attempt=spec.attempt, job=job_id,
            )  # fmt: skip
            self._jobs[spec.member] = JobRecord(spec.member, job_id, spec.attempt, "pending")
        self._save()

    def _spec(self, member: int, *, attempt: int) -> JobSpec:
        folder = self._trial.member(member)
        rundir.write(folder.task, self._tasks[member])
        return JobSpec(
            member=member,
            attempt=attempt,
            command=tuple(self._launcher(worker_command(self._tasks[member], folder))),
            environment=worker_environment(attempt),
            log=folder.log,
            shares=self._shares[member],
        )

    def _poll(self) -> bool:
        """One look at all jobs and all new events."""
        active = {m: j for m, j in self._jobs.items() if j.state in ("pending", "running")}
        states = self._scheduler.states([job.id for job in active.values()])
        changed = self._collector.collect(self.views)
        for member, job in active.items():
            if states[job.id].state != job.state:
                changed = True
                self._change(member, job, states[job.id])
        if changed:
            self._save()
        return changed

    def _change(self, member: int, job: JobRecord, status: JobStatus) -> None:
        state = status.state
        if state == "done" and not self._finished(member):
            state = "failed"  # a clean exit without a record is no end
        self._record(member, replace(job, state=state, exit_code=status.exit_code))
        if state == "running":
            self._log.emit("job_started", trial=self._number, member=member, job=job.id)
            return
        self._log.emit(
            "job_ended",
            trial=self._number, member=member, job=job.id, state=state, exit_code=status.exit_code,
        )  # fmt: skip
        if state in ("failed", "lost") and self._retries[member] < self._max_retries:
            self._retries[member] += 1
            self._submit([member])

    def _record(self, member: int, job: JobRecord) -> None:
        self._jobs[member] = job
        self.views[member].state = job.state

    def _save(self) -> None:
        rundir.write(self._trial.jobs, [self._jobs[member] for member in sorted(self._jobs)])


class Collector:
    """Takes the members' events over into the run's log, each once."""

    def __init__(self, run: RunFolder, *, trial: int, members: Sequence[int]) -> None:
        self._run = run
        self._trial: TrialFolder = run.trial(trial)
        self._followers = {m: events.Follower(self._trial.member(m).events) for m in members}
        self._taken = dict.fromkeys(members, 0)
        for event in events.read(run.events):
            if event.get("trial") == trial and "member_sequence" in event:
                member = event["member"]
                self._taken[member] = max(self._taken[member], event["member_sequence"])

    def collect(self, views: Mapping[int, MemberView]) -> bool:
        """New events into the log and the views; whether there were any."""
        fresh: list[events.Event] = []
        for member, follower in self._followers.items():
            for event in follower.new():
                show(views[member], event)
                if event["sequence"] > self._taken[member]:
                    self._taken[member] = event["sequence"]
                    fresh.append({**event, "member_sequence": event["sequence"]})
            show_progress(views[member], self._trial.member(member))
        if fresh:
            events.append(self._run.events, fresh)
        return bool(fresh)

    def show_all(self, views: Mapping[int, MemberView]) -> None:
        """Everything the members told so far into the views; nothing is written."""
        for member in self._followers:
            folder = self._trial.member(member)
            for event in events.read(folder.events):
                show(views[member], event)
            show_progress(views[member], folder)


def show(view: MemberView, event: events.Event) -> None:
    """An event's part in the live view."""
    kind = event["event"]
    view.attempt = max(view.attempt, event.get("attempt", 0))
    if kind in ("first_batch", "resumed"):
        view.started = event["wall"]
        view.epochs_at_start = event.get("epoch", 0) + (
            event.get("step", 0) / view.steps_per_epoch if view.steps_per_epoch else 0.0
        )
    elif kind == "epoch":
        view.epoch, view.step, view.loss = event["epoch"], 0, event["loss"]
    elif kind == "quality":
        view.quality = event["quality"]


def show_progress(view: MemberView, folder: MemberFolder) -> None:
    """The worker's own last word on where it is."""
    try:
        told = schema.decode(Progress, json.loads(folder.progress.read_text(encoding="utf-8")))
    except (OSError, ValueError, schema.SchemaError):
        return
    view.epoch, view.epochs = told.epoch, told.epochs
    view.step, view.steps_per_epoch = told.step, told.steps_per_epoch
    view.loss = view.loss if told.loss is None else told.loss
    if told.images_per_second is not None:
        view.images_per_second = told.images_per_second


def worker_command(task: Task, folder: MemberFolder) -> list[str]:
    """A plain process for one rank, torchrun for several."""
    worker = ["-m", "ai500.train.worker", str(folder.task)]
    if task.parallel_degree == 1:
        return [sys.executable, *worker]
    return [
        sys.executable, "-m", "torch.distributed.run",
        "--standalone", f"--nproc-per-node={task.parallel_degree}", "--no-python",
        sys.executable, *worker,
    ]  # fmt: skip


def worker_environment(attempt: int) -> dict[str, str]:
    """A source tree that is not installed is found by its workers, too."""
    source = str(Path(ai500.__file__).parents[1])
    inherited = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": f"{source}{os.pathsep}{inherited}" if inherited else source,
        "AI500_ATTEMPT": str(attempt),
        # One thread a process unless the slot has more cores: the worker sets the number itself.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONUNBUFFERED": "1",
    }


def log_tail(folder: MemberFolder, *, lines: int = LOG_TAIL_LINES) -> str:
    """The end of a member's log, for a person."""
    try:
        text = folder.log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "(no log)"
    last_attempt = text.rpartition(ATTEMPT_MARK)[2].splitlines()[1:]
    # A worker that knows what is wrong says so in a line; the ranks that then miss it, and
    # torchrun, add pages that say nothing more.
    if known := [line for line in last_attempt if line.startswith("error: ")]:
        return "\n".join(dict.fromkeys(known))
    said = list(itertools.takewhile(lambda line: TORCHRUN_MARK not in line, last_attempt))
    return "\n".join((said or last_attempt)[-lines:])


def train_record(folder: MemberFolder) -> TrainRecord:
    """What a finished member recorded."""
    return rundir.read(TrainRecord, folder.record)
