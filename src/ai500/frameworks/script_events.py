"""Events that a script reports: JSON lines, or MLPerf's `:::MLLOG` lines.

Both become a `ScriptEvent`; docs/worker-contract.md has the keys. Other lines of a script's output
are its own affair, but a line that begins like an event and is none is an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from ai500.core import schema
from ai500.core.schema import SchemaError, option

LINE_MARK = ":::AI500 "
"""Beginning of an event's line on standard output."""
MLLOG_MARK = ":::MLLOG "
"""Beginning of a line of mlperf-logging."""
REQUIRED: dict[str, tuple[str, ...]] = {"epoch": ("epoch",), "quality": ("epoch", "quality")}
"""Keys that an event must have."""


@dataclass(frozen=True, slots=True)
class ScriptEvent:
    """An event of a script's training."""

    event: Literal["first_batch", "resumed", "epoch", "quality", "end"]
    epoch: int | None = option(None, "finished epochs, from 1 on", minimum=0)
    samples: int | None = option(None, "samples of this epoch", minimum=1)
    steps: int | None = option(None, "optimizer steps of this epoch", minimum=1)
    loss: float | None = None
    quality: float | None = None


def parse_stdout(line: str) -> ScriptEvent | None:
    """Parse a line of standard output; None: it is no event. Raise SchemaError for a bad one."""
    if line.startswith(LINE_MARK):
        return parse_json(line.removeprefix(LINE_MARK))
    if MLLOG_MARK in line:  # mlperf-logging may clear a line before it
        return parse_mllog(line.partition(MLLOG_MARK)[2])
    return None


def parse_json(text: str) -> ScriptEvent:
    """Parse an event in JSON."""
    event = schema.decode(ScriptEvent, _table(text))
    for key in REQUIRED.get(event.event, ()):
        if getattr(event, key) is None:
            raise SchemaError(key, f"missing in event {event.event!r}")
    return event


def parse_mllog(text: str) -> ScriptEvent | None:
    """Translate an entry of mlperf-logging; None: its key says nothing about the training."""
    entry = _table(text)
    key, metadata = entry.get("key"), entry.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if key == "run_start":
        return ScriptEvent("first_batch")
    if key == "epoch_stop":
        samples = metadata.get("samples_count")
        return schema.decode(
            ScriptEvent, {"event": "epoch", "epoch": _epoch(metadata), "samples": samples}
        )
    if key in ("eval_accuracy", "eval_error"):
        value = entry.get("value")
        if value is None:
            raise SchemaError("value", f"missing in {key}")
        return schema.decode(
            ScriptEvent, {"event": "quality", "epoch": _epoch(metadata), "quality": value}
        )
    if key == "run_stop":
        status = metadata.get("status", "success")
        if status != "success":
            raise SchemaError("status", f"run_stop reports {status!r}", status)
        return ScriptEvent("end")
    return None


def _table(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError("", f"not JSON: {text.strip()[:80]!r}", text) from error
    if not isinstance(value, dict):
        raise SchemaError("", f"not a table of JSON: {text.strip()[:80]!r}", text)
    return value


def _epoch(metadata: dict[str, Any]) -> object:
    """Return `epoch_num`, which mlperf-logging may write as 1.0."""
    number = metadata.get("epoch_num")
    if number is None:
        raise SchemaError("epoch_num", "missing in the metadata")
    return int(number) if isinstance(number, float) and number.is_integer() else number
