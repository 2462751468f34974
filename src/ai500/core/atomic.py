"""Files that are whole or absent: a crash or a full disk never leaves half of one."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import EnvironmentLacksError

_NO_WRITE = "you may not write there. Choose another folder, or ask its owner for write permission."
_FULL = "{} Free some, or choose a folder on another disk; then run the same command again."
_GONE = "its folder does not exist (any more). Create it, or choose another."

_EXPLANATIONS = {
    errno.ENOSPC: _FULL.format("no space is left on the disk."),
    errno.EDQUOT: _FULL.format("your disk quota is used up."),
    errno.EFBIG: _FULL.format(
        "the file is larger than this disk or your limits (ulimit -f) allow."
    ),
    errno.EACCES: _NO_WRITE,
    errno.EPERM: _NO_WRITE,
    errno.EROFS: "the file system is read-only. Choose a folder on another one.",
    errno.EIO: "the disk reports an input/output error. Choose a folder on another disk.",
    errno.ENOENT: _GONE,
    errno.ENOTDIR: _GONE,
}


@contextlib.contextmanager
def explaining_write_errors(path: Path) -> Iterator[None]:
    """Turn what the machine refuses while writing `path` into a message for a person."""
    try:
        yield
    except OSError as error:
        explanation = _EXPLANATIONS.get(error.errno or 0)
        if explanation is None:
            raise
        code = errno.errorcode[error.errno or 0]
        raise EnvironmentLacksError(f"cannot write {path} ({code}): {explanation}") from error


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write `path` whole, and durably, or leave what was there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with explaining_write_errors(path):
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write `path` whole as UTF-8, or leave what was there."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: object) -> None:
    """Write `path` whole as JSON, or leave what was there."""
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """JSON as people read it; NaN is refused, because JSON has none."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write `path` whole as a .npy file without pickles."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    write_bytes(path, buffer.getvalue())


def replace_json(path: Path, value: object) -> None:
    """Replace `path` in one step but without waiting for the disk: for what is soon overwritten."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explaining_write_errors(path):
        temporary.write_text(json.dumps(value, allow_nan=False), encoding="utf-8")
        temporary.replace(path)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: after a power cut a renamed file has its new name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; their rename is durable by itself.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
