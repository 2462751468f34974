"""Work of a member, read from its run: steps, gradients, evaluation, data, quality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median

import numpy as np

from ai500 import config as configuration
from ai500.core import events, schema
from ai500.core.errors import InputError
from ai500.core.shell import quoted
from ai500.metrics.quality import Target, target_of
from ai500.pipeline.programs import program_of
from ai500.profile.record import PrecisionProfile, Profile
from ai500.projection.activations import Activations
from ai500.projection.activations import read as read_activations
from ai500.projection.quality_curve import QualityCurve, read_curve
from ai500.projection.stragglers import Stragglers, fit_epochs, fit_steps
from ai500.projection.timeline import first_bucket
from ai500.records import Plan, Score, TrainRecord, run_folder
from ai500.records.fields import sample_bytes
from ai500.records.run_folder import RunFolder, TrialFolder
from ai500.records.step_times import StepTimes
from ai500.roofline.place_run import KERNEL_PRECISION
from ai500.roofline.records import RunPlacement, ceilings, peak_of

BUCKET_BYTES = 25 * 2**20
"""Size of DistributedDataParallel's buckets."""
STATE_COPIES = {"sgd": 2, "adagrad": 2, "lars": 2}
"""Optimizer → weights and state in a checkpoint, in copies of the weights; others: 3 (Adam)."""
BACKWARD_SHARE = 2 / 3
"""Share of a step's operations after the forward pass: gradients of weights and of inputs.

The backward pass of a convolution or a linear layer is two products of the forward's size."""


@dataclass(frozen=True, slots=True)
class Application:
    """One member's work, and what its run measured."""

    run: str
    workload: str
    problem_class: str
    precision: str
    kernel_precision: str
    accelerator: str
    """Device that the run trained on."""
    ceiling_flops: float | None
    """Measured ceiling of that device in this precision (`ai500 roofline --run`); None: unknown."""
    peak_flops: float | None
    """Theoretical peak of that device in this precision, from the same file; None: unknown."""
    batch_size: int
    """Images of one accelerator in a step."""
    step_seconds: float
    """Computation of a step of `batch_size` samples on one accelerator."""
    steps_by_batch: tuple[tuple[int, float], ...]
    """Images of a step and its seconds, ascending: of this run, and of others like it."""
    stragglers: Stragglers
    steps_basis: str
    gradients_ready: float
    """Share of a step's computation before the first bucket of gradients is ready."""
    overlap_basis: str
    evaluation_seconds: float
    """One evaluation, on `run_data_degree` accelerators."""
    run_data_degree: int
    evaluations: int
    epochs: int
    samples_per_epoch: int
    gradient_bytes: float
    """FP32 gradients of all members of a process."""
    buckets: int
    checkpoint_bytes: float
    checkpoint_interval_seconds: float
    """Seconds between checkpoints of the run's configuration."""
    staged: bool
    """True: members read a copy on their node, False: the shared file system."""
    train_samples: int
    validation_samples: int
    sample_bytes: int
    operations_per_sample: float
    update_operations: float
    members_per_accelerator: int
    mode: str
    wire_precision: str
    sharded: bool
    accumulation: int
    """Passes over parts of a batch before one exchange of gradients."""
    run_members: int
    run_degree: int
    quality: QualityCurve
    target: Target
    run_flops: float
    run_seconds: float
    activations: Activations | None = None
    """Exchange among the ranks of a divided model, from a run of that kind; None: not known."""


def read_all(path: Path, others: Sequence[Path], *, activations: Path | None = None) -> Application:
    """Read a run, other batches' step times from runs like it, and a divided model's bytes."""
    application = read(path)
    if activations is not None:
        application = with_activations(application, activations)
    alike = ("workload", "problem_class", "precision", "accelerator", "members_per_accelerator")
    steps = dict(application.steps_by_batch)
    for other in map(read, others):
        for name in alike:
            if getattr(other, name) != getattr(application, name):
                raise InputError(
                    f"{other.run} has {name} {getattr(other, name)}, {application.run} has "
                    f"{getattr(application, name)}: their step times don't belong together.",
                    key="--also",
                    value=other.run,
                )
        steps |= dict(other.steps_by_batch)
    return replace(application, steps_by_batch=tuple(sorted(steps.items())))


def with_activations(application: Application, path: Path) -> Application:
    """Add the activations that a divided model's ranks exchanged in a run of the same class."""
    plan = run_folder.read(Plan, RunFolder.open(path).plan)
    measured = (plan.workload, plan.problem_class)
    own = (application.workload, application.problem_class)
    if measured != own:
        raise InputError(
            f"{path} is of {', '.join(measured)}; {application.run} is of {', '.join(own)}.",
            key="--activations",
            value=path,
        )
    return replace(application, activations=read_activations(path, plan))


