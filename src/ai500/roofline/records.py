"""Records of a roofline: raw times of kernels and links, and a run placed under them.

Ceilings and fits are computed from the times, never stored beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, Literal

from ai500.records import System

KERNEL_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")
KERNELS = ("gemm", "conv")
Scope = Literal["inside_node", "between_nodes"]
LinkKind = Literal["all_reduce", "point_to_point"]
SMALLEST_GAIN = 1.005
"""A gain below half a percent counts as none."""
MEASURING_ERROR = 1.02
"""Attained over attainable FLOPS above which ceilings are doubted: a margin for timing noise."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel on one shape in one precision: the median of its samples."""

    kernel: Literal["gemm", "conv"]
    precision: str
    shape: str
    operations: int
    """2 per multiply-add."""
    seconds: float
    """Duration of one call in sustained work."""
    samples: int
    burst_seconds: float | None = None
    """Duration of one of the first calls after a rest, before power and heat slow the device."""

    @property
    def flops(self) -> float:
        """Return operations per second, sustained."""
        return self.operations / self.seconds

    @property
    def best_flops(self) -> float:
        """Return operations per second of a short burst, where one was timed and is faster."""
        return self.operations / min(self.seconds, self.burst_seconds or self.seconds)


@dataclass(frozen=True, slots=True)
class MemoryTime:
    """One pass over memory; bytes are those read and those written."""

    kernel: Literal["copy", "triad"]
    bytes: int
    seconds: float
    samples: int

    @property
    def bytes_per_second(self) -> float:
        """Return the bytes read and written per second."""
        return self.bytes / self.seconds


@dataclass(frozen=True, slots=True)
class LinkTime:
    """A message of `bytes` over one class of links; the slowest rank's median."""

    kind: LinkKind
    scope: Scope
    ranks: int
    """Ranks of one all-reduce; 2 for point to point."""
    groups: int
    """Concurrent all-reduces of this kind on each node."""
    bytes: int
    seconds: float
    samples: int


@dataclass(frozen=True, slots=True)
class Peak:
    """A theoretical peak, or the reason why it cannot be derived."""

    quantity: str
    """A precision, or `memory`."""
    value: float | None
    """FLOPS, or bytes per second, of all units together."""
    derivation: str


@dataclass(frozen=True, slots=True)
class RooflineRecord:
    """Measured performance of one node, and of the links between several."""

    FORMAT: ClassVar[int] = 1
    format: int
    version: str
    measured_at: str
    complete: bool
    """False: the measurement was interrupted."""
    system: System
    device: str
    device_name: str
    unit: Literal["accelerator", "core"]
    units: int
    """Accelerators, or CPU cores, that the kernels ran on together."""
    seconds: float
    """Time budget of the measurement."""
    kernels: tuple[KernelTime, ...] = ()
    memory: tuple[MemoryTime, ...] = ()
    links: tuple[LinkTime, ...] = ()
    peaks: tuple[Peak, ...] = ()
    unavailable: tuple[tuple[str, str], ...] = ()
    """Job → reason why it was not measured."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Best and typical FLOPS of a kernel over its shapes."""

    kernel: str
    precision: str
    flops: float
    """FLOPS in a short burst."""
    sustained_flops: float
    """Sustained FLOPS of the same shape."""
    typical_flops: float
    """Median over shapes, sustained."""
    shape: str
    """Shape with the best FLOPS."""

    @property
    def name(self) -> str:
        """Return the label in figures."""
        return f"{self.kernel.upper()} {self.precision.upper()}"


def ceilings(record: RooflineRecord) -> list[Ceiling]:
    """Return best and median over shapes of each measured kernel and precision."""
    results = []
    for kernel in KERNELS:
        for precision in KERNEL_PRECISIONS:
            times = [
                time
                for time in record.kernels
                if time.kernel == kernel and time.precision == precision
            ]
            if times:
                best = max(times, key=lambda time: time.best_flops)
                typical = median(time.flops for time in times)
                results.append(
                    Ceiling(kernel, precision, best.best_flops, best.flops, typical, best.shape)
                )
    return results


def roof_flops(record: RooflineRecord, ceiling: Ceiling) -> float:
    """Return the ceiling, capped at its precision's theoretical peak.

    A kernel above the peak does fewer multiplications than are counted (Winograd), which other
    shapes need not reach.
    """
    peak = peak_of(record, ceiling.precision)
    return ceiling.flops if peak is None else min(ceiling.flops, peak)


