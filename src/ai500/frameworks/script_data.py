"""The data of a script: a packed store, a folder that only the script understands, or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ai500.core.errors import DataError
from ai500.data.open_store import open_store, reader_of
from ai500.data.resumable_work import Progress
from ai500.data.store import Digests, Normalization, Store, StoredSplit
from ai500.records import Field, ProblemClass


def is_store(path: Path) -> bool:
    """Return True where a folder holds a store that ai500 reads."""
    return reader_of(path).recognizes(path)


def open_script_data(path: Path) -> Store:
    """Open a script's data: the store in a folder, else the folder as it is."""
    if is_store(path):
        return open_store(path)
    if not path.is_dir():
        raise DataError(
            f"{path}: no such folder.",
            key="data.path",
            value=str(path),
            path=path,
            remedy="Name the folder that the script reads, or leave data.path out.",
        )
    return ScriptFolder(path, tuple(sorted(file for file in path.rglob("*") if file.is_file())))


@dataclass(frozen=True)
class ScriptFolder:
    """A folder whose files only a script understands: a store without splits."""

    path: Path
    files: tuple[Path, ...] = ()
    splits: Mapping[str, StoredSplit] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    preparation: str | None = None

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def sha256(self) -> str:
        """Identity: SHA-256 of the relative paths and sizes of all files, not of their contents."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(f"{file.relative_to(self.path)}\0{file.stat().st_size}\n".encode())
        return digest.hexdigest()

    def prepare(self, progress: Progress | None = None) -> None:
        """Compute nothing."""

    def verify(self, progress: Progress | None = None) -> None:
        """Check nothing: the files have no digests of their own."""

    def digests(self, split: str) -> Digests:
        """Return no digests."""
        return np.empty(0, dtype=np.uint64)

    def normalization(self) -> Normalization | None:
        """Return nothing: the script normalizes."""
        return None

    def require_fit(self, problem_class: ProblemClass) -> None:
        """Accept every class: only the script can tell."""
