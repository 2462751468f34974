"""Config → Profile: one member's job for each precision, through the scheduler of any run.

A temporary run folder under the profile's folder has a plan of one member; its job is started like
any member's, and its task asks for some steps to be profiled.
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
from ai500.config import Config
from ai500.core import __version__, events
from ai500.core.atomic import explaining_write_errors
from ai500.core.errors import AI500Error, EnvironmentLacksError, InputError, JobError
from ai500.core.interrupts import uninterrupted
from ai500.core.randomness import Stream, derive
from ai500.jobs.launchers import Wrap
from ai500.jobs.outage import ask_patiently
from ai500.jobs.schedulers import ACTIVE, Scheduler, load_scheduler
from ai500.jobs.schedulers.local import LocalScheduler
from ai500.jobs.trial_jobs import job_spec, python_of, scheduler_context
from ai500.parallel import placement
from ai500.pipeline import stages as pipeline
from ai500.pipeline.programs import program_of
from ai500.pipeline.stages import Observer, Session
from ai500.profile import counters, operation_counters
from ai500.profile.analysis import precision_profile, with_counters
from ai500.profile.categories import Category
from ai500.profile.record import PrecisionProfile, Profile
from ai500.profile.timeline import Timeline
from ai500.profile.trace import RankTrace, load, read
from ai500.records import Plan, Profiling, Task, run_folder
from ai500.records.profiling import RankCapture, captured_trace, rank_file, total_steps
from ai500.records.run_folder import MemberFolder
from ai500.workloads.class_data import class_source

TRIAL, MEMBER = 1, 0
NEVER_SECONDS = 1e9
"""Interval of checkpoints that is longer than any profile."""


@dataclass(frozen=True, slots=True)
class Request:
    """A configuration to profile, and where the result goes."""

    config: Config
    out: Path
    precisions: tuple[str, ...] = ()
    """Precisions to profile in turn; empty: the configuration's own."""
    steps: int = 10
    counters: bool = False
    run: str | None = None
    """Name of the run whose configuration it is."""

    @property
    def record(self) -> Path:
        """File of the record."""
        return self.out / "profile.json"

    @property
    def timeline(self) -> Path:
        """File with the timeline of all ranks, for the Perfetto UI."""
        return self.out / "timeline.json.gz"

    @property
    def page(self) -> Path:
        """File of the HTML page."""
        return self.out / "profile.html"


def profile(request: Request, observer: Observer) -> Profile:
    """Profile every precision in turn; write the record and the timeline."""
    if request.steps < 1:
        raise InputError(
            f"--steps {request.steps} is too small.",
            key="steps",
            value=request.steps,
            remedy="Profile at least one step.",
        )
    if (kind := request.config.framework.kind) != "pytorch":
        raise InputError(
            f"framework.kind = {kind!r}: torch's profiler sees the reference framework only.",
            key="framework.kind",
            value=kind,
            remedy="Profile it with the tools of its framework, or set framework.kind = 'pytorch'.",
        )
    precisions = request.precisions or (None,)
    configs = [_one_member(request.config, precision) for precision in precisions]
    # A configuration that can't run is refused before any is profiled.
    plans = [pipeline.survey_and_plan(config)[1] for config in configs]
    if program_of(plans[0]) is not ENSEMBLE:
        raise InputError(
            "a search trains another model each round: it has no single step to profile.",
            key="workload",
            value=plans[0].workload,
            remedy="Profile a run of image_classification instead.",
        )
    if request.config.data.path is None:
        class_source(plans[0].workload, plans[0].definition.name)
    _check_folder(request)
    work = request.out / ".work"
    shutil.rmtree(work, ignore_errors=True)
    try:
        with Timeline(request.timeline) as timeline:
            parts = [
                _profile_precision(config, work / str(number), request, observer, timeline)
                for number, config in enumerate(configs)
            ]
    finally:
        shutil.rmtree(work, ignore_errors=True)
        with contextlib.suppress(OSError):
            request.out.rmdir()  # unless this profile or an earlier one is in it
    record = _record(request, plans[0], parts)
    run_folder.write(request.record, record)
    return record


def _one_member(config: Config, precision: str | None) -> Config:
    """Reduce a configuration to a single member, on as many accelerators as it has."""
    if precision is not None:
        config = replace(config, train=replace(config.train, precision=precision))
    degree = pipeline.survey_and_plan(config)[1].parallel_degree
    return replace(
        config,
        run=replace(config.run, trials=1),
        ensemble=replace(config.ensemble, size=1, members_per_accelerator=1),
        parallel=replace(config.parallel, degree=degree),
        system=replace(config.system, scale=degree),
        # A single member has no others to wait for at a barrier.
        slurm=replace(config.slurm, start="array"),
    )


