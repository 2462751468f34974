"""An ensemble on a platform: step, member, staging, failures, score."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ai500.core.errors import InputError
from ai500.parallel.data_duplicator import staged_bytes
from ai500.projection import simulator, timeline, traffic
from ai500.projection.activations import Activations, stated
from ai500.projection.application import Application, step_of_batch
from ai500.projection.platform import Platform, folded_nodes, known_accelerator
from ai500.projection.stragglers import slowest_member
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
    microbatches: int | None = None
    """Micro-batches of a pipeline; None: one per stage, as a plan's default."""
    activation_bytes: float | None = None
    """Activations of one image at a cut between stages, or all-reduced by tensor ranks; None:
    those of the application's record."""
    sharded: bool = False
    """FSDP2; a sharded run is projected so in any case."""
    staged: bool | None = None
    """Whether members read a copy on their node, not the shared file system; None: as the run."""
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
    input_seconds: float
    """Reading of a step's input from the shared file system, during the step before; 0: staged."""
    seconds: float
    """The timed window: first batch to last end."""
    low_seconds: float
    high_seconds: float
    staging_seconds: float
    checkpoint_seconds: float
    """One checkpoint of every member at once, written behind the steps."""
    flops: float
    low_flops: float
    high_flops: float
    vflops: float | None
    quality: float | None
    quality_uncertainty: float | None
    """Two standard errors over the run's trials; None: the run has one trial only."""
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
    if peaks is None and application.peak_flops is not None:
        peaks = {precision: application.peak_flops}
    system_peaks = (
        known_accelerator(platform.accelerator) if platform.flops_measured else platform.flops
    )
    if peaks is None or system_peaks is None or not {precision} <= set(peaks) & set(system_peaks):
        raise InputError(
            f"the run trained on {application.accelerator}, the system has "
            f"{platform.accelerator}: their speeds in {precision} can't be compared.",
            key="node.accelerator",
            value=platform.accelerator,
            remedy="Measure a node of each with `ai500 roofline --out FILE`: place the run under "
            f"its own (`ai500 roofline --run {application.run} --ceilings FILE`), and name the "
            "other as node.measured in the system's file.",
        )
    return system_peaks[precision] / peaks[precision], f"theoretical peaks in {precision}"


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

        Without `whole_epochs` a step may hold more samples than an epoch: only rates mean anything.
        """
        app, platform = self.application, self.platform
        jobs = self._check(accelerators, degree)
        data_degree = degree // self._model_degree
        # A replica on several accelerators gets their samples, as in a plan.
        own_batch = self.settings.batch or app.batch_size
        batch = own_batch * self._model_degree
        steps = app.samples_per_epoch / (batch * data_degree)
        if whole_epochs:
            steps = float(int(steps))
        if steps == 0:
            raise InputError(
                f"a step of {data_degree} replicas of {batch} samples needs more than the "
                f"{app.samples_per_epoch:,} samples of an epoch.",
                key="P_degree",
                value=degree,
                remedy="Choose a smaller degree; the members of an ensemble divide the machine.",
            )
        alone = step_of_batch(app, own_batch) / self.factor
        slow = app.stragglers.slowest(degree)
        compute, activations = self._computation(alone * slow, batch)
        reduce = self._reduce_seconds(data_degree, degree)
        exchanged = timeline.bucketed_step(
            compute + activations, reduce=reduce, buckets=app.buckets, forward=app.gradients_ready
        )
        nodes = math.ceil(accelerators / platform.accelerators_per_node)
        reading = self._input_seconds(accelerators, nodes, own_batch)
        step = max(exchanged, reading)
        # The last of all members ends the window: single slow steps even out, slow members don't.
        last = slowest_member(jobs, spread=app.stragglers.member_spread)
        evaluation = app.evaluations * app.evaluation_seconds / self.factor
        evaluation *= app.run_data_degree / data_degree
        work = app.epochs * steps * step * last + evaluation
        checkpoint = self._checkpoint_seconds(jobs, nodes)
        seconds, low, high, failures = self._failures(work, jobs, degree, checkpoint)
        band = COMMUNICATION_ERROR * (exchanged - compute) / step
        jitter = 2 * app.stragglers.member_spread
        low, high = low * max(0.05, 1 - band - jitter), high * (1 + band + jitter)
        members = jobs * app.members_per_accelerator
        samples = steps * batch * data_degree * app.epochs
        operations = members * (
            samples * app.operations_per_sample + steps * app.epochs * app.update_operations
        )
        flops = operations / seconds
        quality = app.quality.quality(members)
        ideal = app.members_per_accelerator * own_batch * app.operations_per_sample / alone
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
            exposed_seconds=exchanged - compute,
            input_seconds=reading,
            seconds=seconds,
            low_seconds=low,
            high_seconds=high,
            staging_seconds=self._staging(nodes, members),
            checkpoint_seconds=checkpoint,
            flops=flops,
            low_flops=operations / high,
            high_flops=operations / low,
            vflops=None if quality is None else flops * app.target.penalty(quality),
            quality=quality,
            quality_uncertainty=app.quality.uncertainty(members),
            quality_extrapolated=members > app.run_members or degree != app.run_degree,
            energy_joules=None if watts is None else watts * nodes * seconds,
            efficiency=flops / (accelerators * ideal),
            bound=_bound(
                computation=compute / step / (slow * last),
                stragglers=compute / step * (1 - 1 / (slow * last)),
                communication=(exchanged - compute) / step,
                training=(work - evaluation) / seconds,
                evaluation=evaluation / seconds,
            ),
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
                remedy=f"Choose --degree {math.gcd(accelerators, degree)}, or --accelerators "
                f"{max(degree, accelerators - accelerators % degree)}.",
            )
        if degree % self._model_degree:
            raise InputError(
                f"P_degree = {degree} is no multiple of tensor {self.settings.tensor_degree} × "
                f"pipeline {self.settings.pipeline_degree}.",
                key="P_degree",
                value=degree,
            )
        per_node = self.platform.accelerators_per_node
        if accelerators > degree and per_node % degree and degree % per_node:
            raise InputError(
                f"P_degree = {degree} on nodes of {per_node} accelerators: members would share "
                "nodes and their network ports, which is not projected.",
                key="P_degree",
                value=degree,
                remedy=f"Choose a divisor or a multiple of {per_node}.",
            )
        return accelerators // degree

    def _activations(self) -> Activations:
        """Return what the ranks of a divided replica exchange."""
        settings = self.settings
        if settings.activation_bytes is not None:
            return stated(settings.activation_bytes)
        known = self.application.activations
        missing = [
            axis
            for axis, degree, size in (
                ("tensor", settings.tensor_degree, known and known.tensor_bytes),
                ("pipeline", settings.pipeline_degree, known and known.cut_bytes),
            )
            if degree > 1 and size is None
        ]
        if known is None or missing:
            raise InputError(
                f"{' and '.join(missing)} ranks exchange activations, whose bytes are not known.",
                key="--activations",
                remedy="Name a run whose model was divided so (--activations RUN), or state the "
                "bytes of one image at a cut (--activation-bytes 3.2MB).",
            )
        return known

    def _sharing(self, groups: int) -> int:
        """Return how many of so many neighbouring groups send through the ports of one node."""
        return min(groups, self.platform.accelerators_per_node)

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
        precision = settings.precision or app.wire_precision
        gradients = app.gradient_bytes / self._model_degree
        most_nodes = folded_nodes(self.platform, nodes[-1] + 1)
        if settings.sharded or app.sharded:
            passes = 2 * app.accumulation + 1
            rounds = traffic.sharded_rounds(
                nodes, buffer=gradients / app.buckets, passes=passes, most_nodes=most_nodes
            )
        else:
            rounds = traffic.rounds(
                settings.mode or app.mode,
                nodes,
                buffer=gradients / 4 * WIRE_BYTES[precision] / app.buckets,
                library=precision == "fp32",
                most_nodes=most_nodes,
            )
        # Each rank of a divided model averages its part with its equals, all at the same time.
        (seconds,) = simulator.collective_seconds(
            self.platform, nodes, [rounds], sharing=self._sharing(self._model_degree)
        )
        return seconds * app.buckets

    def _computation(self, seconds: float, batch: int) -> tuple[float, float]:
        """Return computation of a step, and the exchange of activations that it waits for.

        `seconds` is the share of one accelerator, `batch` the samples of a replica.
        """
        settings = self.settings
        tensor, stages = settings.tensor_degree, settings.pipeline_degree
        if tensor * stages == 1:
            return seconds, 0.0
        activations, micro = self._activations(), settings.microbatches or stages
        exchange, compute = 0.0, seconds
        if tensor > 1:
            nodes = self._nodes_of(tensor)
            calls = max(1.0, activations.tensor_calls)
            buffer = (activations.tensor_bytes or 0.0) * batch / calls
            rounds = traffic.rounds("ring", nodes, buffer=buffer, library=True)
            exchange += calls * simulator.collective_seconds(self.platform, nodes, [rounds])[0]
        if stages > 1:
            nodes = self._nodes_of(stages, stride=tensor)
            cut = (activations.cut_bytes or 0.0) * batch / micro
            hop = [(stage, stage + 1, cut) for stage in range(stages - 1)]
            (send,) = simulator.collective_seconds(
                self.platform, nodes, [[traffic.Round(hop, 1)]], sharing=self._sharing(tensor)
            )
            slots = micro + stages - 1  # 1F1B: fill and drain are the bubble
            exchange = (exchange / stages / micro + 2 * send) * slots
            compute = compute / micro * slots
        return compute, exchange

    def _input_seconds(self, accelerators: int, nodes: int, batch: int) -> float:
        """Return the time in which every node reads a step's input from the shared file system."""
        app, platform, staged = self.application, self.platform, self.settings.staged
        if app.staged if staged is None else staged:
            return 0.0
        store = platform.file_system_bytes_per_second
        if store is None:
            raise InputError(
                "the members read the shared file system, whose bandwidth the system's file lacks.",
                key="file_system.bandwidth",
                remedy="State it, or project with --staged.",
            )
        members = min(accelerators, platform.accelerators_per_node) * app.members_per_accelerator
        rate = min(platform.node_read_bytes_per_second, store / nodes)
        return members * batch * app.sample_bytes / rate

    def _checkpoint_seconds(self, jobs: int, nodes: int) -> float:
        """Return the time in which all members write a checkpoint at once, each from one node."""
        app, platform = self.application, self.platform
        store = platform.file_system_bytes_per_second or math.inf
        node = platform.node_read_bytes_per_second / math.ceil(jobs / nodes)
        return app.checkpoint_bytes / min(node, store / jobs)

    def _failures(
        self, work: float, jobs: int, degree: int, checkpoint: float
    ) -> tuple[float, float, float, float]:
        """Return the window with checkpoints and failures: median, low, high, expected failures."""
        app, platform, settings = self.application, self.platform, self.settings
        if settings.node_mtbf_seconds is None:
            # Written behind the steps: they wait only where the one before is not yet written.
            every = app.checkpoint_interval_seconds
            work += math.floor(work / every) * max(0.0, checkpoint - every)
            return work, work, work, 0.0
        nodes = max(1.0, degree / platform.accelerators_per_node)
        mtbf = settings.node_mtbf_seconds / nodes
        checkpoint = max(1e-3, checkpoint)
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
        app, platform, staged = self.application, self.platform, self.settings.staged
        if platform.file_system_bytes_per_second is None:
            return 0.0
        if not (app.staged if staged is None else staged):
            return 0.0
        drawn = staged_bytes(
            app.train_samples,
            validation_samples=app.validation_samples,
            sample_bytes=app.sample_bytes,
            members=math.ceil(members / nodes),
        )
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