def step_of_batch(application: Application, batch: int) -> float:
    """Return the seconds of a step of so many samples on one accelerator.

    Linear between measured batches; beyond them in proportion to the samples.
    """
    batches, seconds = zip(*application.steps_by_batch, strict=True)
    if not batches[0] <= batch <= batches[-1]:
        nearest = 0 if batch < batches[0] else -1
        return float(seconds[nearest] * batch / batches[nearest])
    return float(np.interp(batch, batches, seconds))


def read(path: Path) -> Application:
    """Read a finished run of an ensemble."""
    folder = RunFolder.open(path)
    plan = run_folder.read(Plan, folder.plan)
    if not program_of(plan).trains_class_model:
        raise InputError(
            f"{path} is a search: its models differ, so no member stands for the others.",
            path=path,
            remedy="Project an ensemble's run.",
        )
    if not folder.score.exists():
        raise InputError(
            f"{path} has no score: it is not finished.",
            path=path,
            remedy=f"`ai500 resume {quoted(path)}` finishes it.",
        )
    _check_parallel(plan, path)
    score = run_folder.read(Score, folder.score)
    if score.flops is None or plan.operations is None:
        raise InputError(
            f"{path}: its operations were not counted, so there are no FLOPS to project.",
            path=path,
            key="framework.operations",
            remedy="Run it with framework.operations.",
        )
    complete = [trial for trial in score.trials if trial.complete]
    trials = [folder.trial(trial.trial) for trial in complete]
    times = _times(trials, plan)
    record = run_folder.read(TrainRecord, trials[0].member(0).record)
    measured = _step(folder, plan, times.epochs)
    batch = plan.hyperparameters.batch_size * plan.hyperparameters.accumulation
    shared = plan.members_per_accelerator
    parameters = plan.operations.parameters
    kernel = KERNEL_PRECISION[plan.hyperparameters.precision]
    ceiling, peak = _ceiling(folder, kernel, cores=len(plan.nodes[0].slots[0].cores))
    return Application(
        run=path.name,
        workload=plan.workload,
        problem_class=plan.problem_class,
        precision=plan.hyperparameters.precision,
        kernel_precision=kernel,
        accelerator=record.device_name,
        ceiling_flops=ceiling,
        peak_flops=peak,
        batch_size=batch,
        step_seconds=measured.computation,
        steps_by_batch=((batch, measured.computation),),
        stragglers=times.stragglers(devices=plan.parallel.data_degree),
        steps_basis=measured.basis,
        gradients_ready=measured.gradients_ready,
        overlap_basis=measured.overlap_basis,
        evaluation_seconds=median(times.evaluations) if times.evaluations else 0.0,
        run_data_degree=plan.parallel.data_degree,
        evaluations=evaluations_of(plan),
        epochs=plan.hyperparameters.epochs,
        samples_per_epoch=plan.steps_per_epoch * plan.global_batch_size,
        gradient_bytes=4.0 * parameters * shared,
        buckets=measured.buckets,
        checkpoint_bytes=4.0
        * parameters
        * shared
        * STATE_COPIES.get(plan.hyperparameters.optimizer, 3),
        checkpoint_interval_seconds=60 * configuration.load(folder.config).train.checkpoint_minutes,
        staged=plan.stage,
        train_samples=plan.definition.train_samples,
        validation_samples=plan.definition.validation_samples,
        sample_bytes=sample_bytes(plan.definition.fields),
        operations_per_sample=float(plan.operations.per_sample),
        update_operations=float(plan.operations.update_per_step),
        members_per_accelerator=shared,
        mode=plan.communication.mode,
        wire_precision=plan.communication.precision,
        sharded=plan.parallel.sharded,
        accumulation=plan.hyperparameters.accumulation,
        run_members=plan.ensemble_size,
        run_degree=plan.parallel_degree,
        quality=read_curve(folder, plan, complete),
        target=target_of(plan),
        run_flops=score.flops,
        run_seconds=score.seconds,
    )


def evaluations_of(plan: Plan) -> int:
    """Return the number of evaluations of a member."""
    return math.ceil(plan.hyperparameters.epochs / plan.hyperparameters.evaluate_every_epochs)


def _check_parallel(plan: Plan, path: Path) -> None:
    parallel = plan.parallel
    if parallel.tensor_degree * parallel.pipeline_degree > 1:
        raise InputError(
            f"{path} divides its model (tensor {parallel.tensor_degree}, pipeline "
            f"{parallel.pipeline_degree}): computation and exchange of activations were not "
            "measured apart.",
            path=path,
            key="parallel.mode",
            remedy=f"Project a run with data parallelism, with --activations {path}.",
        )


@dataclass(frozen=True, slots=True)
class _Times:
    """Times that the members of a run logged."""

    epochs: list[float] = field(default_factory=list)
    """Seconds per step of each epoch of each member."""
    evaluations: list[float] = field(default_factory=list)
    steps: list[StepTimes | None] = field(default_factory=list)
    """Step times of the same epochs; None: not measured."""
    member_means: list[float] = field(default_factory=list)
    """Seconds per step of each member."""

    def stragglers(self, *, devices: int) -> Stragglers:
        """Fit to single steps where every epoch has them, else to the epochs' means."""
        steps = [step for step in self.steps if step is not None]
        if len(steps) == len(self.steps):
            return fit_steps(steps, devices=devices, member_means=self.member_means)
        return fit_epochs(self.epochs, member_means=self.member_means)


