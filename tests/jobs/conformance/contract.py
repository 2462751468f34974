"""Requirements of every scheduler, as tests. A site runs them on its own engine in one file:

    from tests.jobs.conformance.contract import Engine, SchedulerContract

    class TestMine(SchedulerContract):
        @pytest.fixture
        def engine(self) -> Engine:
            return Engine(MY_KIND, "mine", settings={"system.nodes": 1}, folder=SHARED)

The folder has to be visible on this host and on all hosts that run jobs; the settings have to give
a system of at least two CPU slots. Each test starts real jobs on the engine and ends them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ai500.api import JobSpec, JobStatus, Plan, Scheduler, SchedulerKind, SchedulerUnavailableError
from ai500.config import load
from ai500.jobs.trial_jobs import scheduler_context
from ai500.pipeline.planning import make_plan
from ai500.records import System
from ai500.records.run_folder import RunFolder

WORKER = Path(__file__).with_name("worker.py")
WORDS = ("two words", "it's", 'a "quote"', "$HOME", "a;b", "*", "ä")
LONG = "sleep 300"
POLL_SECONDS = 0.2
MACHINE = System(
    hostname="login", operating_system="", kernel="", python="", cpu="", cores=64,
    memory_bytes=None, accelerator=None, accelerators=(), libraries={},
)  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """A kind of scheduler, and where its jobs can run."""

    kind: SchedulerKind
    name: str
    """Name in `scheduler.kind`."""
    settings: Mapping[str, object]
    """Configuration of the runs: at least two CPU slots."""
    folder: Path
    """Folder that this host and all hosts of jobs see."""
    unknown_id: str = "999999"
    """Id of the scheduler's own form that no job has."""
    requeues: bool = False
    """True if it runs a job again that exits as a member does after a checkpoint."""
    outage: Callable[[], AbstractContextManager[None]] | None = None
    """Context in which the engine does not answer; None: it has no such state."""
    patience_seconds: float = 120.0
    """Longest time in which jobs of no work start and end."""


class Trial:
    """A trial whose jobs do what a test orders."""

    def __init__(self, engine: Engine, orders: Sequence[str]) -> None:
        # A blank in the path, to test the quoting.
        self.run = RunFolder(Path(tempfile.mkdtemp(prefix="run of ", dir=engine.folder)))
        settings = {
            "ensemble.size": len(orders), "parallel.degree": 1, "data.stage": False,
            "system.cores_per_slot": 1, "scheduler.kind": engine.name, **engine.settings,
        }  # fmt: skip
        self.engine, self.config = engine, load(overrides=settings)
        cluster = engine.kind.survey(self.config)
        self.plan: Plan = make_plan(self.config, MACHINE, cluster)
        self.folder = self.run.path / "what jobs did"
        self.folder.mkdir()
        for member, order in enumerate(orders):
            (self.folder / f"{member}.order").write_text(order)
            self.run.trial(1).member(member).path.mkdir(parents=True)

    def scheduler(self) -> Scheduler:
        """Make a scheduler, as each controller of the trial does."""
        context = scheduler_context(self.run, self.config, self.plan, trial=1, store=None)
        assert isinstance(self.engine.kind.preview(context, self.jobs()), list)
        scheduler = self.engine.kind.make(context)
        scheduler.follow()
        return scheduler

    def jobs(self) -> list[JobSpec]:
        """Specify a job for each member."""
        return [
            JobSpec(
                members=(entry.member,),
                attempt=1,
                command=(sys.executable, str(WORKER), str(self.folder), *WORDS),
                environment={
                    "AI500_MEMBER": str(entry.member),
                    "AI500_ATTEMPT": "1",
                    "CONFORMANCE": "it's $HOME",
                },
                log=self.run.trial(1).member(entry.member).log,
                shares=entry.shares,
            )
            for entry in self.plan.mapping
        ]

    def events(self, event: str) -> dict[tuple[int, int], dict[str, Any]]:
        """Return what the jobs recorded: (member, attempt) → words, environment, time."""
        files = self.folder.glob(f"*-{event}")
        return {
            (int(file.name.split("-")[0]), int(file.name.split("-")[1])): json.loads(
                file.read_text()
            )
            for file in files
        }

    def until(self, scheduler: Scheduler, ids: Sequence[str], *states: str) -> dict[str, JobStatus]:
        """Poll until each of these jobs has one of these states."""
        deadline = time.monotonic() + self.engine.patience_seconds
        while True:
            now = scheduler.states(ids)
            assert list(now) == list(ids), "an answer for each job, in order"
            if all(status.state in states for status in now.values()):
                return now
            assert time.monotonic() < deadline, f"{now}, not {states}"
            time.sleep(POLL_SECONDS)

    def until_event(self, event: str, count: int) -> None:
        """Wait until so many jobs have recorded it."""
        deadline = time.monotonic() + self.engine.patience_seconds
        while len(self.events(event)) < count:
            assert time.monotonic() < deadline, f"{len(self.events(event))} jobs {event}"
            time.sleep(POLL_SECONDS)