def _check_folder(request: Request) -> None:
    out = request.out
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not request.record.exists())):
        raise InputError(
            f"{out} exists and is not a profile's folder.", path=out, remedy="Choose another --out."
        )
    with explaining_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)


def _profile_precision(
    config: Config, work: Path, request: Request, observer: Observer, timeline: Timeline
) -> tuple[PrecisionProfile, list[RankCapture]]:
    job = _Job(config, work, observer)
    precision = job.plan.hyperparameters.precision
    observer.stage(f"profiling {request.steps} steps in {precision}")
    try:
        job.run(Profiling(steps=request.steps))
        captures, trace_files = job.captured()
    finally:
        job.remove_staged()
    observer.stage(f"reading the traces of {precision}")
    traces = _read_traces(captures, trace_files, precision, timeline)
    if job.plan.device != "cpu" and not all(trace.on_accelerator for trace in traces):
        raise EnvironmentLacksError(
            f"torch's profiler recorded no kernel of device {job.plan.device!r}: it lacks "
            "permission or support (NVIDIA's needs CUPTI), or another profiler is attached."
        )
    part = precision_profile(
        precision, captures, traces, steps=request.steps, parallel=job.plan.parallel
    )
    if request.counters:
        missing = counters.missing_requirement(device=job.plan.device, scheduler=job.plan.scheduler)
        folder = work.with_name(f"{work.name}-counters")
        part = (
            _add_counters(part, traces, config, folder, observer)
            if missing is None
            else replace(part, counters_missing=missing, operations_missing=missing)
        )
        if missing is None:
            folder = work.with_name(f"{work.name}-operations")
            part = _add_operations(part, captures, config, folder, observer)
    return part, captures


def _read_traces(
    captures: Sequence[RankCapture], files: Sequence[Path], precision: str, timeline: Timeline
) -> list[RankTrace]:
    """Read each trace once, for the analysis and for the timeline."""
    traces: list[RankTrace] = []
    zero: int | None = None
    for capture, path in zip(captures, files, strict=True):
        trace_events, base = load(path)
        shift = round(capture.clock_offset_seconds * 1e9)
        traces.append(read(trace_events, base=base, shift=shift))
        zero = traces[0].window[0] if zero is None else zero
        timeline.add(
            trace_events,
            process=f"{precision}: rank {capture.rank} on {capture.host}",
            zero_microseconds=(zero + shift - base) / 1000,
        )
        path.unlink()
    return traces


def _add_counters(
    part: PrecisionProfile,
    traces: Sequence[RankTrace],
    config: Config,
    work: Path,
    observer: Observer,
) -> PrecisionProfile:
    """Run one rank under ncu and add its counters; on failure keep the profile with the reason."""
    observer.stage(f"hardware counters of {part.precision}: about a minute")
    metrics = (counters.INSTRUCTIONS, counters.DRAM, counters.TIME)
    text, failure, _ = _run_under_ncu(config, work, metrics, observer)
    if failure is not None:
        return replace(part, counters_missing=failure)
    times: dict[str, dict[Category, float]] = defaultdict(lambda: defaultdict(float))
    for kernel in (kernel for trace in traces for kernel in trace.kernels):
        if kernel.category is not None:
            times[kernel.name][kernel.category] += kernel.busy
    counted = counters.by_category(counters.parse(text), times)
    if not counted:
        return replace(part, counters_missing="ncu counted no known kernel")
    return with_counters(part, counted)


def _add_operations(
    part: PrecisionProfile,
    captures: Sequence[RankCapture],
    config: Config,
    work: Path,
    observer: Observer,
) -> PrecisionProfile:
    """Count the operations of one rank's step under ncu; on failure keep the reason."""
    observer.stage(f"operations of {part.precision} by hardware counters: about a minute")
    weights = operation_counters.metrics_of(operation_counters.known_metrics())
    if not weights:
        reason = "ncu lists no metrics of operations for this device"
        return replace(part, operations_missing=reason)
    text, failure, samples = _run_under_ncu(config, work, tuple(weights), observer)
    total = None if failure is not None else operation_counters.total_operations(text, weights)
    if total is None:
        reason = failure or "a kernel lacks a counter of operations"
        return replace(part, operations_missing=reason)
    counted = operation_counters.compare(
        total,
        samples=samples * counters.STEPS,
        operations_per_step=captures[0].operations_per_step,
        samples_per_step=captures[0].samples_per_step,
    )
    return replace(part, counted_operations=counted, operations_missing=None)


