"""Reader of meter logs, node by node; `recorder.py` documents the lines.

A log may come from an untrusted submission: malformed lines are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ai500.core import events, schema
from ai500.core.events import Event
from ai500.core.schema import SchemaError
from ai500.meters import Part

MAX_COLUMNS = 100_000
MAX_VALUE = 1e24  # no counter of bytes, joules or hertz gets there
# The coverage of a score contains the names of meters that are plugins.
MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity of one device."""

    node: str
    meter: str
    device: str
    quantity: str
    wraps_at: float | None


@dataclass(frozen=True, slots=True)
class Head:
    """First line of a recorder."""

    host: tuple[str, str]
    member: int
    trial: int
    period_seconds: float
    covers: dict[str, tuple[Part, ...]]
    absent: dict[str, str]


_HEAD_FIELDS = ("member", "trial", "period_seconds", "covers", "absent")


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of all columns at one moment."""

    recorder: int
    """Index of its head in the node's log."""
    clocks: Event
    columns: Sequence[Column]
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class NodeLog:
    """Log of all recorders of one node in one trial."""

    name: str
    heads: Sequence[Head]
    samples: Sequence[Sample]


Point = tuple[float, float]
"""(time, value)."""


@dataclass(slots=True)
class _Last:
    """Series of a column so far, and its last sample."""

    column: Column
    at: float = -math.inf
    recorder: int | None = None
    points: list[Point] = field(default_factory=list)


def read_meters(folder: Path) -> Iterator[NodeLog]:
    """Yield the logs of a trial node by node, so that memory holds one node at a time."""
    files = sorted((_node_of(file), file) for file in folder.glob("*.jsonl"))
    for _, node_files in groupby(files, key=lambda entry: entry[0]):
        heads: list[Head] = []
        samples: list[Sample] = []
        for _, file in node_files:
            _read_file(file, heads, samples)
        if heads:
            yield NodeLog(heads[0].host[0], heads, samples)


def _node_of(file: Path) -> str:
    """Identify the node by its boot id, which containers of one node share; their names differ."""
    first: Event = next(events.read(file), {})
    return str(first.get("boot") or first.get("host"))


def _read_file(file: Path, heads: list[Head], samples: list[Sample]) -> None:
    head: Head | None = None
    columns: list[Column] = []
    for line in events.read(file):
        if line["event"] == "meters":
            columns, head = [], head_of(line)
            if head is not None:
                heads.append(head)
        elif head is None:
            continue
        elif line["event"] == "columns":
            columns = columns_of(head, line.get("columns"))
        elif line["event"] == "sample" and columns:
            values = line.get("values")
            times = (line.get("wall"), line.get("monotonic"))
            if isinstance(values, list) and len(values) == len(columns) and all(map(valid, times)):
                clocks = {"wall": times[0], "monotonic": times[1]}
                clocks |= {"host": head.host[0], "boot": head.host[1]}
                known = [value if valid(value) else None for value in values]
                samples.append(Sample(len(heads) - 1, clocks, columns, known))


def head_of(line: Event) -> Head | None:
    """Read a recorder's first line; None for a malformed one."""
    fields = {name: line.get(name) for name in _HEAD_FIELDS}
    host = (str(line.get("host")), str(line.get("boot")))
    try:
        head = schema.decode(Head, fields | {"host": host})
    except SchemaError:
        return None
    return None if any(len(name) > MAX_NAME for name in head.covers) else head


def columns_of(head: Head, rows: Any) -> list[Column]:
    """Read a line of columns; no columns of a malformed one."""
    if not isinstance(rows, list) or len(rows) > MAX_COLUMNS:
        return []
    columns = []
    whole, boot = "/".join(head.host), head.host[1]
    for row in rows:
        if not isinstance(row, list) or len(row) != 4:
            return []
        meter, device, quantity, wraps_at = row
        limit = float(wraps_at) if valid(wraps_at) and wraps_at > 0 else None
        # Containers of a node share its devices, but each has its own network interfaces.
        own = str(quantity).startswith("network_") or not boot
        node = whole if own else boot
        columns.append(Column(node, str(meter), str(device), str(quantity), limit))
    return columns


def valid(value: object) -> bool:
    """Return True for a number in the range of meters."""
    return isinstance(value, int | float) and type(value) is not bool and abs(value) < MAX_VALUE


def series(log: NodeLog, time_of: Callable[[Event], float | None]) -> dict[Column, list[Point]]:
    """Merge the samples of all recorders into one series per column.

    Clock readings and values of two recorders differ by milliseconds, so that a counter would
    seem to decrease: another recorder's sample is used only half a period after the last one.
    """
    timed = ((time_of(sample.clocks), i, sample) for i, sample in enumerate(log.samples))
    ordered = sorted(
        ((at, i, sample) for at, i, sample in timed if at is not None),
        key=lambda entry: entry[:2],
    )
    last: dict[Column, _Last] = {}
    lasts: dict[int, list[_Last]] = {}
    """Last samples by identity of their list of columns: hashing a column would dominate."""
    for at, _, sample in ordered:
        columns = lasts.get(id(sample.columns))
        if columns is None:
            columns = [last.setdefault(c, _Last(c)) for c in sample.columns]
            lasts[id(sample.columns)] = columns
        apart = log.heads[sample.recorder].period_seconds / 2
        for before, value in zip(columns, sample.values, strict=True):
            if value is None or at <= before.at:
                continue
            if before.recorder in (None, sample.recorder) or at - before.at >= apart:
                before.points.append((at, float(value)))
                before.at, before.recorder = at, sample.recorder
    return {column: series.points for column, series in last.items() if series.points}
