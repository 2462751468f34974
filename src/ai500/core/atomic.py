"""Atomic file writes: a crash or a full disk never leaves a partial file."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai500.core.errors import EnvironmentLacksError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FREE_SPACE = "Free some, or choose a folder on another disk; then run the same command again."
_DENIED = ("permission denied.", "Choose another folder, or ask its owner for write permission.")
_MISSING = ("its folder does not exist.", "Create it, or choose another.")
_NO_PROCESS = ("the limit on processes is reached.", "Raise `ulimit -u`, or end some.")
PROCESS_LIMIT = " ".join(_NO_PROCESS)

_CAUSES = {
    errno.ENOSPC: ("no space is left on the disk.", _FREE_SPACE),
    errno.EDQUOT: ("your disk quota is used up.", _FREE_SPACE),
    errno.EFBIG: ("the file exceeds the limit of the disk or of `ulimit -f`.", _FREE_SPACE),
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: ("the file system is read-only.", "Choose a folder on another one."),
    errno.EIO: ("the disk reports an input/output error.", "Choose a folder on another disk."),
    errno.ENAMETOOLONG: (
        "the name is too long for the file system.",
        "Choose a shorter name, or a folder with a shorter path.",
    ),
    errno.EAGAIN: _NO_PROCESS,
    errno.EMFILE: ("the limit on open files is reached.", "Raise `ulimit -n`."),
    errno.ENOENT: _MISSING,
    errno.ENOTDIR: _MISSING,
}
"""errno → (cause, remedy)."""


@contextlib.contextmanager
def explaining_write_errors(path: Path) -> Iterator[None]:
    """Raise EnvironmentLacksError, with cause and remedy, for OS errors while writing `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _CAUSES:
            raise
        raise explained(error, f"cannot write {path}", path=path) from error


def explained(error: OSError, action: str, *, path: Path | None) -> EnvironmentLacksError:
    """Return the error with its cause and remedy; of a rare cause the system's own words."""
    number = error.errno or 0
    cause, remedy = _CAUSES.get(number, (f"{error.strerror or error}.", ""))
    name = errno.errorcode.get(number, type(error).__name__)
    return EnvironmentLacksError(f"{action} ({name}): {cause}", path=path, remedy=remedy)


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write `path` atomically and durably; on an error the old file stays."""
    write_parts(path, [data])


def write_parts(
    path: Path, parts: Iterable[bytes | memoryview], *, backup: Path | None = None
) -> None:
    """Write `path` part by part, atomically and durably; on an error the old file stays.

    The old file becomes `backup`. A crash between the two renames leaves the backup alone.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a file: it can't be replaced by one.", path=path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    with explaining_write_errors(path):
        try:
            with temporary.open("xb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            if backup is not None and path.exists():
                path.replace(backup)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write `path` atomically as UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: object) -> None:
    """Write `path` atomically as JSON."""
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """Format `value` as indented JSON; reject NaN, which JSON does not have."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write `path` atomically as a .npy file without pickles."""
    import numpy as np  # every command imports this module, few write arrays

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    write_bytes(path, buffer.getvalue())


def replace_json(path: Path, value: object) -> None:
    """Replace `path` atomically but not durably: for files that are soon overwritten."""
    replace_bytes(path, json.dumps(value, allow_nan=False).encode())


def replace_bytes(path: Path, data: bytes) -> None:
    """Replace `path` atomically but not durably: for files that can be made again."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explaining_write_errors(path):
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Sync the folder's entries, so that a rename survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; their rename is durable by itself.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
