"""Config → Profile: one member's job for each precision, through the scheduler of any run.

A run folder of its own is made under the profile's folder, with a plan of one member; its job is
started like a member's, and its task says that some steps are profiled.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ai500.bagging.job_controller import log_tail
from ai500.bagging.program import ENSEMBLE
from ai500.bagging.tasks import member_tasks
from ai500.config import Config
from ai500.core import __version__, events
from ai500.core.atomic import explaining_write_errors
from ai500.core.errors import AI500Error, EnvironmentLacksError, InputError, JobError
from ai500.core.interrupts import uninterrupted
from ai500.core.randomness import Stream, derive
from ai500.jobs.launchers import Wrap
from ai500.jobs.schedulers import Scheduler, load_scheduler
from ai500.jobs.schedulers.local import LocalScheduler
from ai500.jobs.trial_jobs import ACTIVE, job_spec, python_of, scheduler_context
from ai500.parallel import placement
from ai500.pipeline import data_stages
from ai500.pipeline import stages as pipeline
from ai500.pipeline.programs import program_of
from ai500.pipeline.session import Observer, Session
from ai500.profile import counters
from ai500.profile.analysis import precision_profile, with_counters
from ai500.profile.categories import Category
from ai500.profile.record import FORMAT, PrecisionProfile, Profile
from ai500.profile.timeline import Timeline
from ai500.profile.trace import RankTrace, load, read
from ai500.records import Plan, Profiling, Task, run_folder
from ai500.records.profiling import RankCapture, captured_trace, rank_file, total_steps
from ai500.records.run_folder import MemberFolder
from ai500.workloads.class_data import class_source

TRIAL, MEMBER = 1, 0
NEVER_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be profiled."""

    config: Config
    out: Path
    precisions: tuple[str, ...] = ()
    """Empty: the configuration's own."""
    steps: int = 10
    counters: bool = False
    run: str | None = None
    """The run it is the configuration of."""

    @property
    def record(self) -> Path:
        """`profile.json`."""
        return self.out / "profile.json"

    @property
    def timeline(self) -> Path:
        """All ranks, for the Perfetto UI."""
        return self.out / "timeline.json.gz"

    @property
    def page(self) -> Path:
        """For a person."""
        return self.out / "profile.html"


def profile(request: Request, observer: Observer) -> Profile:
    """Every precision in turn; the record and the timeline are written, nothing else is left."""
    if request.steps < 1:
        raise InputError(f"--steps {request.steps}: at least one step has to be profiled.")
    wanted = request.precisions or (None,)
    configs = [_one_member(request.config, precision) for precision in wanted]
    plans = [pipeline.make_plan(config)[1] for config in configs]  # refused before anything runs
    if program_of(plans[0]) is not ENSEMBLE:
        raise InputError(
            "a search trains another model each round: there is no step of it to profile. Profile "
            "a run of image_classification instead."
        )
    if request.config.data.path is None:
        class_source(plans[0].workload, plans[0].problem_class)
    _check_folder(request)
    work = request.out / ".work"
    shutil.rmtree(work, ignore_errors=True)
    try:
        with Timeline(request.timeline) as timeline:
            found = [
                _of_precision(config, work / str(number), request, observer, timeline)
                for number, config in enumerate(configs)
            ]
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        with contextlib.suppress(OSError):
            request.out.rmdir()  # unless an earlier profile is in it
        raise
    shutil.rmtree(work, ignore_errors=True)
    made = _record(request, plans[0], found)
    run_folder.write(request.record, made)
    return made


def _one_member(config: Config, precision: str | None) -> Config:
    """The same configuration for a single member, on as many accelerators as it has."""
    if precision is not None:
        config = replace(config, train=replace(config.train, precision=precision))
    degree = pipeline.make_plan(config)[1].parallel_degree
    return replace(
        config,
        run=replace(config.run, trials=1),
        ensemble=replace(config.ensemble, size=1, members_per_accelerator=1),
        parallel=replace(config.parallel, degree=degree),
        system=replace(config.system, scale=degree),
        # Nobody else takes part, so there is nobody to wait for.
        slurm=replace(config.slurm, start="array"),
    )


def _check_folder(request: Request) -> None:
    out = request.out
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not request.record.exists())):
        raise InputError(f"{out} exists and is not a profile's folder. Choose another --out.")
    with explaining_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True, slots=True)