def _times(trials: Sequence[TrialFolder], plan: Plan) -> _Times:
    """Read the times of every member's epochs, evaluations and steps."""
    times = _Times()
    for trial in trials:
        for member in range(plan.ensemble_size):
            log = trial.member(member).events
            begin = None
            seen = 0
            first = len(times.epochs)
            for event in events.read(log):
                now = float(event["monotonic"])
                if event["event"] == "epoch" and begin is not None:
                    seen += 1
                    # The first epoch warms caches and clocks.
                    if seen > 1 or plan.hyperparameters.epochs < 3:
                        times.epochs.append((now - begin) / plan.steps_per_epoch)
                        times.steps.append(_step_times(event, log))
                if event["event"] == "quality" and begin is not None:
                    times.evaluations.append(now - begin)
                begin = now if event["event"] in ("first_batch", "epoch", "quality") else None
            if times.epochs[first:]:
                times.member_means.append(fmean(times.epochs[first:]))
    if not times.epochs:
        raise InputError(
            "no member logged an uninterrupted epoch: the run has no step times.",
            remedy="Project a run that was not interrupted in each epoch.",
        )
    return times


def _step_times(event: events.Event, log: Path) -> StepTimes | None:
    """Read the step times of an epoch's event; None: they were not measured."""
    value = event.get("step_times")
    if value is None:
        return None
    try:
        read_times = schema.decode(StepTimes, value)
    except schema.SchemaError as error:
        raise InputError(
            f"{log}: step_times of epoch {event.get('epoch')}: {error}", path=log
        ) from error
    ascending = list(read_times.quantiles)
    if read_times.count < 1 or ascending[0] <= 0 or ascending != sorted(ascending):
        raise InputError(
            f"{log}: step_times of epoch {event.get('epoch')} are no ascending, positive times.",
            path=log,
        )
    return read_times


@dataclass(frozen=True, slots=True)
class _Step:
    """A step as it was measured."""

    computation: float
    basis: str
    buckets: int
    gradients_ready: float
    overlap_basis: str


def _step(folder: RunFolder, plan: Plan, epochs: Sequence[float]) -> _Step:
    """Return computation per step on one accelerator, buckets, and when the first is ready."""
    assert plan.operations is not None
    buckets = math.ceil(4 * plan.operations.parameters / BUCKET_BYTES)
    # Parts of an accumulated batch are not averaged: their backward passes hide nothing.
    ready = 1 - BACKWARD_SHARE / plan.hyperparameters.accumulation
    assumed = f"assumed: after the forward pass, {ready:.0%} of the computation"
    if folder.profile.exists():
        profile = run_folder.read(Profile, folder.profile)
        measured = _precision_profile(profile, plan.hyperparameters.precision)
        if measured is not None and measured.communication is None:
            basis = "profile of the run, which did not communicate"
            return _Step(measured.seconds_per_step, basis, buckets, ready, assumed)
        if measured is not None and measured.communication is not None:
            mean = measured.communication.mean
            computation = measured.seconds_per_step - mean.exposed
            buckets = max(1, round(measured.communication.buffers_per_step))
            ready = first_bucket(
                computation,
                reduce=mean.hidden + mean.exposed,
                buckets=buckets,
                step=measured.seconds_per_step,
            )
            basis = "profile of the run, less exposed communication"
            return _Step(computation, basis, buckets, ready, "fitted to the profile's exposed part")
    if plan.parallel_degree > 1:
        raise InputError(
            f"{folder.path} has no profile, and its steps contain communication among "
            f"{plan.parallel_degree} accelerators: computation alone is not known.",
            path=folder.path,
            remedy=f"Run `ai500 profile {quoted(folder.path)}` first.",
        )
    return _Step(fmean(epochs), "epochs of the run's members", buckets, ready, assumed)


def _precision_profile(profile: Profile, precision: str) -> PrecisionProfile | None:
    return next((item for item in profile.precisions if item.precision == precision), None)


def _ceiling(folder: RunFolder, precision: str, *, cores: int) -> tuple[float | None, float | None]:
    """Return measured ceiling and theoretical peak of one accelerator, or of a slot of cores.

    None: the run was not placed under a roofline, or not in this precision.
    """
    if not folder.roofline.exists():
        return None, None
    record = run_folder.read(RunPlacement, folder.roofline).ceilings
    units = record.units / (max(1, cores) if record.unit == "core" else 1)
    rates = [item.sustained_flops for item in ceilings(record) if item.precision == precision]
    peak = peak_of(record, precision)
    return max(rates) / units if rates else None, None if peak is None else peak / units
