"""File format of a submission: a tar archive in which every byte is prescribed.

Names are sorted, owners, modes and times are fixed, nothing is compressed. The same run therefore
gives the same bytes on every machine; each file has one header and no second directory could
contradict it; links, devices, duplicates and bombs can't be represented; and every changed byte is
detected. `tar xf` reads the format too; docs/submission.md explains why it is not zip.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ai500.core.atomic import explaining_write_errors, write_parts
from ai500.core.errors import InputError
from ai500.core.reading import open_regular

BLOCK = 512
MAX_FILES = 500_000
# Files of runs have 4,100 to 4,700 bytes on average, besides header and padding. Each costs 0.2 ms.
BYTES_PER_FILE, MIN_FILES = 4096, 5000
MAX_BYTES = 4 << 30
MAX_ARCHIVE_BYTES = MAX_BYTES + BLOCK * MAX_FILES
# Sum over all events.jsonl: scoring a run reads them all into memory.
MAX_EVENT_BYTES = 512 << 20
MAX_NAME = 100
# Bounds the memory that 4 GiB of bad headers take.
MAX_PROBLEMS = 1000
# 1980-01-01: no archive tool rejects it as implausible.
TIME = 315_532_800
_CHUNK = 1 << 20
_END = bytes(2 * BLOCK)
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_KINDS = {b"1": "a hard link", b"2": "a link", b"3": "a device", b"4": "a device",
          b"5": "a folder", b"6": "a pipe"}  # fmt: skip
_USTAR_OFFSET, _USTAR = 257, b"ustar\x0000"
_SIGNATURES = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\xfd7zXZ", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"\x89PNG", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"%PDF", "a PDF"),
    (b"\x7fELF", "a program"),
    (b"\x89HDF", "HDF5 data"),
    (b"-----BEGIN", "a key or certificate (PEM)"),
)
"""First bytes of other file types."""


@dataclass(frozen=True)
class Digest:
    """Size and SHA-256 of a file's content."""

    bytes: int
    sha256: str


@dataclass
class Unpacked:
    """Result of unpacking: the files that were written, and the problems of the archive."""

    files: dict[str, Digest] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def name_problem(name: str) -> str | None:
    """Return why a file may not have this name on some operating system, or None."""
    if len(name) > MAX_NAME:
        return f"the name is longer than {MAX_NAME} characters"
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "the name is an absolute path"
    for part in name.split("/"):
        if part == "..":
            return "the name leads out of the folder (..)"
        if not _PART.fullmatch(part) or part.endswith("."):
            return "the name has other characters than letters, digits, '_', '-' and '.'"
        if _RESERVED.fullmatch(part):
            return f"{part!r} is no file name on Windows"
    return None


def printable(text: str) -> str:
    """Make untrusted text safe for a terminal: one short line without control characters."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:300])
    return shown + ("…" if len(text) > 300 else "")


def pack(path: Path, files: Mapping[str, bytes]) -> None:
    """Write the archive atomically."""
    write_parts(path, blocks(files))


def blocks(files: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield the archive's bytes, file by file."""
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
        raise InputError(
            f"a submission has at most {MAX_FILES} files and {MAX_BYTES >> 30} GiB; this one has "
            f"{len(files)} files and {sum(map(len, files.values())) / 2**30:.1f} GiB.",
            key="files",
            value=len(files),
        )
    events = sum(len(files[name]) for name in files if _holds_events(name))
    if events > MAX_EVENT_BYTES:
        raise InputError(
            f"the events of a submission have at most {MAX_EVENT_BYTES >> 20} MiB; these have "
            f"{events / 2**20:.1f} MiB.",
            key="events",
            value=events,
        )
    for name in sorted(files):
        if reason := name_problem(name):
            raise InputError(f"{printable(name)}: {reason}; a submission can't contain it.")
        yield header(name, len(files[name])) + files[name] + bytes(-len(files[name]) % BLOCK)
    yield _END


def header(name: str, size: int) -> bytes:
    """Return the only header (POSIX ustar) that a file of this name and size may have."""
    start = name.encode("ascii").ljust(100, b"\0") + b"0000644\0" + 2 * b"0000000\0"
    start += f"{size:011o}\0{TIME:011o}\0".encode()
    end = (b"0" + bytes(100) + b"ustar\x0000" + bytes(64) + 2 * b"0000000\0").ljust(356, b"\0")
    checksum = sum(start) + 8 * ord(" ") + sum(end)
    return start + f"{checksum:06o}\0 ".encode() + end


