"""A scheduler: members one after another, as processes of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Literal

from ai500.api import Cluster, Config, JobSpec, JobStatus, SchedulerContext


class OneByOne:
    """Three verbs: submit, states, cancel; each for all jobs at once."""

    poll_seconds = slowest_poll_seconds = 0.5

    def __init__(self, context: SchedulerContext) -> None:
        self._launcher = context.launcher
        self._waiting: dict[str, JobSpec] = {}
        self._running: tuple[str, subprocess.Popen[bytes]] | None = None
        self._ended: dict[str, JobStatus] = {}

    def submit(self, jobs: Sequence[JobSpec]) -> list[str]:
        ids = [f"one-{os.getpid()}-{job.member}-{job.attempt}" for job in jobs]
        self._waiting |= dict(zip(ids, jobs, strict=True))
        return ids

    def submitted_before(self) -> dict[int, str]:
        return {}  # jobs end with this process: nothing is left of earlier ones

    def follow(self) -> None: ...

    def states(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        if self._running and (code := self._running[1].poll()) is not None:
            state: Literal["done", "failed"] = "done" if code == 0 else "failed"
            self._ended[self._running[0]] = JobStatus(state, exit_code=code)
            self._running = None
        if self._waiting and not self._running:
            name = next(iter(self._waiting))
            self._running = name, self._start(self._waiting.pop(name))
        return {name: self._state(name) for name in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        for name in self._waiting.keys() & set(ids):
            del self._waiting[name]
            self._ended[name] = JobStatus("cancelled")
        if self._running and self._running[0] in ids:
            name, process = self._running
            process.terminate()  # the member writes a checkpoint
            self._ended[name] = JobStatus("cancelled", exit_code=process.wait())
            self._running = None

    def close(self) -> None: ...

    def _state(self, name: str) -> JobStatus:
        if self._running and self._running[0] == name:
            return JobStatus("running")
        if name in self._waiting:
            return JobStatus("pending", reason="its turn comes")
        return self._ended.get(name, JobStatus("lost"))

    def _start(self, job: JobSpec) -> subprocess.Popen[bytes]:
        with job.log.open("ab") as log:
            return subprocess.Popen(
                self._launcher(job.command),
                env={**os.environ, **job.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


class OneByOneKind:
    """What `scheduler.kind = "one_by_one"` names."""

    outlives_controller = False
    controller_places_data = True

    def survey(self, config: Config) -> Cluster | None:
        return None  # this machine is all there is

    def make(self, context: SchedulerContext) -> OneByOne:
        return OneByOne(context)

    def preview(self, context: SchedulerContext, jobs: Sequence[JobSpec]) -> list[tuple[str, str]]:
        return []  # no scripts


ONE_BY_ONE = OneByOneKind()
