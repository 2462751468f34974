"""The questions that a projection answers, and its result as a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ai500.core.errors import InputError
from ai500.core.units import human_si
from ai500.metrics.quality import is_better
from ai500.projection.application import Application, step_of_batch
from ai500.projection.model import Projection, Projector, Settings, degrees, doubled
from ai500.projection.platform import Platform
from ai500.projection.stragglers import Stragglers

SWEEP_LIMIT = 100_000
MOST_ACCELERATORS = 1_000_000
"""Accelerators that are projected at most: failures are drawn for each member."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Gain from doubling a part of the system."""

    part: str
    flops_gain: float
    """FLOPS with the part doubled over FLOPS without."""
    total_gain: float
    """The same of 1 / (staging + timed window)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of `ai500 project`: projection.json."""

    version: str
    system: str
    source: str
    grown: bool
    """True: more accelerators than the system of the file has."""
    run: str
    workload: str
    problem_class: str
    accelerator: str
    settings: Settings
    projection: Projection
    choices: tuple[Projection, ...]
    """Every P_degree, with the most whole members that the accelerators hold."""
    gains: tuple[Gain, ...]
    ensemble_sweep: tuple[Projection, ...]
    data_parallel_sweep: tuple[Projection, ...]
    data_limit: int | None
    """Scale of the sweep from which one model's batch exceeds an epoch; None: it never does."""
    wanted_quality: float | None
    best: Projection | None
    """Fastest choice that reaches the wanted quality; None: none, or no quality was wanted."""
    assumptions: tuple[str, ...]


def answer(
    application: Application,
    platform: Platform,
    settings: Settings,
    *,
    version: str,
    accelerators: int,
    degree: int | None,
    sweep: bool,
    wanted: float | None,
) -> Answer:
    """Answer all questions about one run on one system."""
    if accelerators > MOST_ACCELERATORS:
        raise InputError(
            f"{accelerators:,} accelerators: a projection has at most {MOST_ACCELERATORS:,}.",
            key="--accelerators",
            value=accelerators,
        )
    projector = Projector(application, platform, settings)
    smallest = settings.tensor_degree * settings.pipeline_degree
    default = max(smallest, min(platform.accelerators_per_node, accelerators))
    chosen = projector.project(accelerators=accelerators, degree=degree or default)
    choices = tuple(_choices(projector, accelerators, smallest))
    ensemble: list[Projection] = []
    data: list[Projection] = []
    limit = None
    for scale in scales(default, SWEEP_LIMIT) if sweep else ():
        ensemble.append(projector.project(accelerators=scale, degree=default))
        data.append(projector.project(accelerators=scale, degree=scale, whole_epochs=False))
        if data[-1].global_batch_size > application.samples_per_epoch:
            limit = limit or scale
    return Answer(
        version=version,
        system=platform.name,
        source=platform.source,
        grown=accelerators > platform.accelerators,
        run=application.run,
        workload=application.workload,
        problem_class=application.problem_class,
        accelerator=platform.accelerator,
        settings=settings,
        projection=chosen,
        choices=choices,
        gains=tuple(gains(projector, chosen)),
        ensemble_sweep=tuple(ensemble),
        data_parallel_sweep=tuple(data),
        data_limit=limit,
        wanted_quality=wanted,
        best=None if wanted is None else best_choice(choices, wanted, application),
        assumptions=tuple(assumptions(projector)),
    )


def _choices(projector: Projector, accelerators: int, smallest: int) -> list[Projection]:
    choices = []
    per_node = projector.platform.accelerators_per_node
    for degree in degrees(accelerators, per_node=per_node, at_least=smallest):
        try:
            used = accelerators - accelerators % degree
            choices.append(projector.project(accelerators=used, degree=degree))
        except InputError:
            continue  # a batch larger than the data, or a mode that needs whole nodes
    return choices


def scales(first: int, limit: int) -> list[int]:
    """Return doubling numbers of accelerators up to the limit, and the limit in whole members."""
    values = []
    value = first
    while value < limit:
        values.append(value)
        value *= 2
    return [*values, limit - limit % first]


