"""Numbers as text: every one with its unit, and "not measured" where there is none."""

from __future__ import annotations

from collections.abc import Iterable

from ai500.core.units import human_si

NOT_MEASURED = "not measured"


def flops(value: float | None) -> str:
    """Format a rate in operations per second, or as not measured."""
    return NOT_MEASURED if value is None else f"{human_si(value)}FLOPS"


def flop(value: float | None) -> str:
    """Format a count of operations, or as not measured."""
    return NOT_MEASURED if value is None else f"{human_si(value)}FLOP"


def quality(value: float | None) -> str:
    """Format a quality with four decimals, or as not measured."""
    return NOT_MEASURED if value is None else f"{value:.4f}"


def variation_percent(value: float | None) -> str:
    """Format a variation in percent; None: too few trials, or one did not reach the target."""
    return NOT_MEASURED if value is None else f"{100 * value:.3g} %"


def percent(share: float) -> str:
    """Format a share with two decimals, and never a small one as zero."""
    return "<0.01%" if 0 < share < 0.00005 else f"{share:.2%}"


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: '1 wave', '2 waves'."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers with consecutive ones joined: 0, 1, 2, 5 as '0–2, 5'."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