def unpack(path: Path, target: Path) -> Unpacked:
    """Write the archive's files under `target`; each problem names its file."""
    result = Unpacked()
    try:
        file = open_regular(path)
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}.", path=path) from error
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_ARCHIVE_BYTES:
            result.problems.append(f"{path.name}: larger than a submission may be ({size} bytes)")
        else:
            _unpack(file, size, target, result)
    return result


def _unpack(file: BinaryIO, size: int, target: Path, result: Unpacked) -> None:
    previous, seen, events = "", set[str](), 0
    max_files = min(MAX_FILES, max(MIN_FILES, size // BYTES_PER_FILE))
    while (at := file.tell()) < size:
        block = file.read(BLOCK)
        if block == _END[:BLOCK]:
            break
        name, length = _name_and_size(block)
        if name is None or length is None or at + BLOCK + length > size:
            where = f"after {previous}" if previous else "at its beginning"
            shown = f"{printable(name)}: " if name else ""
            result.problems.append(
                f"{shown}the archive is damaged {where} (byte {at}); the rest can't be read"
            )
            return
        reason = _refusal(name, length, block, previous=previous, seen=seen)
        events += length if _holds_events(name) else 0
        if reason is None and events > MAX_EVENT_BYTES:
            reason = f"up to this file, the events have more than {MAX_EVENT_BYTES} bytes"
        if reason is not None:
            result.problems.append(f"{printable(name)}: {reason}")
            if len(result.problems) >= MAX_PROBLEMS:
                result.problems.append(f"{Path(file.name).name}: the rest is not read")
                return
            file.seek(at + BLOCK + length + -length % BLOCK)
            continue
        if len(seen) == max_files:
            result.problems.append(
                f"{name}: more than {max_files} files in {size} bytes; the rest is not read"
            )
            return
        previous = name
        seen.add(name.casefold())
        result.files[name] = _copy(file, length, target / name)
        if file.read(-length % BLOCK).strip(b"\0"):
            result.problems.append(f"{name}: its padding contains data")
    file.seek(max(0, min(file.tell() - BLOCK, size)))
    if file.read(3 * BLOCK) != _END:
        result.problems.append(
            f"{Path(file.name).name}: the end of the archive is not as `ai500 submit` writes it"
        )


def _holds_events(name: str) -> bool:
    return name.rpartition("/")[2] == "events.jsonl"


def _name_and_size(block: bytes) -> tuple[str | None, int | None]:
    """Return name and size from a header; None for each that it does not contain."""
    digits = block[124:135]
    try:
        name: str | None = block[:100].rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError:
        name = block[:100].rstrip(b"\0").decode("utf-8", errors="backslashreplace")
    if len(block) < BLOCK or not re.fullmatch(rb"[0-7]{11}", digits):
        return name or None, None
    return name or None, int(digits, 8)


def _refusal(name: str, size: int, block: bytes, *, previous: str, seen: set[str]) -> str | None:
    """Return why a file is not unpacked, or None."""
    if reason := name_problem(name):
        return reason
    kind = block[156:157]
    if kind != b"0":
        return f"it is {_KINDS.get(kind, 'a special entry')}, not a file"
    if name.casefold() in seen:
        return "duplicate name (or names differ only by case)"
    parents = name.casefold().split("/")[:-1]
    if any("/".join(parents[: n + 1]) in seen for n in range(len(parents))):
        return "its folder is also a file"
    if block != header(name, size):
        return "its header is not as `ai500 submit` writes it"
    if name < previous:
        return "the names are not sorted"
    return None


def _copy(file: BinaryIO, length: int, target: Path) -> Digest:
    digest, left = hashlib.sha256(), length
    with explaining_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as out:
            while left:
                data = file.read(min(left, _CHUNK))
                if not data:
                    raise InputError(f"{file.name}: the file was truncated while it was read.")
                digest.update(data)
                out.write(data)
                left -= len(data)
    return Digest(length, digest.hexdigest())


def other_file_type(path: Path) -> str | None:
    """Describe a file that is not a submission; return None if it begins like one."""
    with open_regular(path) as file:
        start = file.read(BLOCK)
    if start[_USTAR_OFFSET:].startswith(_USTAR):
        return None
    if not start:
        return "an empty file"
    if start[_USTAR_OFFSET:].startswith(b"ustar"):
        return "a tar archive of another program"
    for signature, description in _SIGNATURES:
        if start.startswith(signature):
            return description
    return "a text file" if _is_text(start) else "a file of another type"


def _is_text(start: bytes) -> bool:
    # The last character may be cut in the middle.
    text = start.decode("utf-8", errors="ignore")
    complete = len(text.encode()) >= len(start) - 3
    return complete and all(c.isprintable() or c in "\t\n\r\f" for c in text)
