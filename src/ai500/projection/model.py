"""An ensemble on a platform: step, member, staging, failures, score."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ai500.core.errors import InputError
from ai500.projection import simulator, timeline, traffic
from ai500.projection.application import BACKWARD_SHARE, Application, quality_at, step_of_batch
from ai500.projection.platform import Platform, known_accelerator
from ai500.roofline.model import WIRE_BYTES

COMMUNICATION_ERROR = 0.20
"""Relative uncertainty of communication: the worst error of docs/projection.md, Validation."""
FAILURE_SEED = 500


@dataclass(frozen=True, slots=True)
class Settings:
    """Choices of a projection besides system and run."""

    mode: str | None = None
    """Communication mode; None: the run's."""
    precision: str | None = None
    batch: int | None = None
    """Images of an accelerator in a step; None: the run's."""
    tensor_degree: int = 1
    pipeline_degree: int = 1
    microbatches: int = 8
    activation_bytes: float | None = None
    """Activations of one image at a cut between stages, or all-reduced by tensor ranks."""
    sharded: bool = False
    """FSDP2; a sharded run is projected so in any case."""
    node_mtbf_seconds: float | None = None
    """Mean time between failures of a node; None: no failures."""
    requeue_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Projection:
    """One (M, P_degree) on the system."""

    accelerators: int
    ensemble_size: int
    parallel_degree: int
    nodes: int
    global_batch_size: int
    step_seconds: float
    compute_seconds: float
    """Computation of a step on the slowest accelerator of a member."""
    reduce_seconds: float
    """Gradient averaging of a step, exposed or hidden."""
    exposed_seconds: float
    seconds: float
    """The timed window: first batch to last end."""
    low_seconds: float
    high_seconds: float
    staging_seconds: float
    flops: float
    low_flops: float
    high_flops: float
    vflops: float | None
    quality: float | None
    quality_extrapolated: bool
    energy_joules: float | None
    efficiency: float
    """FLOPS per accelerator over that of one accelerator without communication or waiting."""
    bound: str
    expected_failures: float


def speed_factor(application: Application, platform: Platform) -> tuple[float, str]:
    """Return how many times faster the platform's accelerator is than the run's, and why."""
    if application.accelerator == platform.accelerator:
        return 1.0, f"the run trained on {application.accelerator} itself"
    precision = application.kernel_precision
    own = application.ceiling_flops
    if own is not None and platform.flops_measured and precision in platform.flops:
        return platform.flops[precision] / own, f"measured ceilings in {precision}"
    peaks = known_accelerator(application.accelerator)
    theirs = known_accelerator(platform.accelerator) if platform.flops_measured else platform.flops
    if peaks is None or theirs is None or not {precision} <= set(peaks) & set(theirs):
        raise InputError(
            f"the run trained on {application.accelerator}, the system has "
            f"{platform.accelerator}: their speeds in {precision} can't be compared.",
            key="node.accelerator",
            value=platform.accelerator,
            remedy="Measure both: `ai500 roofline --run RUN`, and node.measured in the system's "
            f"file; or state node.flops.{precision}.",
        )
    return theirs[precision] / peaks[precision], f"theoretical peaks in {precision}"


