"""The data of a script: a packed store, a folder that only the script understands, or nothing.

The identity of such a folder is that of its files' names and contents. Hashes are kept in the run
folder, so that a trial or a resume reads again only files whose size or time changed.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ai500.core import atomic
from ai500.core.errors import DataError
from ai500.data.open_store import open_store, reader_of
from ai500.data.resumable_work import Progress, available_cores
from ai500.data.store import Digests, Normalization, Store, StoredSplit
from ai500.records import Field, ProblemClass
from ai500.records.run_folder import RunFolder

NOT_VERIFIED = "not verified"
"""Identity of data that only the script knows, because data.path names no folder."""


def is_store(path: Path) -> bool:
    """Return True where a folder holds a store that ai500 reads."""
    return reader_of(path).recognizes(path)


def open_script_data(path: Path, *, run: RunFolder) -> Store:
    """Open a script's data: the store in a folder, else the folder as it is.

    Files of the run itself, which may lie in that folder, do not count.
    """
    require_folder(path)
    return open_store(path) if is_store(path) else ScriptFolder(path, run=run)


def require_folder(path: Path) -> None:
    """Raise `DataError` unless data.path is a folder."""
    if not path.is_dir():
        raise DataError(
            f"data.path = {str(path)!r}: no such folder.",
            key="data.path",
            value=str(path),
            path=path,
            remedy="Name the folder that the script reads, or leave data.path out.",
        )


@dataclass(frozen=True)
class FileContents:
    """Size, time and SHA-256 of a file."""

    bytes: int
    modified_ns: int
    sha256: str


@dataclass
class ScriptFolder:
    """A folder whose files only a script understands: a store without splits."""

    path: Path
    run: RunFolder | None
    """Run folder, which keeps the hashes of the files; None: data.path names no folder, only the
    script knows its data."""
    splits: Mapping[str, StoredSplit] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    files: dict[str, FileContents] | None = None
    """Files by their path in the folder; None before `prepare`."""

    @property
    def preparation(self) -> str | None:
        """Name of the stage that hashes the files."""
        return None if self.run is None else "hashing the files of data.path"

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def sha256(self) -> str:
        """Identity: SHA-256 of the relative paths and the contents' SHA-256 of all files."""
        if self.files is None:
            return NOT_VERIFIED
        digest = hashlib.sha256()
        for name, contents in sorted(self.files.items()):
            digest.update(f"{name}\0{contents.bytes}\0{contents.sha256}\n".encode())
        return digest.hexdigest()

    def prepare(self, progress: Progress | None = None) -> None:
        """Hash every file that is new or has another size or time than when it was hashed."""
        if self.run is None:
            return
        known, listed = _read_hashes(self.run.data_files), self._list_files(self.run.path.resolve())
        total = sum(size for size, _ in listed.values())
        self.files = {
            name: contents
            for name, contents in known.items()
            if listed.get(name) == (contents.bytes, contents.modified_ns)
        }
        done = sum(contents.bytes for contents in self.files.values())
        waiting = [name for name in listed if name not in self.files]
        # Threads suffice: hashing releases the interpreter's lock.
        with concurrent.futures.ThreadPoolExecutor(available_cores()) as pool:
            hashes = pool.map(lambda name: _sha256(self.path / name), waiting)
            for name, digest in zip(waiting, hashes, strict=True):
                self.files[name] = FileContents(*listed[name], digest)
                done += listed[name][0]
                if progress is not None:
                    progress(done, total)
        atomic.write_json(
            self.run.data_files,
            {
                name: [contents.bytes, contents.modified_ns, contents.sha256]
                for name, contents in sorted(self.files.items())
            },
        )

    def _list_files(self, run: Path) -> dict[str, tuple[int, int]]:
        """Return size and time of every file outside of the run, by its path in the folder."""
        files = {}
        for file in self.path.rglob("*"):
            if file.is_file() and run not in file.resolve().parents:
                status = file.stat()
                name = file.relative_to(self.path).as_posix()
                files[name] = (status.st_size, status.st_mtime_ns)
        return files

    def verify(self, progress: Progress | None = None) -> None:
        """Check nothing: `prepare` hashed the files, and a trial compares their identity."""

    def digests(self, split: str) -> Digests:
        """Return no digests."""
        return np.empty(0, dtype=np.uint64)

    def normalization(self) -> Normalization | None:
        """Return nothing: the script normalizes."""
        return None

    def require_fit(self, problem_class: ProblemClass) -> None:
        """Accept every class: only the script can tell."""


def _read_hashes(path: Path) -> dict[str, FileContents]:
    """Return the hashes of an earlier trial; none where they can't be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        return {name: FileContents(*contents) for name, contents in recorded.items()}
    return {}


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(
            f"{path}: can't be read: {error.strerror}.",
            key="data.path",
            value=str(path),
            path=path,
            remedy="Make the file readable, or move it out of data.path.",
        ) from error
