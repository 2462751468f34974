"""From the traces of all ranks to the profile of one precision (V2 §7.3.2, Fig. 10)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
"""Precisions in which convolutions run as matrix products: one can't be told from the other."""
FUSED_KERNEL = "linear_normal"
"""Nor in a step of ours (workloads/kernels), of which this one is always a part."""
PRODUCTS: tuple[Category, ...] = ("convolution", "GEMM")


@dataclass(slots=True)
class _Sum:
    nanoseconds: int = 0
    calls: int = 0
    operators: Counter[str] = field(default_factory=Counter)


Sums = Mapping[tuple[str, Category | None], _Sum]


def precision_profile(
    precision: str,
    captures: Sequence[RankCapture],
    traces: Sequence[RankTrace],
    *,
    steps: int,
    parallel: Parallelism,
) -> PrecisionProfile:
    """All that is known without hardware counters."""
    sums = _sums(traces)
    total = sum(one.nanoseconds for one in sums.values())
    per_step = 1 / (steps * len(traces))
    kernels = [_kernel_time(key, one, per_step=per_step, total=total) for key, one in sums.items()]
    kernels.sort(key=lambda one: -one.seconds_per_step)
    unknown = [one for one in kernels if one.category is None]
    seconds = sum(one.seconds_per_step for one in captures) / len(captures)
    windows = [trace.window for trace in traces]
    found, missing = _communication(captures, traces, steps=steps, parallel=parallel)
    operations = captures[0].operations_per_step
    apart = (
        precision not in REROUTED
        and not any(one.name == FUSED_KERNEL for one in kernels)
        # On a CPU operators are what is timed.
        and not (any(one.on_accelerator for one in traces) and _mostly_replayed(kernels))
    )
    categories = _categories(kernels, operations, apart=apart, ranks=len(traces))
    return PrecisionProfile(
        precision=precision,
        seconds_per_step=seconds,
        profiled_seconds_per_step=sum(b - a for a, b in windows) / 1e9 / steps / len(windows),
        images_per_second=captures[0].images_per_step / seconds,
        busy_share=sum(map(_busy_share, traces)) / len(traces),
        kernel_seconds_per_step=total * per_step / 1e9,
        categories=categories,
        products_flops=_products_flops(categories, operations, ranks=len(traces)),
        unknown_share=sum(one.share for one in unknown),
        unknown=tuple(unknown[:UNKNOWN_KERNELS]),
        top=tuple(kernels[:TOP_KERNELS]),
        waiting_for_data=sum(communication.waiting_for_data(one, steps=steps) for one in traces)
        / len(traces),
        communication=found,
        communication_missing=missing,
        counters_missing="not asked for: --counters",
    )


def with_counters(
    profile: PrecisionProfile, found: Mapping[Category, CategoryCounters]
) -> PrecisionProfile:
    """The same with what the hardware counted."""
    categories = tuple(
        replace(
            one,
            instructions_per_cycle=found[one.category].instructions_per_cycle,
            dram_utilization=found[one.category].dram_utilization,
        )
        if one.category in found
        else one
        for one in profile.categories
    )
    return replace(profile, categories=categories, counters_missing=None)


def _sums(traces: Sequence[RankTrace]) -> dict[tuple[str, Category | None], _Sum]:
    sums: dict[tuple[str, Category | None], _Sum] = defaultdict(_Sum)
    for trace in traces:
        for kernel in trace.kernels:
            one = sums[kernel.name, kernel.category]
            one.nanoseconds += kernel.busy
            one.calls += 1
            if kernel.operator is not None:
                one.operators[kernel.operator] += 1
    return sums


def _kernel_time(
    key: tuple[str, Category | None], one: _Sum, *, per_step: float, total: int
) -> KernelTime:
    name, category = key
    usual = one.operators.most_common(1)
    return KernelTime(
        name=name,
        category=category,
        seconds_per_step=one.nanoseconds * per_step / 1e9,
        share=one.nanoseconds / total if total else 0.0,
        calls_per_step=one.calls * per_step,
        operator=usual[0][0] if usual else None,
    )


def _categories(
    kernels: Sequence[KernelTime], operations: Mapping[str, int], *, apart: bool, ranks: int
) -> tuple[CategoryTime, ...]:
    """`apart`: convolutions can be told from matrix products."""
    found = []
    for category in CATEGORIES:
        mine = [one for one in kernels if one.category == category]
        seconds = sum(one.seconds_per_step for one in mine)
        counted = sum(n for kind, n in operations.items() if COUNTED.get(kind) == category)
        told = bool(counted) and apart
        found.append(
            CategoryTime(
                category=category,
                seconds_per_step=seconds,
                share=sum(one.share for one in mine),
                calls_per_step=sum(one.calls_per_step for one in mine),
                operations_per_step=counted or None,
                flops=counted / (seconds * ranks) if told and seconds else None,
            )
        )
    return tuple(found)


def _mostly_replayed(kernels: Sequence[KernelTime]) -> bool:
    """Do most products come from a recorded step (a CUDA graph)?

    No operator launches its kernels, and by their names alone a convolution that cuDNN computes by
    `nvjet` or CUTLASS is a matrix product.
    """
    products = [one for one in kernels if one.category in PRODUCTS]
    named = sum(one.seconds_per_step for one in products if one.operator is not None)
    return 2 * named < sum(one.seconds_per_step for one in products)


def _products_flops(
    categories: Sequence[CategoryTime], operations: Mapping[str, int], *, ranks: int
) -> float | None:
    seconds = sum(one.seconds_per_step for one in categories if one.category in PRODUCTS)
    counted = sum(number for kind, number in operations.items() if kind in COUNTED)
    return counted / (seconds * ranks) if seconds and counted else None


def _busy_share(trace: RankTrace) -> float:
    """Of the window, the part in which any kernel runs."""
    first, last = trace.window
    inside = ((max(first, a), min(last, b)) for a, b in (one.interval for one in trace.kernels))
    return length(union(inside)) / (last - first)


def _communication(
    captures: Sequence[RankCapture],
    traces: Sequence[RankTrace],
    *,
    steps: int,
    parallel: Parallelism,
) -> tuple[CommunicationTime | None, str | None]:
    """Table 12, or why there is none."""
    if len(traces) == 1:
        return None, "a member is one rank: nothing is sent"
    if not any(span.mark.phase == REDUCE for trace in traces for span in trace.spans):
        how = "FSDP2" if parallel.sharded else f"parallel.mode = {parallel.mode!r}"
        return None, (
            f"{how} sends by itself, not through the collectives that are watched; its time is in "
            "the category all-reduce"
        )
    uncertainty = max(one.clock_uncertainty_seconds for one in captures)
    return communication.table(traces, steps=steps, uncertainty=uncertainty), None