class Projector:
    """Projects one application on one platform; times of collectives are kept."""

    def __init__(
        self, application: Application, platform: Platform, settings: Settings = Settings()
    ) -> None:
        self.application = application
        self.platform = platform
        self.settings = settings
        self.factor, self.factor_basis = speed_factor(application, platform)
        self._reduce: dict[tuple[int, int], float] = {}
        self._staged: dict[tuple[int, float], float] = {}

    def project(self, *, accelerators: int, degree: int, whole_epochs: bool = True) -> Projection:
        """Project an ensemble of members of `degree` accelerators that fills the accelerators.

        Without `whole_epochs` a step may hold more images than an epoch: only rates mean anything.
        """
        app, platform = self.application, self.platform
        jobs = self._check(accelerators, degree)
        data_degree = degree // self._model_degree
        # A replica on several accelerators gets their images, as in a plan.
        own_batch = self.settings.batch or app.batch_size
        batch = own_batch * self._model_degree
        steps = app.images_per_epoch / (batch * data_degree)
        if whole_epochs:
            steps = float(int(steps))
        if steps == 0:
            raise InputError(
                f"a step of {data_degree} replicas of {batch} images needs more than the "
                f"{app.images_per_epoch:,} images of an epoch.",
                key="P_degree",
                value=degree,
                remedy="Choose a smaller degree; the members of an ensemble divide the machine.",
            )
        alone = step_of_batch(app, own_batch) / self.factor
        slow = timeline.slowest_factor(degree, spread=app.step_spread)
        compute, activations = self._computation(alone * slow, batch)
        reduce = self._reduce_seconds(data_degree, degree)
        step = timeline.bucketed_step(
            compute + activations, reduce=reduce, buckets=app.buckets, forward=1 - BACKWARD_SHARE
        )
        # The last of all members ends the window.
        last = timeline.slowest_factor(accelerators, spread=app.step_spread) / slow
        evaluation = app.evaluations * app.evaluation_seconds / self.factor / data_degree
        work = app.epochs * steps * step * last + evaluation
        seconds, low, high, failures = self._failures(work, jobs, degree)
        band = COMMUNICATION_ERROR * (step - compute) / step
        jitter = 2 * app.step_spread
        low, high = low * max(0.05, 1 - band - jitter), high * (1 + band + jitter)
        members = jobs * app.members_per_accelerator
        images = steps * batch * data_degree * app.epochs
        operations = members * (
            images * app.operations_per_image + steps * app.epochs * app.update_operations
        )
        flops = operations / seconds
        nodes = math.ceil(accelerators / platform.accelerators_per_node)
        quality, extrapolated = quality_at(app, members)
        ideal = app.members_per_accelerator * own_batch * app.operations_per_image / alone
        watts = platform.watts_per_node
        return Projection(
            accelerators=accelerators,
            ensemble_size=members,
            parallel_degree=degree,
            nodes=nodes,
            global_batch_size=batch * data_degree,
            step_seconds=step,
            compute_seconds=compute,
            reduce_seconds=reduce,
            exposed_seconds=step - compute,
            seconds=seconds,
            low_seconds=low,
            high_seconds=high,
            staging_seconds=self._staging(nodes, members),
            flops=flops,
            low_flops=operations / high,
            high_flops=operations / low,
            vflops=None if quality is None else flops * app.target.penalty(quality),
            quality=quality,
            quality_extrapolated=extrapolated or degree != app.run_degree,
            energy_joules=None if watts is None else watts * nodes * seconds,
            efficiency=flops / (accelerators * ideal),
            bound=_bound(step, compute, seconds, work, low=evaluation),
            expected_failures=failures,
        )

    @property
    def _model_degree(self) -> int:
        return self.settings.tensor_degree * self.settings.pipeline_degree

    def _check(self, accelerators: int, degree: int) -> int:
        if accelerators < degree or accelerators % degree:
            raise InputError(
                f"{accelerators:,} accelerators are no multiple of P_degree = {degree} "
                "(V3 Eq. 5: Sys_scale = M × P_degree).",
                key="P_degree",
                value=degree,
            )
        if degree % self._model_degree:
            raise InputError(
                f"P_degree = {degree} is no multiple of tensor {self.settings.tensor_degree} × "
                f"pipeline {self.settings.pipeline_degree}.",
                key="P_degree",
                value=degree,
            )
        if self._model_degree > 1 and self.settings.activation_bytes is None:
            raise InputError(
                "tensor and pipeline ranks exchange activations, whose bytes a run's record does "
                "not have.",
                key="--activation-bytes",
                remedy="State the bytes of one image at a cut: --activation-bytes 3.2MB.",
            )
        return accelerators // degree

    def _nodes_of(self, ranks: int, *, stride: int = 1) -> list[int]:
        """Return the node of every `stride`-th rank; ranks fill node after node."""
        per_node = self.platform.accelerators_per_node
        return [rank * stride // per_node for rank in range(ranks)]

    def _reduce_seconds(self, replicas: int, degree: int) -> float:
        """Return the seconds of averaging all gradients once."""
        if replicas == 1:
            return 0.0
        key = (replicas, degree)
        if key not in self._reduce:
            self._reduce[key] = self._simulate_reduce(replicas)
        return self._reduce[key]

    def _simulate_reduce(self, replicas: int) -> float:
        app, settings = self.application, self.settings
        nodes = self._nodes_of(replicas, stride=self._model_degree)
        # Replicas that lie nodes apart are neighbours in the simulation of their own group.
        precision = settings.precision or app.wire_precision
        gradients = app.gradient_bytes / self._model_degree
        if settings.sharded or app.sharded:
            rounds = traffic.sharded_rounds(nodes, buffer=gradients / app.buckets, passes=3)
        else:
            rounds = traffic.rounds(
                settings.mode or app.mode,
                nodes,
                buffer=gradients / 4 * WIRE_BYTES[precision] / app.buckets,
                library=precision == "fp32",
            )
        (seconds,) = simulator.collective_seconds(self.platform, nodes, [rounds])
        return seconds * app.buckets

    def _computation(self, seconds: float, batch: int) -> tuple[float, float]:
        """Return computation of a step, and the exchange of activations that it waits for.

        `seconds` is the share of one accelerator, `batch` the images of a replica.
        """
        settings = self.settings
        tensor, stages, micro = (
            settings.tensor_degree, settings.pipeline_degree, settings.microbatches,
        )  # fmt: skip
        exchange, compute = 0.0, seconds
        activations = (settings.activation_bytes or 0.0) * batch
        if tensor > 1:
            nodes = self._nodes_of(tensor)
            rounds = traffic.rounds("ring", nodes, buffer=activations, library=True)
            # Once in the forward, once in the backward pass.
            exchange += 2 * simulator.collective_seconds(self.platform, nodes, [rounds])[0]
        if stages > 1:
            nodes = self._nodes_of(stages, stride=tensor)
            hop = [(stage, stage + 1, activations / micro) for stage in range(stages - 1)]
            send = simulator.collective_seconds(self.platform, nodes, [[traffic.Round(hop, 1)]])[0]
            slots = micro + stages - 1  # 1F1B: fill and drain are the bubble
            exchange = (exchange / stages / micro + 2 * send) * slots
            compute = compute / micro * slots
        return compute, exchange

    def _failures(self, work: float, jobs: int, degree: int) -> tuple[float, float, float, float]:
        """Return the window with failures: median, low and high, and the expected failures."""
        app, platform, settings = self.application, self.platform, self.settings
        if settings.node_mtbf_seconds is None:
            return work, work, work, 0.0
        nodes = max(1.0, degree / platform.accelerators_per_node)
        mtbf = settings.node_mtbf_seconds / nodes
        store = platform.file_system_bytes_per_second or math.inf
        writers = min(platform.node_read_bytes_per_second, store / jobs)
        checkpoint = max(1e-3, app.checkpoint_bytes / writers)
        interval = timeline.young_interval(mtbf=mtbf, checkpoint=checkpoint)
        middle, low, high = timeline.with_failures(
            work, members=jobs, mtbf=mtbf, interval=interval, checkpoint=checkpoint,
            requeue=settings.requeue_seconds, seed=FAILURE_SEED,
        )  # fmt: skip
        if math.isinf(middle):
            raise InputError(
                f"a member of {degree} accelerators fails every {mtbf:.0f} s, before it can "
                "recover from the last failure.",
                key="--node-mtbf",
                remedy="Choose a smaller P_degree.",
            )
        return middle, low, high, jobs * work / mtbf

    def _staging(self, nodes: int, members: int) -> float:
        """Return the time to copy each node's share of the data from the shared file system."""
        app, platform = self.application, self.platform
        if platform.file_system_bytes_per_second is None or not app.data_bytes:
            return 0.0
        drawn = app.data_bytes * (1 - math.exp(-max(1.0, members / nodes)))
        # Several choices of M and P_degree draw nearly the same: to a thousandth, they are one.
        key = (nodes, float(f"{drawn:.3g}"))
        if key not in self._staged:
            self._staged[key] = simulator.staging_seconds(
                nodes=nodes,
                bytes_per_node=drawn,
                file_system=platform.file_system_bytes_per_second,
                node=platform.node_read_bytes_per_second,
            )
        return self._staged[key]


def _bound(step: float, compute: float, seconds: float, work: float, *, low: float) -> str:
    """Name what takes most of the window."""
    parts = {
        "computation": compute / step * (work - low) / seconds,
        "communication": (step - compute) / step * (work - low) / seconds,
        "evaluation": low / seconds,
        "failures": (seconds - work) / seconds,
    }
    return max(parts, key=lambda name: parts[name])


def doubled(platform: Platform) -> dict[str, Platform]:
    """Return the platform with one part twice as fast."""
    store = platform.file_system_bytes_per_second
    return {
        "network": replace(
            platform,
            rail_bytes_per_second=2 * platform.rail_bytes_per_second,
            rail_latency_seconds=platform.rail_latency_seconds / 2,
        ),
        "links inside a node": replace(
            platform, link_bytes_per_second=2 * platform.link_bytes_per_second
        ),
        "file system": replace(
            platform,
            file_system_bytes_per_second=None if store is None else 2 * store,
            node_read_bytes_per_second=2 * platform.node_read_bytes_per_second,
        ),
    }


def degrees(accelerators: int, *, at_least: int = 1) -> list[int]:
    """Return powers of two that divide the accelerators, and all of them."""
    powers = [2**power for power in range(20) if accelerators % 2**power == 0]
    return sorted({degree for degree in (*powers, accelerators) if degree >= at_least})
