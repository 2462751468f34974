"""Published scaling, recomputed from the machines' published parameters.

V2's and V3's cluster: 8 nodes of 8 V100, NVLink of 300 GB/s in both directions, 10 Gb/s Ethernet
(V2 §7.1, V3 §4.1). MLPerf Training v3.0: NVIDIA's DGX H100, results `dgxh100_ngc23.04_mxnet` and
`dgxh100_n8_ngc23.04_mxnet` of ResNet-50, throughput of the logs (`tracked_stats`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from ai500.projection import platform, simulator, timeline, traffic
from ai500.projection.application import BACKWARD_SHARE
from ai500.projection.platform import Platform, Topology

V2_SYSTEM = Platform(
    name="V2's cluster", source="V2 §7.1", nodes=8, accelerator="Tesla V100-SXM2-32GB",
    accelerators_per_node=8, flops={"fp32": 15e12}, flops_measured=False,
    link_bytes_per_second=150e9, link_latency_seconds=5e-6, rails=1,
    rail_bytes_per_second=1.25e9, rail_latency_seconds=30e-6,
    switch_latency_seconds=0.5e-6,
    topology=Topology("fat_tree", leaf=8, uplinks=8), file_system_bytes_per_second=None,
    node_read_bytes_per_second=1.25e9, watts_per_node=None,
)  # fmt: skip
FUSION_BYTES = 64 * 2**20
"""Horovod's fusion buffer."""
RESNET_PARAMETERS = 25_557_032
EWA_PARAMETERS = 41_000_000
"""V2 §7.3.2: "about 41 millions of gradients"."""


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity: rates are cached
class Series:
    """Scaling of one workload against one node."""

    name: str
    source: str
    system: Platform
    step_seconds: float
    """Step of one node, from its published images per second."""
    images: int
    """Images per accelerator in that step."""
    gradient_bytes: float
    wire_share: float
    """Bytes on the wire over gradient bytes."""
    efficiency: dict[int, float]
    """Accelerators → published FLOPS or images per second over the ideal."""
    images_at: dict[int, int]
    """Accelerators → images per accelerator, where they change."""


@cache
def series() -> tuple[Series, ...]:
    """Return the published series."""
    resnet, detector = 4.0 * RESNET_PARAMETERS, 4.0 * EWA_PARAMETERS
    superpod = replace(platform.read("dgx-h100-superpod"), nodes=8)
    return (
        # V2 Table 11: images per second of a node; Table 8: 2,048 images on 16 GPUs.
        Series("Image Classification, FP32", "V2 §7.4.1", V2_SYSTEM, 8 * 128 / 2624, 128, resnet,
               1.0, {16: 0.91, 32: 0.85, 64: 0.71}, {}),
        Series("Image Classification, mixed", "V2 §7.4.1", V2_SYSTEM, 8 * 256 / 5734, 256, resnet,
               1.0, {16: 0.89, 32: 0.82, 64: 0.67}, {}),
        # V2 names no batch of EWA; one image per GPU is what its memory holds.
        Series("EWA, FP32", "V2 §7.4.2", V2_SYSTEM, 8 / 46, 1, detector,
               1.0, {16: 0.50, 32: 0.37, 64: 0.36}, {}),
        Series("ResNet-50, MLPerf v3.0", "DGX H100, 3,200 images a step", superpod, 3200 / 56_050,
               400, resnet, 0.5, {64: 294_600 / (8 * 56_050)}, {64: 50}),
    )  # fmt: skip


V3_GPUS = (8, 16, 24, 32, 40, 48, 56, 64)
"""Scales of V3 Fig. 5; every member has a node of eight."""
V3_DEGREES = (8, 16, 64)
"""P_degree of V3 Fig. 7: M = 8, 4, 1 on 64 GPUs."""
COMPRESSED = {8: 1.2, 16: 1.4, 32: 1.6, 64: 1.5}
"""GPUs → speed-up of EWA by FP16 gradients (V2 §7.4.2); at 8 also V3 Fig. 8."""


def efficiency(item: Series, accelerators: int) -> float:
    """Return the efficiency against one node that the model computes."""
    node = item.system.accelerators_per_node
    return rate(item, accelerators) / accelerators * node / rate(item, node)


@cache
def rate(item: Series, accelerators: int, *, wire: float = 1.0) -> float:
    """Return the images per second of one model by data parallelism, as the model computes them.

    `wire` is a share of the bytes that the series sends.
    """
    images = item.images_at.get(accelerators, item.images)
    # Computation in proportion to the images: the model has no other measurement.
    compute = item.step_seconds * images / item.images
    buckets = max(1, round(item.gradient_bytes / FUSION_BYTES))
    nodes = [rank // item.system.accelerators_per_node for rank in range(accelerators)]
    buffer = item.gradient_bytes * item.wire_share * wire / buckets
    rounds = traffic.rounds("all_reduce", nodes, buffer=buffer, library=True)
    (reduce,) = simulator.collective_seconds(item.system, nodes, [rounds])
    step = timeline.bucketed_step(
        compute, reduce=reduce * buckets, buckets=buckets, forward=1 - BACKWARD_SHARE
    )
    return images * accelerators / step


def ensemble_rate(item: Series, accelerators: int) -> float:
    """Return the images per second of an ensemble with a member on each node."""
    node = item.system.accelerators_per_node
    return accelerators // node * rate(item, node)


def v3_rows() -> list[str]:
    """Return the rows of docs/projection.md on V3's figures, which print no numbers."""
    images, _, detector, _ = series()
    speeds = " / ".join(f"{rate(images, degree):,.0f}" for degree in V3_DEGREES)
    linear = ensemble_rate(images, V3_GPUS[-1]) / ensemble_rate(images, V3_GPUS[0])
    ratios = [
        ensemble_rate(item, V3_GPUS[-1]) / rate(item, V3_GPUS[-1]) for item in (images, detector)
    ]
    return [
        f"| Fig. 5 | FLOPS of 8 jobs over those of 1 | near linear | {linear:.2f} |",
        f"| Fig. 7 | images/s of one model, P_degree 8 / 16 / 64 | rising | {speeds} |",
        "| Fig. 9 | ensemble over data parallelism, 64 GPUs: Image Classification / EWA "
        f"| much higher | {ratios[0]:.2f} / {ratios[1]:.2f} |",
    ]


def compression_rows() -> list[str]:
    """Return the rows of docs/projection.md on FP16 gradients of EWA."""
    detector = series()[2]
    rows = []
    for accelerators, published in COMPRESSED.items():
        projected = rate(detector, accelerators, wire=0.5) / rate(detector, accelerators)
        rows.append(f"| {accelerators} | {published:.1f} | {projected:.2f} |")
    return rows


def table() -> list[str]:
    """Return the rows of docs/projection.md: published beside projected."""
    return [
        f"| {item.name} | {item.source} | {accelerators} | {published:.2f} | {projected:.2f} "
        f"| {projected - published:+.2f} |".replace("| -", "| −")
        for item in series()
        for accelerators, published in item.efficiency.items()
        for projected in [efficiency(item, accelerators)]
    ]
