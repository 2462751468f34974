"""Sets of time: intervals in nanoseconds, put together and cut with each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint and in order, covering the same time."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def length(disjoint: Iterable[Interval]) -> int:
    """Their whole time."""
    return sum(end - start for start, end in disjoint)


def common(first: Sequence[Interval], second: Sequence[Interval]) -> int:
    """Time that two unions share."""
    total = i = j = 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        total += max(0, end - start)
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total
