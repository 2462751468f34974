"""Checkpoint files: sealed with their owner and a digest, the last two generations kept.

    ai500 checkpoint 1
    {"owner": {"trial": 1, "member": 0, "seed": 7}, "epoch": 3, "bytes": 2048, "sha256": "…"}
    …payload…

The payload is the framework's own: torch's archive, an .npz. A generation that does not match its
seal, or belongs to another member, is never restored: the one before it is, and without one the
training begins again. Needs no torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ai500.core import atomic
from ai500.core.errors import DataError, InputError
from ai500.core.reading import open_regular

MAGIC = b"ai500 checkpoint 1\n"
MAX_SEAL_BYTES = 1 << 16  # bounds what is read of a file that is no checkpoint

Owner = Mapping[str, int | str]
"""Identity of what a checkpoint continues: trial, member, seed; of arrays also the framework."""


@dataclass(frozen=True)
class Sealed:
    """The payload of a verified checkpoint, and the file it came from."""

    path: Path
    payload: bytes
    epoch: int
    """Finished epochs."""


@dataclass(frozen=True)
class Damaged:
    """A checkpoint that can't be used."""

    path: Path
    reason: str

    def as_event(self) -> dict[str, Any]:
        """Return the fields of the event `checkpoint_damaged`."""
        return {"file": self.path.name, "reason": self.reason}


def previous(path: Path) -> Path:
    """Return the file of the generation before `path`: `checkpoint.pt.previous`."""
    return path.with_name(f"{path.name}.previous")


def generations(path: Path) -> tuple[Path, Path]:
    """Return the files of both generations, the newest first."""
    return path, previous(path)


def write(path: Path, payload: bytes | memoryview, *, owner: Owner, epoch: int) -> None:
    """Seal and write a checkpoint atomically; the present one becomes the previous one.

    `epoch`: the number of finished epochs.
    """
    digest = hashlib.sha256(payload).hexdigest()
    seal = {"owner": dict(owner), "epoch": epoch, "bytes": len(payload), "sha256": digest}
    parts = [MAGIC, json.dumps(seal).encode() + b"\n", payload]
    atomic.write_parts(path, parts, backup=previous(path))


def remove(path: Path) -> None:
    """Remove a checkpoint that is no longer needed, with the generation before it."""
    for generation in generations(path):
        generation.unlink(missing_ok=True)


def stated_owner(path: Path) -> Owner | None:
    """Return the owner that a file's seal names, its payload unread; None: no seal to read."""
    try:
        with open_regular(path) as file:
            owner: Owner = _seal(path, file)["owner"]
    except (OSError, InputError):
        return None
    return owner


def read(path: Path, *, owner: Owner) -> Sealed:
    """Read a checkpoint of this owner and verify its digest; raise DataError if it is damaged."""
    try:
        with open_regular(path) as file:
            seal = _seal(path, file)
            payload = file.read()
    except OSError as error:
        raise _unusable(path, f"it can't be read: {error.strerror}") from error
    except DataError:
        raise
    except InputError as error:
        raise _unusable(path, str(error)) from error
    if len(payload) != seal["bytes"]:
        raise _unusable(path, f"it has {len(payload)} bytes of {seal['bytes']}")
    digest = hashlib.sha256(payload).hexdigest()
    if digest != seal["sha256"]:
        raise _unusable(path, f"its SHA-256 is {digest}, it was written with {seal['sha256']}")
    if seal["owner"] != dict(owner):
        raise _unusable(path, f"it belongs to {_text(seal['owner'])}, not to {_text(owner)}")
    return Sealed(path, payload, seal["epoch"])


def newest(path: Path, *, owner: Owner) -> tuple[Sealed | None, list[Damaged]]:
    """Return the newest checkpoint that is good, and the newer ones that are damaged.

    None: there is no good one, and the training begins from its start.
    """
    damaged: list[Damaged] = []
    for generation in generations(path):
        if not generation.exists():
            continue
        try:
            return read(generation, owner=owner), damaged
        except DataError as error:
            damaged.append(Damaged(generation, str(error.value)))
    return None, damaged


def discard(damaged: list[Damaged]) -> None:
    """Delete damaged generations, so that the next one written keeps the good one beside it."""
    for checkpoint in damaged:
        with contextlib.suppress(FileNotFoundError):
            checkpoint.path.unlink()


def _seal(path: Path, file: IO[bytes]) -> dict[str, Any]:
    """Read the two lines before the payload."""
    if file.read(len(MAGIC)) != MAGIC:
        raise _unusable(path, f"it does not begin with {MAGIC.decode().strip()!r}")
    try:
        seal = json.loads(file.readline(MAX_SEAL_BYTES))
        if isinstance(seal["owner"], dict) and isinstance(seal["sha256"], str):
            return dict(seal, bytes=int(seal["bytes"]), epoch=int(seal["epoch"]))
    except (ValueError, TypeError, KeyError):
        pass
    raise _unusable(path, "its seal can't be read")


def _text(owner: Owner) -> str:
    return ", ".join(f"{key} {value}" for key, value in owner.items())


def _unusable(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} is not a usable checkpoint: {reason}.",
        path=path,
        value=reason,
        remedy="Delete it: `ai500 resume` continues from the one before, or from the start.",
    )
