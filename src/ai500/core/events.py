"""Append-only event logs: one JSON object per line, with wall and monotonic time.

Scores are computed from these logs. Each writer has its own file, because appends from several
hosts to one file tear lines on some network file systems. The job controller copies the members'
events into the run's `events.jsonl`; their `sequence` number makes that idempotent when the
controller restarts.
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
    """Return the id of this boot: monotonic clocks are comparable within one boot only."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class EventLog:
    """Writer of events with clocks, host and sequence number; each event contains `common`."""

    def __init__(self, path: Path, **common: Any) -> None:
        self._path = path
        self._common = common
        self._sequence = 0
        if path.exists():
            self._sequence = max((e.get("sequence", 0) for e in read(path)), default=0)

    def emit(self, event: str, **fields: Any) -> Event:
        """Append an event in a single write."""
        return self.emit_all(event, [fields])[0]

    def emit_all(self, event: str, entries: Sequence[Mapping[str, Any]]) -> list[Event]:
        """Append an event for each entry, in a single write."""
        clocks = {
            "wall": time.time(),
            "monotonic": time.monotonic(),
            "host": socket.gethostname(),
            "boot": boot_id(),
        }
        records: list[Event] = []
        for fields in entries:
            self._sequence += 1
            head = {"event": event, **clocks, "sequence": self._sequence}
            records.append({**head, **self._common, **fields})
        append(self._path, records)
        return records


def append(path: Path, events: list[Event]) -> None:
    """Append lines durably: later records must not survive a crash that loses their event."""
    data = "".join(json.dumps(event, allow_nan=False) + "\n" for event in events).encode()
    with explaining_write_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # A writer killed within a line left it torn: start a new line.
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read(path: Path) -> Iterator[Event]:
    """Yield the complete events of a log; skip lines torn by a crash."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.endswith("\n") and (event := parse(line)) is not None:
                    yield event
    except FileNotFoundError:
        return


def parse(line: str) -> Event | None:
    """Parse a line; None if it is not an event."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


class Follower:
    """Reader of the events appended to a log since its last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[Event]:
        """Return the complete events that were not returned before."""
        lines = (line.decode("utf-8", errors="replace") for line in self.new_lines())
        return [event for line in lines if (event := parse(line)) is not None]

    def new_lines(self) -> list[bytes]:
        """Return the complete lines that were not returned before, whatever they hold."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        *lines, torn = data.split(b"\n")
        self._offset += len(data) - len(torn)
        return lines