class _Captured:
    """What a job left: in the order of the ranks."""

    captures: list[RankCapture]
    traces: list[Path]


def _of_precision(
    config: Config, work: Path, request: Request, observer: Observer, timeline: Timeline
) -> tuple[PrecisionProfile, list[RankCapture]]:
    job = _Job(config, work, observer)
    precision = job.plan.hyperparameters.precision
    observer.stage(f"profiling {request.steps} steps in {precision}")
    try:
        job.run(Profiling(steps=request.steps))
        captured = job.captured()
    finally:
        job.remove_staged()
    observer.stage(f"reading the traces of {precision}")
    traces = _read_traces(captured, precision, timeline)
    if job.plan.device != "cpu" and not all(trace.on_accelerator for trace in traces):
        raise EnvironmentLacksError(
            f"torch's profiler saw no kernel of device {job.plan.device!r}: it may not watch it "
            "here (NVIDIA's needs CUPTI), or does not know it. Another profiler may hold it."
        )
    found = precision_profile(
        precision,
        captured.captures,
        traces,
        steps=request.steps,
        parallel=job.plan.parallel,
    )
    if request.counters:
        missing = counters.what_is_missing(device=job.plan.device, scheduler=job.plan.scheduler)
        beside = work.with_name(f"{work.name}-counters")
        found = (
            _counted(found, traces, config, beside, observer)
            if missing is None
            else replace(found, counters_missing=missing)
        )
    return found, captured.captures


def _read_traces(captured: _Captured, precision: str, timeline: Timeline) -> list[RankTrace]:
    """Each trace once, into the analysis and into the timeline."""
    traces: list[RankTrace] = []
    zero: int | None = None
    for one, path in zip(captured.captures, captured.traces, strict=True):
        found, base = load(path)
        shift = round(one.clock_offset_seconds * 1e9)
        traces.append(read(found, base=base, shift=shift))
        zero = traces[0].window[0] if zero is None else zero
        timeline.add(
            found,
            process=f"{precision}: rank {one.rank} on {one.host}",
            zero_microseconds=(zero + shift - base) / 1000,
        )
        path.unlink()
    return traces


def _counted(
    found: PrecisionProfile,
    traces: Sequence[RankTrace],
    config: Config,
    work: Path,
    observer: Observer,
) -> PrecisionProfile:
    """One rank alone under ncu, where it is allowed; whatever fails, the profile is kept."""
    observer.stage(f"hardware counters of {found.precision}: a minute or so")
    log = work / "ncu.csv"
    failure: str | None = None
    try:
        _run_under_ncu(config, work, log, observer)
    except (AI500Error, OSError) as error:
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        failure = " ".join([said[0], *said[-1:]] if len(said) > 1 else said)
    text = log.read_text(errors="replace") if log.exists() else ""
    if failure is None or "==ERROR==" in text:
        failure = counters.refusal(text)
    if failure is not None:
        return replace(found, counters_missing=failure)
    times: dict[str, dict[Category, float]] = defaultdict(lambda: defaultdict(float))
    for kernel in (kernel for trace in traces for kernel in trace.kernels):
        if kernel.category is not None:
            times[kernel.name][kernel.category] += kernel.busy
    counted = counters.by_category(counters.parse(text), times)
    if not counted:
        return replace(found, counters_missing="ncu counted no kernel that is known")
    return with_counters(found, counted)


def _run_under_ncu(config: Config, work: Path, log: Path, observer: Observer) -> None:
    alone = replace(
        config,
        parallel=replace(config.parallel, degree=1, mode="data", sharded=False),
        system=replace(config.system, scale=1),
    )
    job = _Job(alone, work, observer)
    try:
        job.run(
            Profiling(steps=counters.STEPS, mode="counters"),
            LocalScheduler(Wrap(before=counters.command(log))),
            longest_seconds=counters.LONGEST_SECONDS,
        )
    finally:
        job.remove_staged()


