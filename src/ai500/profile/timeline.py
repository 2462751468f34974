"""One timeline of all ranks in Chrome's trace format, which the Perfetto UI opens.

Ranks are processes, their threads and streams are threads. Precisions are side by side: each
starts at time 0.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from ai500.core.atomic import explaining_write_errors
from ai500.profile.trace import DEVICE_WORK, Event

_KEPT = ("X", "M", "s", "t", "f", "i")
_OF_ACCELERATOR = (*DEVICE_WORK, "gpu_user_annotation")


class Timeline:
    """A file that is written rank by rank, so that only one trace is in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.part")
        self._file: TextIO | None = None
        self._first = True
        self._processes: dict[tuple[str, Any], int] = {}

    def __enter__(self) -> Timeline:
        with explaining_write_errors(self._path):
            self._file = gzip.open(self._beside, "wt", encoding="utf-8", compresslevel=5)
        self._file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._file is not None
        with explaining_write_errors(self._path):
            self._file.write("\n]}\n")
            self._file.close()
        if kind is None:
            self._beside.replace(self._path)
        else:
            self._beside.unlink(missing_ok=True)

    def add(self, events: Iterable[Event], *, process: str, zero_microseconds: float) -> None:
        """Add the events of one rank; `zero_microseconds` of their own clock becomes time 0."""
        assert self._file is not None
        known = len(self._processes)
        accelerators: set[int] = set()
        for event in merged(
            events, process=process, zero=zero_microseconds, numbers=self._processes
        ):
            if event.get("cat") in _OF_ACCELERATOR:
                accelerators.add(event["pid"])
            self._write(event)
        for (name, old), number in list(self._processes.items())[known:]:
            label = f"{name}, accelerator {old}" if number in accelerators else name
            for metadata, value in (("name", label), ("sort_index", number)):
                name, arguments = f"process_{metadata}", {metadata: value}
                self._write({"ph": "M", "name": name, "pid": number, "tid": 0, "args": arguments})

    def _write(self, event: Event) -> None:
        assert self._file is not None
        self._file.write(("" if self._first else ",\n") + json.dumps(event, separators=(",", ":")))
        self._first = False


def merged(
    events: Iterable[Event], *, process: str, zero: float, numbers: dict[tuple[str, Any], int]
) -> Iterator[Event]:
    """Yield events with process numbers of the timeline; `numbers` grows with the processes."""
    for event in events:
        if event.get("ph") not in _KEPT or not isinstance(event.get("pid"), int):
            continue  # the profiler's own metadata
        if event["ph"] == "M" and event.get("name") != "thread_name":
            continue  # processes are named by `add`
        number = numbers.setdefault((process, event["pid"]), len(numbers) + 1)
        changed = event | {"pid": number}
        if "ts" in event and event["ph"] != "M":
            changed["ts"] = round(event["ts"] - zero, 3)
        elif event["ph"] == "M":
            changed.pop("ts", None)
        if "id" in event:
            changed["id"] = f"{number}.{event['id']}"
        yield changed
