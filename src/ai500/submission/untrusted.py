"""Check that untrusted files are of the type that their name says, and safe to read.

Python's `json` accepts NaN, 1e999 as infinity, duplicate keys, and nesting as deep as the stack;
no file that ai500 writes contains them.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

# Files that grow with the ensemble: the manifest, the plan, a trial's lists.
MAX_DOCUMENT_BYTES = 64 << 20
# Files about one member, one node, or the submission itself.
MAX_RECORD_BYTES = 1 << 20
MAX_LINES_BYTES = 512 << 20
MAX_TEXT_BYTES = 1 << 20
# Values of one document: a value takes more memory than its bytes in the file.
MAX_VALUES = 4_000_000
MAX_LINE = 8 << 20
MAX_DEPTH = 32
MAX_DIGITS = 40
_RECORDS = re.compile(
    r".*/members/\d+/[^/]+|.*/systems/[^/]+|(.*/)?(run|submission|signature|trial)\.json"
)
# Invisible characters, and those that reorder or hide the text after them: two names that differ
# look the same on a page. Unicode categories Cf, Zl and Zp; fillers, joiners, variation selectors.
_INVISIBLE = (
    "\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Surrogates, and control characters, which could control a terminal.
_FORBIDDEN = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
_CONTROL = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f{_INVISIBLE}]")


class UnsafeFileError(Exception):
    """Reason why an untrusted file is refused."""


def refusal(path: Path) -> str | None:
    """Return why a file may not be read, or None; its suffix determines the checks."""
    check = _CHECKS.get(path.suffix)
    if check is None:
        return f"files that end in {path.suffix!r} are not part of a submission"
    try:
        check(path)
    except UnsafeFileError as reason:
        return str(reason)
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except RecursionError:
        return f"it is nested deeper than {MAX_DEPTH}"
    return None


def parse(text: str) -> Any:
    """Parse JSON strictly; raise JSONDecodeError if the text is not JSON at all."""
    # Counted before parsing, which would already take the memory.
    if sum(map(text.count, ",:[{")) > MAX_VALUES:
        raise UnsafeFileError(f"it has more than {MAX_VALUES} values")
    value = json.loads(
        text,
        object_pairs_hook=_unique_keys,
        parse_int=_integer,
        parse_float=_finite,
        parse_constant=_refuse_constant,
    )
    _check_values(value)
    return value


def without_control_characters(data: bytes) -> bytes:
    """Replace the characters that `refusal` forbids: a log may contain any program's output."""
    return _CONTROL.sub("\ufffd", data.decode("utf-8", errors="replace")).encode()


def _check_size(path: Path, limit: int) -> None:
    size = path.stat().st_size
    if size > limit:
        raise UnsafeFileError(f"it has {size} bytes, more than {limit}")


def _read(path: Path, limit: int) -> str:
    _check_size(path, limit)
    return path.read_bytes().decode("utf-8")


def _check_json(path: Path) -> None:
    record = _RECORDS.fullmatch(path.as_posix())
    try:
        parse(_read(path, MAX_RECORD_BYTES if record else MAX_DOCUMENT_BYTES))
    except json.JSONDecodeError as error:
        raise UnsafeFileError(f"it is not JSON: {error.msg} (line {error.lineno})") from error


def _check_lines(path: Path) -> None:
    _check_size(path, MAX_LINES_BYTES)
    # Lines end as for `events.read`, which skips a line that is not JSON (torn by a crash).
    with path.open(encoding="utf-8") as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise UnsafeFileError(f"line {number} is longer than {MAX_LINE} characters")
            try:
                parse(line)
            except json.JSONDecodeError:
                continue
            except UnsafeFileError as reason:
                raise UnsafeFileError(f"line {number}: {reason}") from reason


def _check_toml(path: Path) -> None:
    text = _read(path, MAX_TEXT_BYTES)
    try:
        _check_values(tomllib.loads(text))
    except ValueError as error:
        raise UnsafeFileError(f"it is not TOML: {error}") from error


def _check_text(path: Path) -> None:
    if character := _CONTROL.search(_read(path, MAX_TEXT_BYTES)):
        raise UnsafeFileError(f"it has a control or invisible character ({character[0]!a})")


_CHECKS = {
    ".json": _check_json,
    ".jsonl": _check_lines,
    ".toml": _check_toml,
    ".txt": _check_text,
    ".sh": _check_text,
    ".md": _check_text,
}


def _check_values(value: Any) -> None:
    """Check depth and strings, without recursion."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise UnsafeFileError(f"it is nested deeper than {MAX_DEPTH}")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif (
                isinstance(item, str)
                and not (item.isascii() and item.isprintable())
                and (character := _FORBIDDEN.search(item))
            ):
                raise UnsafeFileError(
                    f"a string has an invisible character, or a control character "
                    f"({character[0]!a})"
                )
        level = below


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise UnsafeFileError("duplicate key")
    return table


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise UnsafeFileError(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise UnsafeFileError(f"the number {text[:MAX_DIGITS]} is out of range")
    return value


def _refuse_constant(text: str) -> float:
    raise UnsafeFileError(f"{text} is not a number")