def best_choice(
    choices: Sequence[Projection], wanted: float, application: Application
) -> Projection | None:
    """Return the choice of the shortest time that reaches the wanted quality."""
    direction = application.target.direction
    reaching = [
        choice
        for choice in choices
        if choice.quality is not None
        and (choice.quality == wanted or is_better(choice.quality, wanted, direction=direction))
    ]
    return min(reaching, key=lambda choice: choice.seconds, default=None)


def gains(projector: Projector, base: Projection) -> list[Gain]:
    """Project again with each part twice as fast."""
    application, settings = projector.application, projector.settings
    faster = replace(
        application,
        steps_by_batch=tuple((batch, step / 2) for batch, step in application.steps_by_batch),
        evaluation_seconds=application.evaluation_seconds / 2,
    )
    projectors = {
        part: Projector(application, platform, settings)
        for part, platform in doubled(projector.platform).items()
    } | {"accelerator": Projector(faster, projector.platform, settings)}
    variants = {
        part: variant.project(accelerators=base.accelerators, degree=base.parallel_degree)
        for part, variant in projectors.items()
    }
    total = base.staging_seconds + base.seconds
    return [
        Gain(part, made.flops / base.flops, total / (made.staging_seconds + made.seconds))
        for part, made in variants.items()
    ]


def assumptions(projector: Projector) -> list[str]:
    """List what the projection takes for granted."""
    app, platform, settings = projector.application, projector.platform, projector.settings
    batch = settings.batch or app.batch_size
    texts = [
        f"Computation: {step_of_batch(app, batch) * 1e3:.4g} ms per step of {batch} samples on one "
        f"{app.accelerator} ({app.steps_basis}); {platform.accelerator} is "
        f"{projector.factor:.3g} × as fast ({projector.factor_basis}). The batch of an "
        "accelerator stays the same at every scale. Measured batches: "
        f"{', '.join(str(measured) for measured, _ in app.steps_by_batch)}; linear between them, "
        "in proportion to the samples beyond.",
        f"Gradients: {app.gradient_bytes / 1e6:.4g} MB in FP32, {app.buckets} buckets, averaged by "
        f"{'FSDP2' if settings.sharded or app.sharded else settings.mode or app.mode} in "
        f"{settings.precision or app.wire_precision}, each as soon as it is ready: from "
        f"{app.gradients_ready:.0%} of the computation on ({app.overlap_basis}).",
        *_divided(projector),
        "Network: SimGrid's fluid model CM02 without TCP; messages are striped over a node's "
        "ports. Inside a node: latency + bytes / bandwidth. Members share no link but the file "
        f"system's, so one is simulated for all.{_routes(platform)}",
        "A flat all-reduce in FP32 is a ring over all ranks; communication libraries switch to "
        "trees at a scale of their choice, which is faster where latency decides (--mode "
        "double_binary_tree).",
        "Rounds that repeat are simulated once; an all-to-all of more than 8 ranks by an even "
        "sample of 8 distances; of a member of more than 1,024 nodes so many stand for all"
        + (
            ", a torus with all but its last side: up to 24 % too fast and 16 % too slow."
            if platform.topology.kind == "torus"
            else "."
        ),
        _stragglers(app.stragglers),
        f"Failures: none. Checkpoints of {app.checkpoint_bytes / 1e6:.4g} MB every "
        f"{app.checkpoint_interval_seconds / 60:g} min, written behind the steps; the file system "
        "writes as fast as it reads."
        if settings.node_mtbf_seconds is None
        else f"Failures: a Poisson process of each member's nodes (MTBF of a node "
        f"{settings.node_mtbf_seconds / 3600:,.0f} h), simulated with a fixed seed; checkpoints at "
        f"Young's interval, {settings.requeue_seconds:.0f} s to requeue.",
        _quality(app),
        "Band: ±20 % of exposed communication (the worst error that benchmarks/projection.py "
        "showed), ±2σ of the members' mean step times, 5th to 95th percentile of failures. Not in "
        "it: the ratio of the two accelerators' speeds, the quality, and what the system's file "
        "states.",
        _input(projector),
    ]
    if platform.watts_per_node is not None:
        texts.append(f"Energy: {human_si(platform.watts_per_node)}W per node, constant.")
    return texts


