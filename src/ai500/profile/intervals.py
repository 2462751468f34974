"""Sets of time as intervals in nanoseconds: their union, length and intersection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals in order that cover the same time."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def length(disjoint: Iterable[Interval]) -> int:
    """Return the total time of disjoint intervals."""
    return sum(end - start for start, end in disjoint)


def common(first: Sequence[Interval], second: Sequence[Interval]) -> int:
    """Return the time that two unions share."""
    total = i = j = 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        total += max(0, end - start)
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total