class _Job:
    """One member's job in a run folder of its own."""

    def __init__(self, config: Config, path: Path, observer: Observer) -> None:
        self._run = pipeline.prepare(config, path)
        self._config = config
        self.plan = run_folder.read(Plan, self._run.plan)
        self._session = Session(
            run=self._run,
            config=config,
            plan=self.plan,
            log=events.EventLog(self._run.events),
            observer=observer,
        )
        self._store: Path | None = None

    @property
    def _folder(self) -> MemberFolder:
        return self._run.trial(TRIAL).member(MEMBER)

    def run(
        self,
        profiling: Profiling,
        scheduler: Scheduler | None = None,
        *,
        longest_seconds: float = math.inf,
    ) -> None:
        """To its end; a JobError with what its log says if that is a bad one, or comes too late."""
        task = self._task(profiling)
        run_folder.write(self._folder.task, task)
        trial, shares = self._run.trial(TRIAL), self.plan.mapping[MEMBER].shares
        spec = job_spec(
            trial, members=(MEMBER,), attempt=1, shares=shares, python=python_of(self._config)
        )
        if scheduler is None:
            context = scheduler_context(
                self._run, self._config, self.plan, trial=TRIAL, store=self._store
            )
            scheduler = load_scheduler(self.plan.scheduler).make(context)
        scheduler.follow()
        ids: list[str] = []
        try:
            ids = scheduler.submit([spec])
            deadline = time.monotonic() + longest_seconds
            while (status := scheduler.states(ids)[ids[0]]).state in ACTIVE:
                if time.monotonic() > deadline:
                    raise JobError(f"it took longer than {longest_seconds:.0f} s")
                time.sleep(scheduler.poll_seconds)
        except BaseException:
            with uninterrupted():
                scheduler.cancel(ids)
            raise
        finally:
            scheduler.close()
        if status.state != "done":
            self._fail(status.exit_code)

    def _fail(self, exit_code: int | None) -> None:
        precision = self.plan.hyperparameters.precision
        text = f"profiling in {precision} failed; its log ends:\n\n{log_tail(self._folder)}"
        if exit_code == EnvironmentLacksError.exit_code:
            raise EnvironmentLacksError(text)
        raise JobError(text)

    def _task(self, profiling: Profiling) -> Task:
        session, trial = self._session, self._run.trial(TRIAL)
        seed = derive(self.plan.seed, Stream.TRIAL, TRIAL)
        store = data_stages.open_store(session)
        self._store = store.path
        bootstraps = data_stages.sample(session, trial, seed=seed)
        placements = data_stages.place(session, trial, store=store, bootstraps=bootstraps)
        [task] = member_tasks(
            self._run,
            data_stages.on_data(self.plan, store),
            trial=TRIAL,
            seed=seed,
            bootstraps=bootstraps,
            placements=placements,
            config=self._config,
            program=ENSEMBLE,
        )
        hyper = task.hyperparameters
        needed = -(-total_steps(profiling.steps) // task.steps_per_epoch)
        return replace(
            task,
            profile=profiling,
            checkpoint_seconds=NEVER_SECONDS,
            # The learning rate is known for as many steps as are trained.
            hyperparameters=replace(hyper, epochs=max(hyper.epochs, needed)),
        )

    def captured(self) -> _Captured:
        """What the ranks left."""
        folder, ranks = self._folder.path, range(self.plan.parallel_degree)
        return _Captured(
            [run_folder.read(RankCapture, rank_file(folder, rank)) for rank in ranks],
            [captured_trace(folder, rank) for rank in ranks],
        )

    def remove_staged(self) -> None:
        """The copy of the data on this node, whole or not; jobs of a cluster remove their own."""
        if self.plan.stage and load_scheduler(self.plan.scheduler).controller_places_data:
            scratch = placement.scratch_folder(self._run.path, stated=self._config.data.scratch)
            placement.remove(scratch / self._run.trial(TRIAL).path.name)


def _record(
    request: Request, plan: Plan, found: Sequence[tuple[PrecisionProfile, list[RankCapture]]]
) -> Profile:
    captures = found[0][1]
    first = captures[0]
    return Profile(
        format=FORMAT,
        version=__version__,
        workload=plan.workload,
        problem_class=plan.problem_class,
        run=request.run,
        hosts=tuple(dict.fromkeys(one.host for one in captures)),
        device=plan.device,
        device_name=first.device_name,
        torch=first.torch,
        parallel_degree=plan.parallel_degree,
        parallel=plan.parallel,
        communication=plan.communication,
        global_batch_size=plan.global_batch_size,
        steps=request.steps,
        precisions=tuple(one for one, _ in found),
    )
