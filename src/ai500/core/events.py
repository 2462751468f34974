"""Append-only event logs: one JSON object per line, with wall and monotonic time.

Scores are computed from these logs. Each writer has its own file, because appends from several
hosts to one file tear lines on some network file systems. The job controller copies the members'
events into the run's `events.jsonl`; their `sequence` number makes that idempotent when the
controller restarts.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ai500.core.atomic import explaining_write_errors
from ai500.core.errors import RunFolderError
from ai500.core.reading import (
    MAX_LINE,
    UnsafeTextError,
    open_regular,
    parse_json,
    read_lines,
    require_regular,
)
from ai500.core.schema import MAX_INTEGER
from ai500.core.shell import quoted

Event = dict[str, Any]

COMMON_FIELDS = ("wall", "monotonic", "host", "boot", "sequence")
FIELDS_OF_KIND: dict[str, tuple[str, ...]] = {
    "trial_start": ("trial", "seed"),
    "aggregate": ("trial", "result"),
    "job_submitted": ("trial", "member", "job"),
    "job_started": ("trial", "member", "job"),
    "job_ended": ("trial", "member", "job"),
    "job_requeued": ("trial", "member", "job"),
    "start": ("trial", "member", "attempt"),
    "first_batch": ("trial", "member", "attempt"),
    "resumed": ("trial", "member", "attempt"),
    "interrupted": ("trial", "member", "attempt"),
    "end": ("trial", "member", "attempt"),
    "epoch": ("trial", "member", "attempt", "epoch"),
    "quality": ("trial", "member", "attempt", "epoch", "quality"),
}
"""Fields that an event of a kind must have, besides the common ones."""
TRAINING_EVENTS = {"first_batch", "resumed", "epoch", "quality", "interrupted", "end"}
"""Kinds of events that time a member's training."""
WHOLE_NUMBERS = (
    "sequence", "member_sequence", "trial", "member", "attempt", "epoch", "step", "steps",
    "samples", "seed", "pid", "world_size",
)  # fmt: skip
NUMBERS = ("wall", "monotonic", "quality", "loss", "learning_rate", "search_seconds")
TEXTS = ("host", "boot", "job")
TABLES = ("result",)
_PLAIN_TYPES: dict[str, Any] = {
    **dict.fromkeys(WHOLE_NUMBERS, int), **dict.fromkeys(NUMBERS, float),
    **dict.fromkeys(TEXTS, str), **dict.fromkeys(TABLES, dict),
}  # fmt: skip
"""Types that nearly all values have: a long log takes half the time to check."""
REPEATED = ("event", "host", "boot", "optimizer_sha256")
"""Fields with few distinct values: the reader keeps one object per value."""


@cache
def boot_id() -> str:
    """Return the id of this boot: monotonic clocks are comparable within one boot only."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    import subprocess  # macOS; slow to import where it is not needed

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        words = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    return ""


class EventLog:
    """Writer of events with clocks, host and sequence number; each event contains `common`."""

    def __init__(self, path: Path, **common: Any) -> None:
        self._path = path
        self._common = common
        self._sequence = 0
        if path.exists():
            numbers = [event.get("sequence") for event in read(path)]
            self._sequence = max((n for n in numbers if isinstance(n, int)), default=0)

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
    require_regular(path)
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
    for _, event in _numbered(path):
        yield event


def read_checked(path: Path) -> Iterator[Event]:
    """Yield the complete events of a run's log; an event that lacks a field is a RunFolderError.

    Lines torn by a crash are skipped, as `read` skips them.
    """
    for number, event in _numbered(path):
        check(event, path=path, line=number)
        yield event


def read_kinds(path: Path, kinds: Sequence[str]) -> Iterator[Event]:
    """Yield the events of these kinds of a run's log, checked; other lines are not parsed."""
    marks = [json.dumps(kind) for kind in kinds]
    for number, event in _numbered(path, select=lambda line: any(mark in line for mark in marks)):
        if event["event"] in kinds:
            check(event, path=path, line=number)
            yield event