def above_peak(record: RooflineRecord) -> list[Ceiling]:
    """Return the ceilings above their theoretical peak: fast algorithms."""
    return [ceiling for ceiling in ceilings(record) if ceiling.flops > roof_flops(record, ceiling)]


def units_of_node(record: RooflineRecord) -> int:
    """Return how many times a node has the units the kernels ran on; 1 for all cores of a CPU.

    Taken from the system's description, or from the ranks that measured links.
    """
    if record.unit == "core":
        return 1
    described = len(record.system.accelerators) or 1
    inside = [link.ranks for link in record.links if link.scope == "inside_node"]
    between = [link.groups for link in record.links if link.scope == "between_nodes"]
    return max([described, *inside, *between]) // record.units


def memory_bandwidth(record: RooflineRecord) -> float | None:
    """Return the best over kernels and sizes; None: not measured."""
    return max((time.bytes_per_second for time in record.memory), default=None)


def peak_of(record: RooflineRecord, quantity: str) -> float | None:
    """Return the theoretical peak of a precision [D10] or of `memory`; None: not derivable."""
    values = (peak.value for peak in record.peaks if peak.quantity == quantity)
    return next(values, None)


def is_above_roof(flops: float, *, attainable_flops: float) -> bool:
    """Return whether attained FLOPS exceed what is attainable by more than measuring errors."""
    return flops > MEASURING_ERROR * attainable_flops


def links_of(times: Iterable[LinkTime], *, kind: LinkKind, scope: Scope) -> list[LinkTime]:
    """Return the times of one kind over one class of links."""
    return [time for time in times if time.kind == kind and time.scope == scope]


@dataclass(frozen=True, slots=True)
class Advice:
    """A change to the run, and the largest gain that the model allows."""

    change: str
    setting: str
    """Setting in ai500.toml."""
    coi_factor: float
    ceiling_factor: float
    bound_after: str
    gain_at_roof: float | None
    """Roof after over roof before: gain of a run at its roof; None: roofs are missing."""
    gain_limit: float | None
    """Roof after over the attained FLOPS; None: roofs are missing."""
    text: str

    @property
    def may_gain(self) -> bool:
        """False if the model allows no gain; True also where roofs are missing."""
        return self.gain_at_roof is None or self.gain_at_roof >= SMALLEST_GAIN


@dataclass(frozen=True, slots=True)
class PlacedLink:
    """Bytes that a run sends over one class of links, per optimizer step of one member."""

    scope: Scope
    bytes_per_step: float | None
    """Bytes counted by the collectives of all ranks; None: not counted in this mode."""
    analytical_bytes_per_step: float | None
    coi: float | None
    """FLOP per byte; None: not counted."""
    analytical_coi: float | None
    bytes_per_second: float | None
    """Bandwidth of all links that this point uses; None: not measured."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A point under the roofline."""

    model: Literal["single node", "distributed"]
    subject: Literal["member", "ensemble"]
    nodes: int
    ranks: int
    flops: float
    """Attained FLOPS, in the convention that `RunPlacement` names."""
    ceiling: str
    ceiling_flops: float
    peak_flops: float | None
    links: tuple[PlacedLink, ...]
    """Classes of links in use; none with P_degree 1, where COI is infinite."""
    attainable_flops: float
    bound: str
    limit: str
    advice: tuple[Advice, ...]

    @property
    def above_roof(self) -> bool:
        """True if the run is faster than its roof: the ceilings were measured too low."""
        return is_above_roof(self.flops, attainable_flops=self.attainable_flops)


@dataclass(frozen=True, slots=True)
class RunPlacement:
    """A run under the ceilings of a machine: `roofline.json` in its folder."""

    run: str
    workload: str
    precision: str
    """Precision of training."""
    kernel_precision: str
    convention: str
    """Counting convention of the attained FLOPS; ceilings count 2 per multiply-add."""
    score_convention: str
    score_flops: float
    traffic_source: str
    """counted, analytical (a ring's, where the library decides), not counted, or none."""
    warnings: tuple[str, ...]
    placed: tuple[Placed, ...]
    ceilings: RooflineRecord
    memory_bytes_per_second: float | None = None
    """Memory traffic of one accelerator of a member, from the hardware counters of `ai500 profile
    --counters`; None: not measured."""
