"""The profile of one precision, from the traces of all ranks (V2 §7.3.2, Fig. 10)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from ai500.parallel.spans import REDUCE
from ai500.profile import communication
from ai500.profile.categories import CATEGORIES, Category
from ai500.profile.counters import CategoryCounters
from ai500.profile.intervals import length, union
from ai500.profile.record import CategoryTime, CommunicationTime, KernelTime, PrecisionProfile
from ai500.profile.trace import RankTrace
from ai500.records import Parallelism
from ai500.records.profiling import RankCapture

TOP_KERNELS = 20
UNKNOWN_KERNELS = 50
COUNTED: dict[str, Category] = {
    "convolution": "convolution",
    "dense": "GEMM",
    "matmul": "GEMM",
    "attention": "GEMM",
}
"""Kinds of operations whose category is known; the convention `matmul` counts no others."""
REROUTED = ("fp8", "int8")
"""Precisions whose convolutions run as matrix products, which makes the two indistinguishable."""
FUSED_KERNEL = "linear_normal"
"""Kernel of every step with our fused kernels (workloads/kernels), which mix the two as well."""
PRODUCTS: tuple[Category, ...] = ("convolution", "GEMM")


@dataclass(slots=True)
class _Calls:
    """All calls of a kernel."""

    nanoseconds: int = 0
    count: int = 0
    operators: Counter[str] = field(default_factory=Counter)


def precision_profile(
    precision: str,
    captures: Sequence[RankCapture],
    traces: Sequence[RankTrace],
    *,
    steps: int,
    parallel: Parallelism,
) -> PrecisionProfile:
    """Compute everything that needs no hardware counters."""
    sums = _sums(traces)
    total = sum(kernel.nanoseconds for kernel in sums.values())
    per_step = 1 / (steps * len(traces))
    kernels = [
        _kernel_time(key, kernel, per_step=per_step, total=total) for key, kernel in sums.items()
    ]
    kernels.sort(key=lambda kernel: -kernel.seconds_per_step)
    unknown = [kernel for kernel in kernels if kernel.category is None]
    seconds = sum(capture.seconds_per_step for capture in captures) / len(captures)
    windows = [trace.window for trace in traces]
    stages, stages_missing = _communication(captures, traces, steps=steps, parallel=parallel)
    operations = captures[0].operations_per_step
    distinguishable = (
        precision not in REROUTED
        and not any(kernel.name == FUSED_KERNEL for kernel in kernels)
        # On a CPU operators are timed, which are never replayed.
        and not (any(trace.on_accelerator for trace in traces) and _mostly_replayed(kernels))
    )
    categories = _categories(
        kernels, operations, distinguishable=distinguishable, ranks=len(traces)
    )
    return PrecisionProfile(
        precision=precision,
        seconds_per_step=seconds,
        profiled_seconds_per_step=sum(b - a for a, b in windows) / 1e9 / steps / len(windows),
        samples_per_second=captures[0].samples_per_step / seconds,
        busy_share=sum(map(_busy_share, traces)) / len(traces),
        kernel_seconds_per_step=total * per_step / 1e9,
        categories=categories,
        products_flops=_products_flops(categories, operations, ranks=len(traces)),
        unknown_share=sum(kernel.share for kernel in unknown),
        unknown=tuple(unknown[:UNKNOWN_KERNELS]),
        top=tuple(kernels[:TOP_KERNELS]),
        waiting_for_data=sum(communication.waiting_for_data(trace, steps=steps) for trace in traces)
        / len(traces),
        communication=stages,
        communication_missing=stages_missing,
        counters_missing="not requested: --counters",
    )


def with_counters(
    profile: PrecisionProfile, counters: Mapping[Category, CategoryCounters]
) -> PrecisionProfile:
    """Add the hardware counters of each category."""
    categories = tuple(
        replace(time, **asdict(counters[time.category])) if time.category in counters else time
        for time in profile.categories
    )
    return replace(profile, categories=categories, counters_missing=None)


def _sums(traces: Sequence[RankTrace]) -> dict[tuple[str, Category | None], _Calls]:
    sums: dict[tuple[str, Category | None], _Calls] = defaultdict(_Calls)
    for trace in traces:
        for kernel in trace.kernels:
            calls = sums[kernel.name, kernel.category]
            calls.nanoseconds += kernel.busy
            calls.count += 1
            if kernel.operator is not None:
                calls.operators[kernel.operator] += 1
    return sums


def _kernel_time(
    key: tuple[str, Category | None], calls: _Calls, *, per_step: float, total: int
) -> KernelTime:
    name, category = key
    usual = calls.operators.most_common(1)
    return KernelTime(
        name=name,
        category=category,
        seconds_per_step=calls.nanoseconds * per_step / 1e9,
        share=calls.nanoseconds / total if total else 0.0,
        calls_per_step=calls.count * per_step,
        operator=usual[0][0] if usual else None,
    )


def _categories(
    kernels: Sequence[KernelTime],
    operations: Mapping[str, int],
    *,
    distinguishable: bool,
    ranks: int,
) -> tuple[CategoryTime, ...]:
    """Sum kernels by category; FLOPS only if convolutions and products are distinguishable."""
    times = []
    for category in CATEGORIES:
        members = [kernel for kernel in kernels if kernel.category == category]
        seconds = sum(kernel.seconds_per_step for kernel in members)
        counted = sum(n for kind, n in operations.items() if COUNTED.get(kind) == category)
        times.append(
            CategoryTime(
                category=category,
                seconds_per_step=seconds,
                share=sum(kernel.share for kernel in members),
                calls_per_step=sum(kernel.calls_per_step for kernel in members),
                operations_per_step=counted or None,
                flops=_rate(counted, seconds, ranks=ranks) if distinguishable else None,
            )
        )
    return tuple(times)


def _mostly_replayed(kernels: Sequence[KernelTime]) -> bool:
    """Return True if most products come from a replayed CUDA graph.

    No operator launches the kernels of a replay, and by name alone a convolution that cuDNN
    computes with `nvjet` or CUTLASS looks like a matrix product.
    """
    products = [kernel for kernel in kernels if kernel.category in PRODUCTS]
    launched = sum(kernel.seconds_per_step for kernel in products if kernel.operator is not None)
    return 2 * launched < sum(kernel.seconds_per_step for kernel in products)


def _products_flops(
    categories: Sequence[CategoryTime], operations: Mapping[str, int], *, ranks: int
) -> float | None:
    seconds = sum(time.seconds_per_step for time in categories if time.category in PRODUCTS)
    counted = sum(number for kind, number in operations.items() if kind in COUNTED)
    return _rate(counted, seconds, ranks=ranks)


def _rate(operations: int, seconds: float, *, ranks: int) -> float | None:
    return operations / (seconds * ranks) if seconds and operations else None


def _busy_share(trace: RankTrace) -> float:
    """Return the share of the window in which any kernel runs."""
    first, last = trace.window
    intervals = (kernel.interval for kernel in trace.kernels)
    inside = ((max(first, start), min(last, end)) for start, end in intervals)
    return length(union(inside)) / (last - first)


def _communication(
    captures: Sequence[RankCapture],
    traces: Sequence[RankTrace],
    *,
    steps: int,
    parallel: Parallelism,
) -> tuple[CommunicationTime | None, str | None]:
    """Compute V2 Table 12, or the reason why there is none."""
    if len(traces) == 1:
        return None, "a member is one rank: nothing is sent"
    if not any(span.mark.phase == REDUCE for trace in traces for span in trace.spans):
        how = "FSDP2" if parallel.sharded else f"parallel.mode = {parallel.mode!r}"
        return None, (
            f"{how} communicates by itself, not through the traced collectives; its time is in the "
            "category all-reduce"
        )
    uncertainty = max(capture.clock_uncertainty_seconds for capture in captures)
    return communication.table(traces, steps=steps, uncertainty=uncertainty), None
