"""What recorders wrote, read back node by node. See `recorder.py` for the lines.

A log may come from a stranger: a line that is not as it should be is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ai500.core import events
from ai500.core.events import Event

MOST_COLUMNS = 100_000
LARGEST = 1e24
"""Bytes, joules, hertz: no counter gets there."""


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
    """A recorder that began."""

    host: tuple[str, str]
    member: int
    trial: int
    period_seconds: float
    covers: Mapping[str, tuple[str, ...]]
    absent: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """All values of one moment."""

    recorder: int
    """Place of its head in the log."""
    clocks: Event
    columns: Sequence[Column]
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class NodeLog:
    """Everything that the recorders of one node wrote in one trial."""

    name: str
    heads: Sequence[Head]
    samples: Sequence[Sample]


Point = tuple[float, float]
"""(time, value)."""


def read_meters(folder: Path) -> Iterator[NodeLog]:
    """The logs of a trial, one node after the other: those of a whole cluster are never held."""
    files = sorted((_node_of(file), file) for file in folder.glob("*.jsonl"))
    for _, mine in groupby(files, key=lambda entry: entry[0]):
        heads: list[Head] = []
        samples: list[Sample] = []
        for _, file in mine:
            _read_file(file, heads, samples)
        if heads:
            yield NodeLog(heads[0].host[0], heads, samples)


def _node_of(file: Path) -> str:
    """The boot of its kernel: containers of one node have names of their own, but share that."""
    first: Event = next(events.read(file), {})
    return str(first.get("boot") or first.get("host"))


def _read_file(file: Path, heads: list[Head], samples: list[Sample]) -> None:
    head: Head | None = None
    columns: list[Column] = []
    for line in events.read(file):
        if line["event"] == "meters":
            columns, head = [], _head(line)
            if head is not None:
                heads.append(head)
        elif head is None:
            continue
        elif line["event"] == "columns":
            columns = _columns(head, line.get("columns"))
        elif line["event"] == "sample" and columns:
            values = line.get("values")
            times = (line.get("wall"), line.get("monotonic"))
            if isinstance(values, list) and len(values) == len(columns) and all(map(_ok, times)):
                clocks = {"wall": times[0], "monotonic": times[1]}
                clocks |= {"host": head.host[0], "boot": head.host[1]}
                known = [value if _ok(value) else None for value in values]
                samples.append(Sample(len(heads) - 1, clocks, columns, known))


def _head(line: Event) -> Head | None:
    covers, absent, period = line.get("covers"), line.get("absent"), line.get("period_seconds")
    member, trial = line.get("member"), line.get("trial")
    whole = isinstance(member, int) and isinstance(trial, int) and _ok(period)
    if not whole or not isinstance(covers, dict) or not isinstance(absent, dict):
        return None
    assert isinstance(member, int) and isinstance(trial, int) and isinstance(period, int | float)
    return Head(
        host=(str(line.get("host")), str(line.get("boot"))),
        member=member,
        trial=trial,
        period_seconds=float(period),
        covers={
            name: tuple(map(str, parts))
            for name, parts in covers.items()
            if isinstance(parts, list)
        },
        absent={name: str(reason) for name, reason in absent.items()},
    )


def _columns(head: Head, told: Any) -> list[Column]:
    if not isinstance(told, list) or len(told) > MOST_COLUMNS:
        return []
    found = []
    for one in told:
        if not isinstance(one, list) or len(one) != 4:
            return []
        meter, device, quantity, wraps_at = one
        limit = float(wraps_at) if _ok(wraps_at) and wraps_at > 0 else None
        # Devices are the kernel's, whichever container asks; interfaces are each container's own.
        own = str(quantity).startswith("network_") or not head.host[1]
        node = "/".join(head.host) if own else head.host[1]
        found.append(Column(node, str(meter), str(device), str(quantity), limit))
    return found


def _ok(value: object) -> bool:
    """A number that a meter could tell, and that one can calculate with."""
    return isinstance(value, int | float) and type(value) is not bool and abs(value) < LARGEST


def series(log: NodeLog, time_of: Callable[[Event], float | None]) -> dict[Column, list[Point]]:
    """Every column over time; of recorders that sampled at once, one at a time.

    Two recorders' clock readings and values are some milliseconds apart, so that a counter would
    seem to run backwards: another recorder's sample counts only half a period after the last.
    """
    timed = ((time_of(one.clocks), place, one) for place, one in enumerate(log.samples))
    ordered = sorted(
        ((at, place, one) for at, place, one in timed if at is not None),
        key=lambda entry: entry[:2],
    )
    found: dict[Column, list[Point]] = {}
    last: dict[Column, tuple[float, int]] = {}
    for at, _, sample in ordered:
        for column, value in zip(sample.columns, sample.values, strict=True):
            if value is None:
                continue
            before, recorder = last.get(column, (-math.inf, sample.recorder))
            apart = log.heads[sample.recorder].period_seconds / 2
            if at > before and (recorder == sample.recorder or at - before >= apart):
                found.setdefault(column, []).append((at, float(value)))
                last[column] = (at, sample.recorder)
    return found