class SchedulerContract:
    """Tests of one scheduler; a subclass has the fixture `engine`."""

    @pytest.fixture
    def start(self, engine: Engine) -> Iterator[Callable[[Sequence[str]], Trial]]:
        """Make trials; cancel what a failed test leaves running."""
        trials: list[Trial] = []

        def make(orders: Sequence[str]) -> Trial:
            trials.append(Trial(engine, orders))
            return trials[-1]

        yield make
        for trial in trials:
            if engine.kind.outlives_controller:
                scheduler = trial.scheduler()
                scheduler.cancel(list(scheduler.submitted_before().values()))

    def test_jobs_get_their_words_environment_and_log(
        self, start: Callable[[Sequence[str]], Trial]
    ) -> None:
        """Words pass unchanged, each job knows its member, output goes to the member's log."""
        trial = start(["exit 0", "exit 3"])
        scheduler = trial.scheduler()
        ids = scheduler.submit(trial.jobs())
        assert len(set(ids)) == len(ids) == 2
        states = trial.until(scheduler, ids, "done", "failed")
        assert [states[i].state for i in ids] == ["done", "failed"]
        assert states[ids[1]].exit_code == 3
        for member in (0, 1):
            did = trial.events("ended")[member, 1]
            assert tuple(did["words"]) == WORDS
            assert did["environment"]["CONFORMANCE"] == "it's $HOME"
            log = trial.run.trial(1).member(member).log.read_text()
            assert log.startswith("=== ai500: attempt 1 of member " + str(member))
            assert f"member {member} says hello" in log
        assert scheduler.states([]) == {}
        scheduler.close()

    def test_a_job_that_nobody_submitted_is_lost(
        self, start: Callable[[Sequence[str]], Trial], engine: Engine
    ) -> None:
        """An id that the engine does not know is lost, not an error."""
        scheduler = start(["exit 0"] * 2).scheduler()
        assert scheduler.states([engine.unknown_id])[engine.unknown_id].state == "lost"
        scheduler.close()

    def test_no_more_jobs_run_than_the_system_has_slots(
        self, start: Callable[[Sequence[str]], Trial]
    ) -> None:
        """Later waves wait for slots; all end in the end."""
        scale = start(["exit 0"] * 2).plan.system_scale
        trial = start(["sleep 1"] * (scale + 1))
        scheduler = trial.scheduler()
        ids = scheduler.submit(trial.jobs())
        assert any(status.state == "pending" for status in scheduler.states(ids).values())
        trial.until(scheduler, ids, "done")
        starts, ends = trial.events("started"), trial.events("ended")
        for job, did in starts.items():
            running = [o for o in starts if starts[o]["at"] <= did["at"] < ends[o]["at"]]
            assert len(running) <= scale, (job, running)
        scheduler.close()

    def test_cancel_stops_running_jobs_and_those_that_wait(
        self, start: Callable[[Sequence[str]], Trial]
    ) -> None:
        """A running job receives SIGTERM and time for its checkpoint; cancel waits for its end."""
        scale = start(["exit 0"] * 2).plan.system_scale
        trial = start([LONG] * (scale + 1))
        scheduler = trial.scheduler()
        ids = scheduler.submit(trial.jobs())
        trial.until_event("started", scale)
        scheduler.cancel(ids)
        assert len(trial.events("stopped")) == scale
        assert len(trial.events("started")) == scale  # none started later
        states = trial.until(scheduler, ids, "cancelled", "lost")
        assert {status.state for status in states.values()} <= {"cancelled", "lost"}
        scheduler.close()

    def test_another_controller_takes_over(
        self, start: Callable[[Sequence[str]], Trial], engine: Engine
    ) -> None:
        """Jobs that outlive their controller are known to the next one, by member."""
        trial = start(["sleep 3", LONG])
        first = trial.scheduler()
        ids = first.submit(trial.jobs())
        trial.until_event("started", 2)
        if not engine.kind.outlives_controller:
            assert first.submitted_before() == {}
            first.cancel(ids)
            return
        first.close()
        second = trial.scheduler()
        assert second.submitted_before() == {0: ids[0], 1: ids[1]}
        trial.until(second, ids[:1], "done")
        assert second.states(ids)[ids[1]].state == "running"
        second.cancel(ids)
        second.close()

    def test_a_member_that_wrote_a_checkpoint_runs_again(
        self, start: Callable[[Sequence[str]], Trial], engine: Engine
    ) -> None:
        """Exit code 75 asks for another attempt: by the engine, or by the controller."""
        trial = start(["checkpoint 75", "exit 0"])
        scheduler = trial.scheduler()
        ids = scheduler.submit(trial.jobs())
        if not engine.requeues:
            states = trial.until(scheduler, ids, "done", "failed")
            assert states[ids[0]] == JobStatus("failed", 75)
            return
        states = trial.until(scheduler, ids, "done")
        assert states[ids[0]].restarts in (1, None)
        assert set(trial.events("ended")) == {(0, 1), (0, 2), (1, 1)}
        scheduler.close()

    def test_an_engine_that_does_not_answer_ends_no_job(
        self, start: Callable[[Sequence[str]], Trial], engine: Engine
    ) -> None:
        """An outage is `SchedulerUnavailableError`; afterwards the jobs are as they were."""
        if engine.outage is None:
            return  # for example processes of this controller
        trial = start(["sleep 5", LONG])
        scheduler = trial.scheduler()
        ids = scheduler.submit(trial.jobs())
        trial.until_event("started", 2)
        trial.until(scheduler, ids, "running")
        with engine.outage(), pytest.raises(SchedulerUnavailableError):
            scheduler.states(ids)
        trial.until(scheduler, ids[:1], "done")
        assert scheduler.states(ids)[ids[1]].state == "running"
        scheduler.cancel(ids)
        scheduler.close()

    def test_intervals_between_polls_are_possible(
        self, start: Callable[[Sequence[str]], Trial]
    ) -> None:
        """The shortest interval is positive, and no longer than the longest."""
        scheduler = start(["exit 0"] * 2).scheduler()
        assert 0 < scheduler.poll_seconds <= scheduler.slowest_poll_seconds
        scheduler.close()