def _numbered(
    path: Path, *, select: Callable[[str], bool] = lambda line: True
) -> Iterator[tuple[int, Event]]:
    """Yield the complete events of a log's selected lines with the numbers of the lines."""
    texts: dict[str, str] = {}
    try:
        for number, line in read_lines(path):
            if not select(line):
                continue
            if (event := parse(line, path=path, number=number)) is not None:
                for key in REPEATED:  # hosts and boots take half of a long log's memory
                    if isinstance(text := event.get(key), str):
                        event[key] = texts.setdefault(text, text)
                yield number, event
    except FileNotFoundError:
        return


def check(event: Event, *, path: Path, line: int) -> None:
    """Raise RunFolderError, with file, line and key, for a field that is missing or of no use."""
    for key in (*COMMON_FIELDS, *FIELDS_OF_KIND.get(event["event"], ())):
        if key not in event:
            raise _malformed(path, line, key, f"missing in event {event['event']!r}", None)
    for key, value in event.items():
        plain = _PLAIN_TYPES.get(key)
        if plain is None or (
            type(value) is plain and (plain in (str, dict) or -MAX_INTEGER < value < MAX_INTEGER)
        ):
            continue
        if (expected := _expected(key, value)) is not None:
            raise _malformed(path, line, key, f"expected {expected}, found {value!r:.80}", value)


def _expected(key: str, value: object) -> str | None:
    """Return what a field should hold; None if it does, or if nothing reads it."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if key in WHOLE_NUMBERS:
        if isinstance(value, int) and is_number and abs(value) < 2 * MAX_INTEGER:
            return None
        return "a whole number"
    if key in NUMBERS:
        if value is None and key in ("loss", "learning_rate"):
            return None
        if is_number and abs(value) < MAX_INTEGER and math.isfinite(value):  # type: ignore[arg-type]
            return None
        return "a number"
    if key in TEXTS:
        return None if isinstance(value, str) else "text"
    if key in TABLES:
        return None if isinstance(value, dict) else "a table"
    return None


def _malformed(path: Path, line: int, key: str, problem: str, value: object) -> RunFolderError:
    return RunFolderError(
        f"{path}, line {line}: {key}: {problem}.",
        key=key,
        value=value,
        path=path,
        remedy=remedy(path),
    )


def remedy(path: Path) -> str:
    """Return what mends a damaged log: `resume` collects a lost one's events from the others."""
    run = next((folder for folder in path.parents if (folder / "run.json").exists()), None)
    if run is None:
        return "Restore the file from a backup, or start a new run."
    aside = f"mv {quoted(path)} {quoted(f'{path}.damaged')}"
    return f"To restore it from the other logs: {aside} && ai500 resume {quoted(run)}"


def _unreadable(path: Path, line: int, problem: str) -> RunFolderError:
    return RunFolderError(
        f"{path}, line {line}: {problem}.",
        value=line,
        path=path,
        remedy=remedy(path),
    )


def parse(line: str, *, path: Path, number: int) -> Event | None:
    """Parse a line; None if it is not an event.

    A line that is JSON but not as ai500 writes it (NaN, a key twice, too deep) is a RunFolderError.
    """
    try:
        event = parse_json(line)
    except json.JSONDecodeError:
        return None
    except UnsafeTextError as error:
        raise _unreadable(path, number, str(error)) from error
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


class Follower:
    """Reader of the events appended to a log since its last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._line = 0

    def new(self) -> list[Event]:
        """Return the complete events that were not returned before; check their fields."""
        events = []
        for line in self.new_lines():
            self._line += 1
            text = line.decode("utf-8", errors="replace")
            if (event := parse(text, path=self._path, number=self._line)) is not None:
                check(event, path=self._path, line=self._line)
                events.append(event)
        return events

    def new_lines(self) -> Iterator[bytes]:
        """Yield the complete lines that were not yielded before, whatever they hold."""
        try:
            file = open_regular(self._path)
        except FileNotFoundError:
            return
        with file:
            file.seek(self._offset)
            while (line := file.readline(MAX_LINE + 1)).endswith(b"\n"):
                self._offset += len(line)
                yield line[:-1]
        if len(line) > MAX_LINE:
            raise _unreadable(self._path, self._line + 1, f"longer than {MAX_LINE} bytes")
