"""What a roofline is on disk: raw times of kernels and links, and a run placed under them.

Ceilings and fits are computed from the times, never stored beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Literal

from ai500.records import System

FORMAT = 1
KERNEL_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")
KERNELS = ("gemm", "conv")
Scope = Literal["inside_node", "between_nodes"]
LinkKind = Literal["all_reduce", "point_to_point"]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel on one shape in one precision: the median of its samples."""

    kernel: Literal["gemm", "conv"]
    precision: str
    shape: str
    operations: int
    """2 for each multiply-add."""
    seconds: float
    """Of one call while the device is kept busy with such calls."""
    samples: int
    burst_seconds: float | None = None
    """Of one of the first few calls after a rest: what power and heat did not slow yet."""

    @property
    def flops(self) -> float:
        """Operations per second, sustained."""
        return self.operations / self.seconds

    @property
    def best_flops(self) -> float:
        """Operations per second of a short burst, where one was timed and is faster."""
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
        """Read and written."""
        return self.bytes / self.seconds


@dataclass(frozen=True, slots=True)
class LinkTime:
    """A message of `bytes` over one class of links; the slowest rank's median."""

    kind: LinkKind
    scope: Scope
    ranks: int
    """That take part in one all-reduce; 2 from point to point."""
    groups: int
    """All-reduces of this kind that ran side by side on each node."""
    bytes: int
    seconds: float
    samples: int


@dataclass(frozen=True, slots=True)
class Peak:
    """A theoretical peak, or why it can't be derived."""

    what: str
    """A precision, or `memory`."""
    value: float | None
    """FLOPS, or bytes per second, of all units together."""
    how: str


@dataclass(frozen=True, slots=True)
class RooflineRecord:
    """What one node, and the links between several, can do."""

    format: int
    version: str
    measured_at: str
    complete: bool
    """False: the measurement was interrupted; what is here was measured."""
    system: System
    device: str
    device_name: str
    unit: Literal["accelerator", "core"]
    units: int
    """Accelerators, or CPU cores, that the kernels ran on together."""
    seconds: float
    """Time that the kernels were given."""
    kernels: tuple[KernelTime, ...] = ()
    memory: tuple[MemoryTime, ...] = ()
    links: tuple[LinkTime, ...] = ()
    peaks: tuple[Peak, ...] = ()
    unavailable: tuple[tuple[str, str], ...] = ()
    """What was not measured → why."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A kernel's best and typical FLOPS over its shapes."""

    kernel: str
    precision: str
    flops: float
    """In a short burst."""
    sustained_flops: float
    """Of the same shape."""
    typical_flops: float
    """The median over shapes, sustained."""
    shape: str
    """Of the best."""

    @property
    def name(self) -> str:
        """As a figure labels it."""
        return f"{self.kernel.upper()} {self.precision.upper()}"


def ceilings(record: RooflineRecord) -> list[Ceiling]:
    """Best and median over shapes, of each kernel and precision that was measured."""
    found = []
    for kernel in KERNELS:
        for precision in KERNEL_PRECISIONS:
            mine = [
                one for one in record.kernels if one.kernel == kernel and one.precision == precision
            ]
            if mine:
                best = max(mine, key=lambda one: one.best_flops)
                typical = median(one.flops for one in mine)
                found.append(
                    Ceiling(kernel, precision, best.best_flops, best.flops, typical, best.shape)
                )
    return found


def roof_flops(record: RooflineRecord, ceiling: Ceiling) -> float:
    """At most its precision's theoretical peak.

    A kernel above it does fewer multiplications than are counted (Winograd), which says nothing of
    what other shapes can have.
    """
    peak = peak_of(record, ceiling.precision)
    return ceiling.flops if peak is None else min(ceiling.flops, peak)


def above_peak(record: RooflineRecord) -> list[Ceiling]:
    """Ceilings of a fast algorithm."""
    return [one for one in ceilings(record) if one.flops > roof_flops(record, one)]


def units_of_node(record: RooflineRecord) -> int:
    """How often a node has what the kernels ran on: its accelerators, or all of its cores at once.

    As many as the system tells of, or as took part when links were measured.
    """
    if record.unit == "core":
        return 1
    told = len(record.system.accelerators) or 1
    inside = [one.ranks for one in record.links if one.scope == "inside_node"]
    between = [one.groups for one in record.links if one.scope == "between_nodes"]
    return max([told, *inside, *between]) // record.units


def memory_bandwidth(record: RooflineRecord) -> float | None:
    """The best over kernels and sizes; None: not measured."""
    return max((one.bytes_per_second for one in record.memory), default=None)


def peak_of(record: RooflineRecord, what: str) -> float | None:
    """The theoretical peak of a precision [D10] or of `memory`; None: not derivable."""
    found = (one.value for one in record.peaks if one.what == what)
    return next(found, None)


def links_of(times: Iterable[LinkTime], *, kind: LinkKind, scope: Scope) -> list[LinkTime]:
    """The times of one kind over one class of links."""
    return [one for one in times if one.kind == kind and one.scope == scope]


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that the run could have, and what the model allows it at most."""

    change: str
    setting: str
    """What to set in ai500.toml."""
    coi_factor: float
    ceiling_factor: float
    bound_after: str
    at_most: float | None
    """Roof after over roof before: what a run at its roof gains; None: roofs are missing."""
    never_more: float | None
    """Roof after over what the run attains now; None: roofs are missing."""
    text: str


@dataclass(frozen=True, slots=True)
class PlacedLink:
    """What a run sends over one class of links, per optimizer step of one member."""

    scope: Scope
    bytes_per_step: float | None
    """As the collectives counted it, all ranks together; None: nobody counts it in this mode."""
    analytical_bytes_per_step: float | None
    coi: float | None
    """FLOP per byte; None: not counted."""
    analytical_coi: float | None
    bytes_per_second: float | None
    """Of all links that this point uses; None: not measured."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A point under the roofline."""

    model: Literal["single node", "distributed"]
    what: Literal["member", "ensemble"]
    nodes: int
    ranks: int
    flops: float
    """Attained, in the convention that `RunPlacement` names."""
    ceiling: str
    ceiling_flops: float
    peak_flops: float | None
    links: tuple[PlacedLink, ...]
    """Classes over which something is sent; none with P_degree 1: COI is infinite."""
    attainable_flops: float
    bound: str
    limit: str
    advice: tuple[Advice, ...]


@dataclass(frozen=True, slots=True)
class RunPlacement:
    """A run under the ceilings of a machine: `roofline.json` in its folder."""

    run: str
    workload: str
    precision: str
    """Of training."""
    kernel_precision: str
    convention: str
    """By which the attained FLOPS are counted here; ceilings count 2 for each multiply-add."""
    score_convention: str
    score_flops: float
    bytes: str
    """counted, analytical (a ring's, where the library decides), not counted, or none."""
    warnings: tuple[str, ...]
    placed: tuple[Placed, ...]
    ceilings: RooflineRecord
