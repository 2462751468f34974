"""Human-readable numbers for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterable

_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def si_prefix(value: float) -> tuple[float, str]:
    """Return factor and symbol of the largest SI prefix not above `value` rounded to 4 digits."""
    rounded = abs(float(f"{value:.4g}"))  # so that 999 999 becomes 1 M and not 1000 k
    return next(((f, prefix) for f, prefix in _PREFIXES if rounded >= f), (1.0, ""))


def human_si(value: float) -> str:
    """Format 1.23e9 as '1.23 G', ready for a unit."""
    factor, prefix = si_prefix(value)
    return f"{value / factor:.4g} {prefix}"


def human_bytes(value: float) -> str:
    """Format bytes with a decimal prefix."""
    return f"{human_si(value)}B"


def human_seconds(value: float) -> str:
    """Format seconds as ms, s, min or h: the one rule for durations."""
    if abs(value) < 0.9995:
        return f"{value * 1000:.3g} ms" if value else "0 s"
    return f"{value:.1f} s" if value < 99.95 else whole_seconds(value)


def whole_seconds(value: float) -> str:
    """Format a duration that changes while it is read: the same rule, without fractions."""
    if round(value) < 100:
        return f"{round(value)} s"
    minutes, seconds = divmod(round(value), 60)
    if minutes < 100:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers with consecutive ones joined: 0, 1, 2, 5 as '0–2, 5'."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
