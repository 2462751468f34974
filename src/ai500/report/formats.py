"""Numbers as text: every one with its unit, and "not measured" where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ai500.core.units import human_si

NOT_MEASURED = "not measured"


def known(value: float | None, text: Callable[[float], str], missing: str = NOT_MEASURED) -> str:
    """Format a value, or say why there is none."""
    return missing if value is None else text(value)


def flops(value: float | None) -> str:
    """Format a rate in operations per second, or as not measured."""
    return known(value, lambda rate: f"{human_si(rate)}FLOPS")


def vflops(value: float | None) -> str:
    """Format a rate of valid operations per second (V3 Eq. 7), or as not measured."""
    return known(value, lambda rate: f"{human_si(rate)}VFLOPS")


def flop(value: float | None) -> str:
    """Format a count of operations, or as not measured."""
    return known(value, lambda count: f"{human_si(count)}FLOP")


def quality(value: float | None) -> str:
    """Format a quality with four decimals, or as not measured."""
    return known(value, "{:.4f}".format)


def variation_percent(value: float | None) -> str:
    """Format a variation in percent; None: too few trials, or one did not reach the target."""
    return known(value, lambda share: f"{100 * share:.3g}%")


def percent(share: float) -> str:
    """Format a share with two decimals, and never a small one as zero."""
    return "<0.01%" if 0 < share < 0.00005 else f"{share:.2%}"


def date_text(wall: float | None) -> str:
    """Format seconds since 1970 as a time of day, UTC."""
    if wall is None:
        return "at an unknown time"
    return time.strftime("%-d %B %Y, %H:%M UTC", time.gmtime(wall))


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: '1 wave', '2 waves'."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def first_of(values: Sequence[object], *, most: int) -> str:
    """List the first values, and the number of the others: 'a, b and 3 more'."""
    more = len(values) - most
    return ", ".join(map(str, values[:most])) + (f" and {more:,} more" if more > 0 else "")
