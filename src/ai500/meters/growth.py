"""Growth of a trial's meters: what each device counted from its first sample to its last.

A counter that a recorder starts anew, or that a reboot resets, counts from 0 again: the growths of
all recorders are added. Only the first and the last sample of each list of columns are parsed,
since the log of a long run has thousands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ai500.core import events
from ai500.core.reading import read_lines
from ai500.meters.log import Column, Head, columns_of, head_of, valid

_HEAD, _COLUMNS, _SAMPLE = (f'{{"event": "{kind}"' for kind in ("meters", "columns", "sample"))

Values = dict[Column, tuple[float, float]]
"""Column → (monotonic time, value) of a sample."""


@dataclass(frozen=True, slots=True)
class Growth:
    """One quantity of one device in a trial."""

    host: str
    column: Column
    growth: float
    """Last value − first, added over the recorders."""
    seconds: float
    """Time between those samples."""
    last: float


def device_growths(folder: Path) -> list[Growth]:
    """Return the growth of each quantity of each device in a trial's folder of meters.

    Members of a node may record the same device: its largest growth counts.
    """
    largest: dict[Column, Growth] = {}
    for file in sorted(folder.glob("*.jsonl")):
        for growth in _file_growths(file):
            known = largest.get(growth.column)
            if known is None or (growth.growth, growth.seconds) > (known.growth, known.seconds):
                largest[growth.column] = growth
    return list(largest.values())


def _file_growths(file: Path) -> list[Growth]:
    total: dict[Column, Growth] = {}
    for head, first, last in _recorders(file):
        for column, (end, value) in last.items():
            start, before = first[column]
            growth = value - before if value >= before else value
            seconds = end - start
            if (earlier := total.get(column)) is not None:
                growth, seconds = growth + earlier.growth, seconds + earlier.seconds
            total[column] = Growth(head.host[0], column, growth, seconds, value)
    return list(total.values())


def _recorders(file: Path) -> Iterator[tuple[Head, Values, Values]]:
    """Yield each recorder's head, and the first and last value of each of its columns."""
    head: Head | None = None
    columns: list[Column] = []
    first: Values = {}
    last: Values = {}
    ends: list[str] = []  # first and last sample of these columns

    def read_ends() -> None:
        for sample in ends:
            values = _values(columns, _parsed(sample))
            last.update(values)
            first.update({column: pair for column, pair in values.items() if column not in first})
        ends.clear()

    for _, line in read_lines(file):
        if line.startswith(_SAMPLE):
            ends[1:] = [line]
        elif line.startswith((_HEAD, _COLUMNS)):
            read_ends()
            event = _parsed(line)
            if line.startswith(_HEAD):
                if head is not None:
                    yield head, first, last
                head, columns, first, last = head_of(event), [], {}, {}
            elif head is not None:
                columns = columns_of(head, event.get("columns"))
    read_ends()
    if head is not None:
        yield head, first, last


def _parsed(line: str) -> events.Event:
    return events.parse(line, path=Path(), number=0) or {}


def _values(columns: list[Column], sample: events.Event) -> Values:
    values, at = sample.get("values"), sample.get("monotonic")
    if not isinstance(values, list) or len(values) != len(columns) or not valid(at):
        return {}
    return {
        column: (at, value)  # type: ignore[misc]
        for column, value in zip(columns, values, strict=True)
        if valid(value)
    }