def _run_under_ncu(
    config: Config, work: Path, metrics: Sequence[str], observer: Observer
) -> tuple[str, str | None, int]:
    """Run one rank under ncu; return its page, a reason of failure, and the samples of a step."""
    log = work / "ncu.csv"
    failure: str | None = None
    samples = 0
    try:
        samples = _run_alone(config, work, counters.command(log, metrics), observer)
    except (AI500Error, OSError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        failure = " ".join([lines[0], *lines[-1:]] if len(lines) > 1 else lines)
    text = log.read_text(errors="replace") if log.exists() else ""
    if failure is None or "==ERROR==" in text:
        failure = counters.refusal(text, metric=metrics[0])
    return text, failure, samples


def _run_alone(config: Config, work: Path, command: tuple[str, ...], observer: Observer) -> int:
    """Run a single rank under a command; return the samples of its step."""
    alone = replace(
        config,
        parallel=replace(config.parallel, degree=1, mode="data", sharded=False),
        system=replace(config.system, scale=1),
    )
    job = _Job(alone, work, observer)
    try:
        job.run(
            Profiling(steps=counters.STEPS, mode="counters"),
            LocalScheduler(Wrap(before=command)),
            longest_seconds=counters.LONGEST_SECONDS,
        )
    finally:
        job.remove_staged()
    return job.plan.global_batch_size


class _Job:
    """The job of one member in a temporary run folder."""

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
        """Run the job; raise JobError with the end of its log if it fails or is too slow."""
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
            if not ids:
                raise JobError(
                    "the scheduler takes no more jobs now: its limit on your jobs is reached.",
                    remedy="Run the command again when some of your jobs have ended.",
                )
            deadline = time.monotonic() + longest_seconds
            patience = 60 * self._config.scheduler.patience_minutes
            while True:
                states = ask_patiently(lambda: scheduler.states(ids), patience_seconds=patience)
                if (status := states[ids[0]]).state not in ACTIVE:
                    break
                if time.monotonic() > deadline:
                    raise JobError(f"the job took longer than {longest_seconds:.0f} s")
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
        seed = derive(self.plan.seed, Stream.TRIAL, TRIAL)
        store = pipeline.open_store(self._session)
        self._store = store.path
        [task] = pipeline.prepare_members(self._session, TRIAL, seed=seed, store=store)
        hyper = task.hyperparameters
        needed = -(-total_steps(profiling.steps) // task.steps_per_epoch)
        return replace(
            task,
            profile=profiling,
            checkpoint_seconds=NEVER_SECONDS,
            # The learning rate is defined for as many steps as are trained.
            hyperparameters=replace(hyper, epochs=max(hyper.epochs, needed)),
        )

    def captured(self) -> tuple[list[RankCapture], list[Path]]:
        """Return the captures and the trace files of the ranks."""
        folder, ranks = self._folder.path, range(self.plan.parallel_degree)
        captures = [run_folder.read(RankCapture, rank_file(folder, rank)) for rank in ranks]
        return captures, [captured_trace(folder, rank) for rank in ranks]

    def remove_staged(self) -> None:
        """Remove the staged data of this node, complete or not; jobs on a cluster remove theirs."""
        if self.plan.stage and load_scheduler(self.plan.scheduler).controller_places_data:
            scratch = placement.scratch_folder(self._run.path, stated=self._config.data.scratch)
            placement.remove(scratch / self._run.trial(TRIAL).path.name)


def _record(
    request: Request, plan: Plan, parts: Sequence[tuple[PrecisionProfile, list[RankCapture]]]
) -> Profile:
    captures = parts[0][1]
    first = captures[0]
    return Profile(
        format=Profile.FORMAT,
        version=__version__,
        workload=plan.workload,
        problem_class=plan.problem_class,
        run=request.run,
        hosts=tuple(dict.fromkeys(capture.host for capture in captures)),
        device=plan.device,
        device_name=first.device_name,
        torch=first.torch,
        parallel_degree=plan.parallel_degree,
        parallel=plan.parallel,
        communication=plan.communication,
        global_batch_size=plan.global_batch_size,
        steps=request.steps,
        precisions=tuple(part for part, _ in parts),
    )
