"""Check that a submission's files are of the type that their name says, and safe to read.

`core.reading` has the bounds of one file; here stand those of a whole submission, in proportion to
its size: whatever a file of 100 MB contains, verifying it takes seconds and a few hundred MB.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ai500.core.errors import InputError
from ai500.core.reading import (
    CONTROL,
    INVISIBLE,
    MAX_DOCUMENT_BYTES,
    UnsafeTextError,
    count_values,
    parse_json,
    parse_toml,
    read_lines,
    read_text,
)

# Files about one member, one node, or the submission itself.
MAX_RECORD_BYTES = 1 << 20
MAX_LINES_BYTES = 512 << 20
MAX_TEXT_BYTES = 1 << 20
# A submission of N bytes has at most N / 8 values; an event has 22. Small ones may be denser.
BYTES_PER_VALUE, MIN_VALUES = 8, 2_000_000
# Lines of logs count at least as many bytes as here, whatever they have: a sample of one meter has
# 90, events of real runs 315 on average. All may count as many as the submission has.
BYTES_PER_SAMPLE, BYTES_PER_EVENT, MIN_LOG_BYTES = 80, 285, 9_000_000
# A crash tears one line per attempt.
MAX_LINES_WITHOUT_EVENT = 1000
# Of one node in one trial: its samples are in memory together. 17 hours of 40 meters, each second.
MAX_METER_VALUES = 2_500_000
# Names of systems, nodes, devices and people stand in everybody's page.
MAX_SHOWN_STRING = 1024
_RECORDS = re.compile(
    r".*/members/\d+/[^/]+|.*/systems/[^/]+|(.*/)?(run|submission|signature|trial)\.json"
)
_SHOWN = re.compile(r"(.*/)?((system|plan|submission|score|placement)\.json|systems/[^/]+)")
_METERS = re.compile(r"(.*/trials/\d+)/meters/[^/]+")
_NOT_SHOWN = re.compile(rf"(?![\r\x85])[{CONTROL}{INVISIBLE}]")


@dataclass
class Budget:
    """Values and bytes of logs that the files of one submission may still have."""

    values: int = MIN_VALUES
    log_bytes: int = MIN_LOG_BYTES
    meter_values: dict[tuple[str, str], int] = field(default_factory=dict)
    """(trial, boot id) → values of the node's meters so far."""

    @classmethod
    def of(cls, total: int) -> Budget:
        """Return the budget of a submission of so many bytes."""
        return cls(max(MIN_VALUES, total // BYTES_PER_VALUE), max(MIN_LOG_BYTES, total))

    @property
    def is_spent(self) -> bool:
        """True if a file was refused because it would have exceeded the budget."""
        return self.values < 0 or self.log_bytes < 0

    def spend(self, text: str) -> int:
        """Take the values of a text from the budget, before it is parsed; return their number."""
        number = count_values(text)
        self.values -= number
        if self.values < 0:
            raise UnsafeTextError("up to this file, there are too many values for so few bytes")
        return number

    def spend_line(self, number: int) -> None:
        """Take the bytes that a line of a log counts at least from the budget."""
        self.log_bytes -= number
        if self.log_bytes < 0:
            raise UnsafeTextError("up to this file, there are too many lines for so few bytes")

    def spend_meters(self, node: tuple[str, str], number: int) -> None:
        """Add values of a node's meters."""
        self.meter_values[node] = self.meter_values.get(node, 0) + number
        if self.meter_values[node] > MAX_METER_VALUES:
            raise UnsafeTextError(
                f"the meters of one node have more than {MAX_METER_VALUES} values"
            )


def refusal(path: Path, budget: Budget | None = None) -> str | None:
    """Return why a file may not be read, or None; its suffix determines the checks."""
    check = _CHECKS.get(path.suffix)
    if check is None:
        return f"files that end in {path.suffix!r} are not part of a submission"
    try:
        check(path, budget or Budget())
    except UnsafeTextError as reason:
        return str(reason)
    except InputError as error:
        return str(error).replace(f"{path} ", "it ", 1).replace(f"{path}, ", "", 1).rstrip(".")
    return None


def without_control_characters(data: bytes) -> bytes:
    """Replace the characters that `refusal` forbids: a log may contain any program's output."""
    return _NOT_SHOWN.sub("\ufffd", data.decode("utf-8", errors="replace")).encode()


def _check_json(path: Path, budget: Budget) -> None:
    record = _RECORDS.fullmatch(path.as_posix())
    text = read_text(path, limit=MAX_RECORD_BYTES if record else MAX_DOCUMENT_BYTES)
    budget.spend(text)
    try:
        if _SHOWN.fullmatch(path.as_posix()):
            parse_json(text, max_string=MAX_SHOWN_STRING)
        else:
            parse_json(text)
    except json.JSONDecodeError as error:
        raise UnsafeTextError(f"it is not JSON: {error.msg} (line {error.lineno})") from error


def _check_lines(path: Path, budget: Budget) -> None:
    if (size := path.stat().st_size) > MAX_LINES_BYTES:
        raise UnsafeTextError(f"it has {size} bytes, more than {MAX_LINES_BYTES}")
    meters = _METERS.fullmatch(path.as_posix())
    node: tuple[str, str] | None = None
    others = 0
    for number, line in read_lines(path):
        try:
            budget.spend_line(BYTES_PER_SAMPLE if meters else BYTES_PER_EVENT)
            values = budget.spend(line)
            event = _event(line)
        except UnsafeTextError as reason:
            raise UnsafeTextError(f"line {number}: {reason}") from reason
        if event is None:
            others += 1
            if others > MAX_LINES_WITHOUT_EVENT:
                raise UnsafeTextError(f"more than {MAX_LINES_WITHOUT_EVENT} lines are no events")
        elif meters:
            node = node or (meters[1], str(event.get("boot") or event.get("host")))
            budget.spend_meters(node, values)


def _event(line: str) -> Any:
    """Parse a line as `core.events` does: one that is not JSON was torn by a crash."""
    try:
        event = parse_json(line)
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _check_toml(path: Path, budget: Budget) -> None:
    try:
        parse_toml(read_text(path, limit=MAX_TEXT_BYTES))
    except UnsafeTextError:
        raise
    except ValueError as error:
        raise UnsafeTextError(f"it is not TOML: {error}") from error


def _check_text(path: Path, budget: Budget) -> None:
    if match := _NOT_SHOWN.search(read_text(path, limit=MAX_TEXT_BYTES)):
        raise UnsafeTextError(f"it has a control or invisible character ({match[0]!a})")


_CHECKS = {
    ".json": _check_json,
    ".jsonl": _check_lines,
    ".toml": _check_toml,
    ".txt": _check_text,
    ".sh": _check_text,
    ".md": _check_text,
}
