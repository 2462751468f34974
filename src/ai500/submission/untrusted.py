"""Files from a stranger: are they what their name says, and harmless to read?

Python's `json` takes NaN, 1e999 as infinity, keys that stand there twice, and nests as deep as
the stack; none of it is in a file that ai500 wrote.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

MAX_DOCUMENT_BYTES = 64 << 20
"""Of a file that grows with the ensemble: the manifest, the plan, a trial's lists."""
MAX_RECORD_BYTES = 1 << 20
"""Of a file about one member, one node, or the submission itself."""
MAX_LINES_BYTES = 512 << 20
MAX_TEXT_BYTES = 1 << 20
MAX_VALUES = 4_000_000
"""In one document: each takes memory, however few bytes it has in the file."""
MAX_LINE = 8 << 20
MAX_DEPTH = 32
MAX_DIGITS = 40
_RECORDS = re.compile(
    r".*/members/\d+/[^/]+|.*/systems/[^/]+|(.*/)?(run|submission|signature|trial)\.json"
)
_NEVER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""In texts of JSON: surrogates, and control characters, by which a text could steer a terminal."""
_CONTROL = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\U0010ffff]")


class Objection(Exception):  # noqa: N818 - it is what one says, and never leaves this module
    """Why a file is not taken."""


def objection(path: Path) -> str | None:
    """Why the file may not be read, or None. What it is, its name's ending says."""
    check = _CHECKS.get(path.suffix)
    if check is None:
        return f"files that end in {path.suffix!r} are not part of a submission"
    try:
        check(path)
    except Objection as reason:
        return str(reason)
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except RecursionError:
        return f"it is nested deeper than {MAX_DEPTH}"
    return None


def parse(text: str) -> Any:
    """JSON of which nothing is surprising; JSONDecodeError where it is none at all."""
    # Counted before it is read: afterwards the memory would be taken.
    if sum(map(text.count, ",:[{")) > MAX_VALUES:
        raise Objection(f"it has more than {MAX_VALUES} values")
    value = json.loads(
        text,
        object_pairs_hook=_unique,
        parse_int=_whole,
        parse_float=_finite,
        parse_constant=_constant,
    )
    _walk(value)
    return value


def without_control_characters(data: bytes) -> bytes:
    """Text that `objection` takes: a log may hold anything a program prints."""
    return _CONTROL.sub("\ufffd", data.decode("utf-8", errors="replace")).encode()


def _fits(path: Path, most: int) -> None:
    size = path.stat().st_size
    if size > most:
        raise Objection(f"it has {size} bytes, more than {most}")


def _bounded(path: Path, most: int) -> str:
    _fits(path, most)
    return path.read_bytes().decode("utf-8")


def _check_json(path: Path) -> None:
    record = _RECORDS.fullmatch(path.as_posix())
    try:
        parse(_bounded(path, MAX_RECORD_BYTES if record else MAX_DOCUMENT_BYTES))
    except json.JSONDecodeError as error:
        raise Objection(f"it is not JSON: {error.msg} (line {error.lineno})") from error


def _check_lines(path: Path) -> None:
    _fits(path, MAX_LINES_BYTES)
    # Lines end where `events.read` ends them; what is no JSON at all (a line torn by a crash) it
    # passes over.
    with path.open(encoding="utf-8") as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise Objection(f"line {number} is longer than {MAX_LINE} characters")
            try:
                parse(line)
            except json.JSONDecodeError:
                continue
            except Objection as reason:
                raise Objection(f"line {number}: {reason}") from reason


def _check_toml(path: Path) -> None:
    text = _bounded(path, MAX_TEXT_BYTES)
    try:
        _walk(tomllib.loads(text))
    except ValueError as error:
        raise Objection(f"it is not TOML: {error}") from error


def _check_text(path: Path) -> None:
    if found := _CONTROL.search(_bounded(path, MAX_TEXT_BYTES)):
        raise Objection(f"it has a control character ({found[0]!r})")


_CHECKS = {
    ".json": _check_json,
    ".jsonl": _check_lines,
    ".toml": _check_toml,
    ".txt": _check_text,
    ".sh": _check_text,
    ".md": _check_text,
}


def _walk(value: Any) -> None:
    """Depth and texts, without recursion."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise Objection(f"it is nested deeper than {MAX_DEPTH}")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str) and not item.isprintable() and _NEVER.search(item):
                raise Objection("a text in it has a control character, or half a character")
        level = below


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Objection("a key is there twice")
    return found


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise Objection(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Objection(f"the number {text[:MAX_DIGITS]} is out of range")
    return value


def _constant(text: str) -> float:
    raise Objection(f"{text} is not a number")
