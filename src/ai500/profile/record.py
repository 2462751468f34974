"""The records of a profile. A value that was not measured is None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ai500.profile.categories import Category
from ai500.records import Communication, Parallelism


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All calls of one kernel (on a CPU: of one operator, without those inside it)."""

    name: str
    category: Category | None
    """None: it matches no pattern of the tables."""
    seconds_per_step: float
    share: float
    calls_per_step: float
    operator: str | None
    """Operator that launched it most often; None: itself an operator, or not known."""


@dataclass(frozen=True, slots=True)
class CategoryTime:
    """One category of V2 Fig. 10; times are means over the ranks."""

    category: Category
    seconds_per_step: float
    share: float
    """Share of the time of all kernels."""
    calls_per_step: float
    operations_per_step: int | None
    """Operations of all ranks by the convention matmul (products only); None: not counted."""
    flops: float | None
    """Operations per second of one rank while such kernels run."""
    instructions_per_cycle: float | None = None
    dram_utilization: float | None = None
    """Share of the peak bandwidth, weighted by time."""


@dataclass(frozen=True, slots=True)
class Stages:
    """V2 Table 12 for one rank, seconds per step; docs/profile.md has the equations."""

    waiting_for_data: float
    queueing: float
    copy_in: float
    waiting_for_others: float
    negotiation: float
    all_reduce: float
    copy_out: float
    hidden: float
    """Part of the communication during which the rank computed."""
    exposed: float
    """Part of the communication during which nothing else ran."""


@dataclass(frozen=True, slots=True)
class CommunicationTime:
    """V2 Table 12 for every rank, and the mean of the ranks."""

    mean: Stages
    ranks: tuple[Stages, ...]
    buffers_per_step: float
    clock_uncertainty_seconds: float
    """Uncertainty between hosts; 0 where all ranks share a clock."""


@dataclass(frozen=True, slots=True)
class CountedOperations:
    """Operations of a training image by hardware counters, beside the analytical count."""

    counted_per_sample: float
    analytical_per_sample: float
    """Count by convention `matmul`: two operations per multiply-add of convolution or product."""

    @property
    def ratio(self) -> float:
        """Counted / analytical; above 1: normalization, element-wise work, padded tiles."""
        return self.counted_per_sample / self.analytical_per_sample


@dataclass(frozen=True, slots=True)
class PrecisionProfile:
    """One training precision; times are seconds per step, means over the ranks."""

    precision: str
    seconds_per_step: float
    """Duration of a step without the profiler."""
    profiled_seconds_per_step: float
    samples_per_second: float
    """Throughput of all ranks, without the profiler."""
    busy_share: float
    """Share of the device's time under the profiler in which any kernel ran."""
    kernel_seconds_per_step: float
    """Sum over kernels: more than the busy time where streams overlap."""
    categories: tuple[CategoryTime, ...]
    products_flops: float | None
    """Operations per second of one rank while convolutions and GEMMs run."""
    unknown_share: float
    unknown: tuple[KernelTime, ...]
    top: tuple[KernelTime, ...]
    waiting_for_data: float
    communication: CommunicationTime | None
    communication_missing: str | None
    """Reason why there is none."""
    counters_missing: str | None
    """Reason why there are no hardware counters; None: measured."""
    counted_operations: CountedOperations | None = None
    """Operations by hardware counters (V2 §7.2, Table 10)."""
    operations_missing: str | None = "not requested: --counters"
    """Reason why operations were not counted by hardware; None: counted."""

    @property
    def dram_utilization(self) -> float | None:
        """Share of the memory's peak bandwidth over a whole step; None: not counted."""
        counted = [(each.dram_utilization, each.seconds_per_step) for each in self.categories]
        known = [(share, seconds) for share, seconds in counted if share is not None]
        if not known:
            return None
        return sum(share * seconds for share, seconds in known) / self.seconds_per_step

    @property
    def idle_share(self) -> float:
        """Idle share of a step without the profiler, which slows down steps but not kernels."""
        busy = self.busy_share * self.profiled_seconds_per_step
        return max(0.0, 1 - busy / self.seconds_per_step)


@dataclass(frozen=True, slots=True)
class Profile:
    """`profile.json`."""

    FORMAT: ClassVar[int] = 1
    format: int
    version: str
    workload: str
    problem_class: str
    run: str | None
    """Name of the run whose configuration was profiled."""
    hosts: tuple[str, ...]
    device: str
    device_name: str
    torch: str
    parallel_degree: int
    parallel: Parallelism
    communication: Communication
    global_batch_size: int
    steps: int
    precisions: tuple[PrecisionProfile, ...]
