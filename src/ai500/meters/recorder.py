"""Recorder of a node's meters while members train: a thread that samples and writes them.

The process of local rank 0 of every member has a recorder. Among recorders with the same meters,
a lock on the node decides which one samples; when it ends, another takes over. Correctness does
not depend on the lock: counters are cumulative, and readers merge the logs of all recorders.

Lines of `trials/NN/meters/<host>-<member>.jsonl` (times as in the event log, see `events.py`):

    {"event": "meters", …, "trial", "member", "period_seconds", "covers", "absent"}
        a recorder starts: meter → the parts of the node whose energy it measures; absent
        meter → reason
    {"event": "columns", "columns": [[meter, device, quantity, wraps_at], …]}
        columns of the next samples; written again whenever they change
    {"event": "sample", "wall", "monotonic", "values": [number or null, …]}
    {"event": "meter_stopped", …, "meter", "reason"}
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import re
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from ai500.core import events
from ai500.core.events import Event
from ai500.meters import Meter, Reading, open_meters
from ai500.records import Task
from ai500.records.run_folder import RunFolder

FLUSH_SECONDS = 10.0
# The period doubles after so many samples, up to the longest: bounds the log of a long run.
SAMPLES_PER_PERIOD = 3600
LONGEST_PERIOD_SECONDS = 10.0
JOIN_SECONDS = 15.0  # longer than the timeout of any meter's program

Column = tuple[str, str, str, float | None]


class Recorder:
    """Sampler of the node's meters in a thread; its failure never stops training."""

    def __init__(
        self,
        path: Path,
        *,
        trial: int,
        member: int,
        period_seconds: float,
        lock_name: str,
        root: Path = Path("/"),
    ) -> None:
        self._path = path
        self._fields = {"trial": trial, "member": member, "period_seconds": period_seconds}
        self._period = period_seconds
        self._lock_name = lock_name
        self._root = root
        self._meters: dict[str, Meter] = {}
        self._columns: list[Column] = []
        self._lines: list[Event] = []
        self._samples = 0
        self._flushed = time.monotonic()
        self._lock: TextIO | None = None
        self._lock_path = Path()
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="meters", daemon=True)

    def start(self) -> None:
        """Start sampling; do nothing if the period is 0."""
        if self._period > 0:
            try:
                self._thread.start()
            except RuntimeError as error:  # the user's thread limit
                print(f"meters: not recorded: {error}", file=sys.stderr)

    def close(self) -> None:
        """Take a last sample, flush the log and stop."""
        self._ended = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=JOIN_SECONDS)

    def mark(self) -> None:
        """Sample now, with or without the lock: the timed window starts or ends here."""
        self._wake.set()

    def _run(self) -> None:
        try:
            meters, absent = open_meters(self._root)
            self._meters = dict(meters)
            self._emit("meters", **self._fields, covers=_covers(meters), absent=dict(absent))
            self._record()
        except Exception as error:
            # For example a full disk: training continues without meters.
            print(f"meters: recording stopped: {error}", file=sys.stderr)
        finally:
            self._release()
            for name, meter in self._meters.items():
                _close(name, meter)

    def _record(self) -> None:
        self._sample()
        self._lock_path = self._choose_lock()
        self._flush()
        due = time.monotonic() + self._period
        while True:
            marked = self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            if self._ended:
                break
            if marked or self._holds_lock():
                self._sample()
            if not marked:
                due = max(due + self._period, time.monotonic())
            if self._lines and time.monotonic() - self._flushed >= FLUSH_SECONDS:
                self._flush()
        self._sample()
        self._flush()

    def _sample(self) -> None:
        wall, monotonic = time.time(), time.monotonic()
        readings = [(name, reading) for name in list(self._meters) for reading in self._read(name)]
        # The middle of the reading time is the best estimate of when the values were taken.
        half = (time.monotonic() - monotonic) / 2
        columns: list[Column] = [(n, r.device, r.quantity, r.wraps_at) for n, r in readings]
        known = set(self._columns)
        if new := [column for column in columns if column not in known]:
            self._columns += new
            self._lines.append({"event": "columns", "columns": self._columns.copy()})
        values = {c: reading.value for c, (_, reading) in zip(columns, readings, strict=True)}
        self._lines.append(
            {
                "event": "sample",
                "wall": round(wall + half, 6),
                "monotonic": round(monotonic + half, 6),
                "values": [_rounded(values.get(column)) for column in self._columns],
            }
        )
        self._samples += 1
        if self._samples % SAMPLES_PER_PERIOD == 0:
            self._period = max(self._period, min(2 * self._period, LONGEST_PERIOD_SECONDS))

    def _read(self, name: str) -> list[Reading]:
        try:
            return list(self._meters[name].read())
        except Exception as error:
            _close(name, self._meters.pop(name))
            self._emit("meter_stopped", meter=name, reason=f"{type(error).__name__}: {error}")
            return []

    def _emit(self, event: str, **fields: Any) -> None:
        head: Event = {
            "event": event,
            "wall": time.time(),
            "monotonic": time.monotonic(),
            "host": socket.gethostname(),
            "boot": events.boot_id(),
        }
        self._lines.append(head | fields)

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        lines, self._lines = self._lines, []
        self._path.parent.mkdir(parents=True, exist_ok=True)
        events.append(self._path, lines)

    def _holds_lock(self) -> bool:
        """Return True if this recorder samples: it holds the lock, or no lock file is possible."""
        if self._lock is not None:
            return True
        try:
            file = self._lock_path.open("a", encoding="ascii")
        except OSError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._lock = file
        return True

    def _choose_lock(self) -> Path:
        """Name the lock after the devices: members with different accelerators both sample."""
        devices = sorted({(meter, device) for meter, device, _, _ in self._columns})
        identity = repr((os.getuid(), self._lock_name, devices)).encode()
        name = f"ai500-meters-{hashlib.sha256(identity).hexdigest()[:16]}.lock"
        return Path(tempfile.gettempdir()) / name

    def _release(self) -> None:
        if self._lock is not None:
            Path(self._lock.name).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None


def recorder_of(task: Task, *, local_rank: int) -> Recorder:
    """Create the member's recorder on this node; only local rank 0 samples."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname())
    folder = RunFolder(Path(task.run)).trial(task.trial).meters
    return Recorder(
        folder / f"{host}-{task.member:03d}.jsonl",
        trial=task.trial,
        member=task.member,
        period_seconds=task.meter_seconds if local_rank == 0 else 0.0,
        lock_name=str(folder),
    )


def _covers(meters: Any) -> dict[str, list[str]]:
    return {name: list(meter.covers) for name, meter in meters.items()}


def _rounded(value: float | None) -> float | None:
    return round(value, 4) if value is not None and math.isfinite(value) else None


def _close(name: str, meter: Meter) -> None:
    try:
        meter.close()
    except Exception as error:
        print(f"meters: {name} did not close: {error}", file=sys.stderr)
