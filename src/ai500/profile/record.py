"""What a profile says, as it is kept on disk. A value that was not measured is None."""

from __future__ import annotations

from dataclasses import dataclass

from ai500.profile.categories import Category
from ai500.records import Communication, Parallelism

FORMAT = 1


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All calls of one kernel (on a CPU: of one operator, without those inside it)."""

    name: str
    category: Category | None
    """None: no row of the table knows it."""
    seconds_per_step: float
    share: float
    calls_per_step: float
    operator: str | None
    """Which launched it; None: itself an operator, or not known."""


@dataclass(frozen=True, slots=True)
class CategoryTime:
    """One category of V2 Fig. 10; times are means over the ranks."""

    category: Category
    seconds_per_step: float
    share: float
    """Of the time of all kernels."""
    calls_per_step: float
    operations_per_step: int | None
    """Of all ranks, in the convention matmul, which counts products alone; None: not counted."""
    flops: float | None
    """Of one rank while such kernels run."""
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
    """The rest: nothing else ran."""


@dataclass(frozen=True, slots=True)
class CommunicationTime:
    """Where communication time goes."""

    mean: Stages
    ranks: tuple[Stages, ...]
    buffers_per_step: float
    clock_uncertainty_seconds: float
    """Between hosts; 0 where all ranks share a clock."""


@dataclass(frozen=True, slots=True)
class PrecisionProfile:
    """One training precision; times are seconds per step, means over the ranks."""

    precision: str
    seconds_per_step: float
    """Without the profiler."""
    profiled_seconds_per_step: float
    images_per_second: float
    """Of all ranks, without the profiler."""
    busy_share: float
    """Of the device's time under the profiler in which any kernel ran."""
    kernel_seconds_per_step: float
    """Sum over kernels: more than the busy time where streams overlap."""
    categories: tuple[CategoryTime, ...]
    products_flops: float | None
    """Convolution and GEMM together; of one rank while they run."""
    unknown_share: float
    unknown: tuple[KernelTime, ...]
    top: tuple[KernelTime, ...]
    waiting_for_data: float
    communication: CommunicationTime | None
    communication_missing: str | None
    """Why there is none."""
    counters_missing: str | None
    """Why no hardware counters; None: measured."""

    @property
    def idle_share(self) -> float:
        """Of a step without the profiler, which makes steps longer and kernels not."""
        busy = self.busy_share * self.profiled_seconds_per_step
        return max(0.0, 1 - busy / self.seconds_per_step)


@dataclass(frozen=True, slots=True)
class Profile:
    """`profile.json`."""

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