def _bound(
    *,
    computation: float,
    stragglers: float,
    communication: float,
    training: float,
    evaluation: float,
) -> str:
    """Name what takes most of the window; the first three are shares of a step."""
    parts = {
        "computation": computation * training,
        "waiting for stragglers": stragglers * training,
        "communication": communication * training,
        "input": (1 - computation - stragglers - communication) * training,
        "evaluation": evaluation,
        "failures": 1 - training - evaluation,
    }
    return max(parts, key=lambda name: parts[name])


def doubled(platform: Platform) -> dict[str, Platform]:
    """Return the platform with one part twice as fast."""
    store, reading = platform.file_system_bytes_per_second, platform.node_read_bytes_per_second
    own_network = reading == platform.rails * platform.rail_bytes_per_second
    return {
        "network bandwidth": replace(
            platform,
            rail_bytes_per_second=2 * platform.rail_bytes_per_second,
            node_read_bytes_per_second=2 * reading if own_network else reading,
        ),
        "network latency (halved)": replace(
            platform,
            rail_latency_seconds=platform.rail_latency_seconds / 2,
            switch_latency_seconds=platform.switch_latency_seconds / 2,
        ),
        "links inside a node": replace(
            platform, link_bytes_per_second=2 * platform.link_bytes_per_second
        ),
        "file system": replace(
            platform,
            file_system_bytes_per_second=None if store is None else 2 * store,
            node_read_bytes_per_second=reading if own_network else 2 * reading,
        ),
    }


def degrees(accelerators: int, *, per_node: int, at_least: int = 1) -> list[int]:
    """Return parts of a node, powers of two of nodes, and all accelerators.

    Not every one divides the accelerators: 127 nodes have 63 members of two, and one is idle.
    """
    parts = {part for part in range(1, per_node + 1) if per_node % part == 0}
    whole = {per_node * 2**power for power in range(20)}
    return sorted(
        degree for degree in parts | whole | {accelerators} if at_least <= degree <= accelerators
    )