def _routes(platform: Platform) -> str:
    """Describe the routes between the groups of a dragonfly."""
    if platform.topology.kind != "dragonfly":
        return ""
    return (
        " A dragonfly's group sends to others over all its global links, at half of their "
        "bandwidth (adaptive routes)."
        if platform.topology.routing == "adaptive"
        else " A dragonfly's group sends to another over the links between them (minimal routes)."
    )


def _quality(app: Application) -> str:
    """Describe the points of the M-curve, and how far they can be trusted."""
    curve = app.quality
    sizes = ", ".join(str(size) for size in curve.sizes)
    residual, trials = curve.largest_residual(), len(curve.trials)
    if len(curve.sizes) < 2:
        text = "Quality: the run has one member, so that of an ensemble is not known."
    elif residual is None:
        why = f" ({curve.reason})" if curve.reason else ""
        text = (
            f"Quality: a + b / M through two points, M = {sizes}{why}. Two points fit exactly, so "
            "that nothing tells whether the curve has this shape: trust it near them only."
        )
    else:
        text = (
            f"Quality: a + b / M through M = {sizes}, averages over subsets of the run's members "
            f"among them; the curve misses them by {residual:.2g} at most."
        )
    spread = (
        f" The ± of a quality is two standard errors over {trials} trials."
        if trials > 1
        else " The run has one trial: its scatter is not known."
    )
    return (
        f"{text}{spread} Beyond M = {app.run_members} it is extrapolated, and not known where the "
        "curve leaves what a quality can be (0 to 1, or above 0). What a larger batch "
        "costs in quality is not projected."
    )


def _stragglers(fitted: Stragglers) -> str:
    """Describe the distribution of step times, and what it was fitted to."""
    measured = (
        "Stragglers: single steps of this run were not measured, so its epochs' mean step times "
        f"stand for them, log-normal with σ = {fitted.tail_spread:.2%}: the slowest step is "
        "underestimated. A run of this version of ai500 with PyTorch measures them."
        if fitted.steps is None
        else f"Stragglers: fitted to {fitted.steps:,} measured steps; of 1,000 accelerators the "
        f"slowest takes {fitted.slowest(1000):.2f} × the mean step. Beyond the slowest measured "
        f"step the tail goes on as a log-normal one with σ = {fitted.tail_spread:.2%}."
    )
    return (
        f"{measured} A member waits in every step for its slowest accelerator, and accelerators "
        "are slow independently of each other; the ensemble waits for its slowest member (σ of "
        f"their mean step times {fitted.member_spread:.2%})."
    )


def _divided(projector: Projector) -> list[str]:
    """Describe how a replica is divided."""
    settings, known = projector.settings, projector.application.activations
    if settings.tensor_degree * settings.pipeline_degree == 1:
        return []
    source = "--activation-bytes" if known is None or settings.activation_bytes else known.run
    micro = settings.microbatches or settings.pipeline_degree
    return [
        f"A replica is divided among {settings.tensor_degree} tensor ranks × "
        f"{settings.pipeline_degree} pipeline stages of equal work, {micro} micro-batches; the "
        f"activations that they exchange are those of {source}, and hide behind nothing."
    ]


def _input(projector: Projector) -> str:
    """Describe how the members get their data."""
    app, staged = projector.application, projector.settings.staged
    if app.staged if staged is None else staged:
        return (
            "Staging: every node reads the validation data and what its members drew (63.2 % of "
            "the training data for one), all nodes at once; it is outside the timed window."
        )
    return (
        f"Input: every node reads {app.sample_bytes:,} bytes per image from the shared file system "
        "in every epoch, all nodes at once, behind the step before; nothing stays in memory."
    )
