"""Append-only event logs: one JSON object a line, with both clocks, from which a score follows.

Each writer has a file of its own (appending from several hosts to one file tears lines on some
network file systems). The job controller collects the members' events into the run's
`events.jsonl`; `sequence` makes that repeatable: an event is taken over once, however often the
controller starts again.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ai500.core.atomic import explaining_write_errors

Event = dict[str, Any]


@cache
def boot_id() -> str:
    """Monotonic clocks compare only within one boot of one host."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class EventLog:
    """Writes events with clocks, host and a running number; `common` goes into each."""

    def __init__(self, path: Path, **common: Any) -> None:
        self._path = path
        self._common = common
        self._sequence = 0
        if path.exists():
            self._sequence = max((e.get("sequence", 0) for e in read(path)), default=0)

    def emit(self, event: str, **fields: Any) -> Event:
        """Append one event, in a single write."""
        return self.emit_all(event, [fields])[0]

    def emit_all(self, event: str, many: Sequence[Mapping[str, Any]]) -> list[Event]:
        """Append an event for each of these, in a single write."""
        clocks = {
            "wall": time.time(),
            "monotonic": time.monotonic(),
            "host": socket.gethostname(),
            "boot": boot_id(),
        }
        records: list[Event] = []
        for fields in many:
            self._sequence += 1
            head = {"event": event, **clocks, "sequence": self._sequence}
            records.append({**head, **self._common, **fields})
        append(self._path, records)
        return records


def append(path: Path, events: list[Event]) -> None:
    """Append whole lines, durably: what follows from an event must not outlive it."""
    data = "".join(json.dumps(event, allow_nan=False) + "\n" for event in events).encode()
    with explaining_write_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # A writer killed in the middle of a line must not spoil the next event.
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read(path: Path) -> Iterator[Event]:
    """All whole events of a log; a line torn by a crash is passed over."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.endswith("\n") and (event := parse(line)) is not None:
                    yield event
    except FileNotFoundError:
        return


def parse(line: str) -> Event | None:
    """One line as an event, or None if it is not one."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


class Follower:
    """Reads what was appended to a log since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[Event]:
        """Whole events that were not seen before."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        lines = whole.decode("utf-8", errors="replace").splitlines()
        return [event for line in lines if (event := parse(line)) is not None]
