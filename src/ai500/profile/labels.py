"""Numbers and names of a profile as text, on the terminal and on the page."""

from __future__ import annotations

from ai500.core.units import human_si
from ai500.profile.record import CategoryTime, PrecisionProfile
from ai500.report.formats import known, percent

STAGES = {
    "negotiation": "negotiation",
    "waiting_for_data": "waiting for data",
    "waiting_for_others": "waiting for others",
    "queueing": "queueing",
    "copy_in": "copy in",
    "all_reduce": "all-reduce",
    "copy_out": "copy out",
    "hidden": "hidden by computation",
    "exposed": "not hidden",
}
"""Rows of V2 Table 12, and the overlap of communication and computation."""
MEANINGS = {
    "negotiation": "all ranks have their gradients, not all have entered the exchange",
    "waiting_for_data": "the training loop waits for its next batch",
    "waiting_for_others": "in an exchange, while another rank's gradients are not ready",
    "queueing": "gradients are ready, another buffer is being reduced",
    "copy_in": "scaling, compression",
    "all_reduce": "the exchange itself, once all ranks are in it",
    "copy_out": "decompression, means",
    "hidden": "communication while the rank computes",
    "exposed": "communication while nothing else runs",
}


def number(value: float) -> str:
    """Format a value with three digits, and never a small one as zero."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else ("0" if value == 0 else "<0.001")


def milliseconds(seconds: float) -> str:
    """Format seconds in milliseconds, without the unit."""
    return number(seconds * 1000)


def flops(value: float | None) -> str:
    """Format a rate with its prefix; a dash where operations are not counted."""
    return known(value, lambda rate: human_si(rate).strip(), "–")


def counters(time: CategoryTime) -> tuple[str, str]:
    """Format instructions per cycle and use of DRAM; a dash where they are not measured."""
    return (
        known(time.instructions_per_cycle, "{:.2f}".format, "–"),
        known(time.dram_utilization, percent, "–"),
    )


def category_cells(part: PrecisionProfile) -> list[tuple[str, ...]]:
    """Format share, milliseconds, FLOPS and counters of each category, then of unknown kernels."""
    cells = [
        (
            percent(time.share),
            milliseconds(time.seconds_per_step),
            flops(time.flops),
            *counters(time),
        )
        for time in part.categories
    ]
    unknown = part.unknown_share * part.kernel_seconds_per_step
    return [*cells, (percent(part.unknown_share), milliseconds(unknown), "–", "–", "–")]


def operations_text(part: PrecisionProfile) -> str:
    """Compare operations by hardware counters with the analytical count (V2 Table 10)."""
    counted = part.counted_operations
    if counted is None:
        return f"not measured by hardware counters, {part.operations_missing}"
    return (
        f"{human_si(counted.counted_per_sample)}FLOP by hardware counters, "
        f"{human_si(counted.analytical_per_sample)}FLOP analytical (matmul): ratio "
        f"{counted.ratio:.3f}"
    )
