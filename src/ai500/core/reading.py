"""Reading of untrusted files: the only place where their bounds are defined.

A run folder, a submission, a configuration and a store are opened by `open_regular`, which neither
waits for a pipe nor reads a device. JSON and TOML are parsed with bounds on size, values, depth,
digits and strings that hold before the parser takes memory. Python's own parsers accept NaN,
1e999 as infinity, keys that occur twice, and nesting as deep as the stack; no file that ai500
writes contains them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ai500.core.errors import InputError

# Files that grow with the ensemble (plan, lists of a trial), a trace or a study.
MAX_DOCUMENT_BYTES = 64 << 20
# Texts that people write, and their logs where a whole one is read.
MAX_TEXT_BYTES = 16 << 20
# A resolved configuration has about 10 KiB.
MAX_TOML_BYTES = 256 << 10
# `a.a.a = 1` with n dots takes 4 n² bytes in tomllib: this many per line bound it to 128 MiB.
MAX_DOTS_PER_LINE = 256
# Files that are hashed may be larger than memory.
HASH_BLOCK_BYTES = 4 << 20
# A value takes up to 40 times the memory of its bytes in the file.
MAX_VALUES = 4_000_000
# The line of a search's aggregate, and a sample of 100,000 meters, stay below it.
MAX_LINE = 4 << 20
MAX_DEPTH = 32
MAX_DIGITS = 40
# Longer than a path or an LD_LIBRARY_PATH.
MAX_STRING = 32_768
CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
"""Surrogates, and control characters, which could control a terminal."""
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters without a shape, which make two names look alike, and those that turn the direction
of writing, which make a name look like another."""
FORBIDDEN = re.compile(f"[{CONTROL}{INVISIBLE}]")
# Digits, exponents and the rest of a text: a long line is searched for numbers out of range by this
# in a tenth of the time of a regular expression.
_SHAPE = bytes(
    ord("0") if chr(code).isascii() and chr(code).isdigit()
    else ord("e") if code in b"eE"
    else ord(" ")
    for code in range(256)
)  # fmt: skip
_LONG_NUMBER = b"0" * MAX_DIGITS
_WHITE_SPACE = " \t\r\n"
_KINDS = {
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
_NOT_A_FILE = {
    errno.ELOOP: "its links lead in a circle", errno.ENXIO: "it is a socket or a device",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.EINVAL: "the file system does not allow it",
}  # fmt: skip


class UnsafeTextError(ValueError):
    """Reason why a text is refused that the parser may well accept."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; raise InputError for a pipe, a device or a loop of links.

    A missing file is FileNotFoundError; one that may not be read PermissionError.
    """
    try:
        _require_regular(path, path.stat())  # opening a device may already act on it
        file = io.BufferedReader(io.FileIO(path, opener=_open_without_waiting))
    except OSError as error:
        if error.errno not in _NOT_A_FILE:
            raise
        reason = _NOT_A_FILE[error.errno]
        raise InputError(f"{path} can't be read: {reason}.", path=path) from error
    except ValueError as error:  # a null character
        raise InputError(f"{os.fspath(path)!r} is no name of a file.", value=str(path)) from error
    try:
        _require_regular(path, os.fstat(file.fileno()))
    except InputError:
        file.close()
        raise
    return file


def require_regular(path: Path) -> None:
    """Raise InputError if the path exists and is not a regular file that can be read."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_regular(path):
        pass


def read_bytes(path: Path, *, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a regular file of at most `limit` bytes."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        size = max(len(data), path.stat().st_size)
        raise InputError(f"{path} has {size} bytes, more than {limit}.", path=path, value=size)
    return data


def file_sha256(
    path: Path, on_bytes: Callable[[int], None] | None = None, *, limit: float = math.inf
) -> str:
    """Compute the SHA-256 of a regular file; `on_bytes` receives the size of each block read.

    A file of more than `limit` bytes is an InputError, also one of no size that never ends.
    """
    digest, count = hashlib.sha256(), 0
    with open_regular(path) as file:
        while block := file.read(HASH_BLOCK_BYTES):
            digest.update(block)
            count += len(block)
            if max(count, os.fstat(file.fileno()).st_size) > limit:
                raise InputError(f"{path} has more than {limit} bytes.", path=path)
            if on_bytes:
                on_bytes(len(block))
    return digest.hexdigest()


def read_text(path: Path, *, limit: int = MAX_TEXT_BYTES) -> str:
    """Read a regular file as UTF-8."""
    try:
        return read_bytes(path, limit=limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}).", path=path) from error


def read_json(path: Path, *, limit: int = MAX_DOCUMENT_BYTES) -> Any:
    """Read a file as JSON; an InputError names the file and the reason."""
    text = read_text(path, limit=limit)
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        reason = f"not JSON: {error.msg} (line {error.lineno})"
        raise InputError(f"{path} can't be read: {reason}.", path=path) from error
    except UnsafeTextError as error:
        raise InputError(f"{path} can't be read: {error}.", path=path) from error


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the complete lines of a log with their numbers, without their ends.

    A line ends at a newline alone. The last line may be torn by a crash: it is not yielded.
    Bytes that are not UTF-8 are replaced.
    """
    with open_regular(path) as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise InputError(
                    f"{path}, line {number}: longer than {MAX_LINE} bytes.", path=path, value=number
                )
            if line.endswith(b"\n"):
                yield number, line[:-1].decode("utf-8", errors="replace")


def read_tail(path: Path, *, limit: int = MAX_TEXT_BYTES) -> str:
    """Read the end of a log; bytes that are not UTF-8 are replaced."""
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
        return file.read(limit).decode("utf-8", errors="replace")


def parse_json(text: str, *, max_string: int = MAX_STRING) -> Any:
    """Parse JSON strictly.

    Raise JSONDecodeError if the text is not JSON at all, and UnsafeTextError if it is refused.
    """
    # Counted before parsing, which would already take the memory.
    containers = text.count("[") + text.count("{")
    if len(text) > MAX_VALUES and containers + count_values(text) > MAX_VALUES:
        raise UnsafeTextError(f"it has more than {MAX_VALUES} values")
    decoder = _CAREFUL if _has_extreme_number(text) else _QUICK
    try:
        value = _decoded(decoder, text)
    except RecursionError as error:
        raise UnsafeTextError(f"it is nested deeper than {MAX_DEPTH}") from error
    short = len(text) <= max_string and containers <= MAX_DEPTH
    if not (short and text.isascii() and "\\" not in text and "\x7f" not in text):
        check_values(value, max_string=max_string)
    return value


def _has_extreme_number(text: str) -> bool:
    """Return True if a number may be infinite or have too many digits."""
    shape = text.encode("utf-8", errors="replace").translate(_SHAPE, b"+")
    return b"e000" in shape or _LONG_NUMBER in shape


def _decoded(decoder: json.JSONDecoder, text: str) -> Any:
    """Decode as `decoder.decode` does, whose regular expressions take a third of a line's time."""
    if text[:1] in ("{", "["):
        value, end = decoder.raw_decode(text)
        if not text[end:].strip(_WHITE_SPACE):
            return value
    return decoder.decode(text)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise TOMLDecodeError if it is not TOML, UnsafeTextError if it is refused."""
    import tomllib  # here: commands that only read a run's records start without it

    if len(text) > MAX_TOML_BYTES:
        raise UnsafeTextError(f"it has {len(text)} characters, more than {MAX_TOML_BYTES}")
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MAX_DOTS_PER_LINE:
            raise UnsafeTextError(f"line {number} has more than {MAX_DOTS_PER_LINE} dots")
    try:
        table = tomllib.loads(text)
        check_values(table)
    except RecursionError as error:
        raise UnsafeTextError(f"it is nested deeper than {MAX_DEPTH}") from error
    except tomllib.TOMLDecodeError:
        raise
    except UnsafeTextError:
        raise
    except ValueError as error:  # Python refuses integers of more than 4,300 digits
        raise UnsafeTextError(f"a number has more than {MAX_DIGITS} digits") from error
    return table


def count_values(text: str) -> int:
    """Return a number not below that of the values in a text of JSON, quickly."""
    return text.count(",") + text.count(":") + 1


def check_values(value: Any, *, max_string: int = MAX_STRING) -> None:
    """Check depth, strings and numbers of plain data, without recursion."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise UnsafeTextError(f"it is nested deeper than {MAX_DEPTH}")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str):
                if len(item) > max_string:
                    raise UnsafeTextError(f"a string has more than {max_string} characters")
                if not item.isascii() or not item.isprintable():
                    _check_string(item)
            elif isinstance(item, int) and item.bit_length() > 3.33 * MAX_DIGITS:
                raise UnsafeTextError(f"a number has more than {MAX_DIGITS} digits")
        level = below


def _check_string(text: str) -> None:
    if match := FORBIDDEN.search(text):
        kind = "a control character" if re.match(f"[{CONTROL}]", match[0]) else "an invisible one"
        if "\ud800" <= match[0] <= "\udfff":
            kind = "a lone surrogate"
        raise UnsafeTextError(
            f"a string has a character that can't be shown: {kind} ({match[0]!a})"
        )


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _require_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "of another type")
        raise InputError(f"{path} is {kind}, not a file.", path=path)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise UnsafeTextError("duplicate key")
    return table


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise UnsafeTextError(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise UnsafeTextError(f"the number {text[:MAX_DIGITS]} is out of range")
    return value


def _refuse_constant(text: str) -> float:
    raise UnsafeTextError(f"{text} is not a number")


_QUICK = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_refuse_constant,
    parse_int=_integer, parse_float=_finite,
)  # fmt: skip
