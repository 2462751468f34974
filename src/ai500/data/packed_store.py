"""The packed store: each field as one memory-mapped array per split; training decodes nothing.

    STORE/
      manifest.json             format, name, classes, fields; SHA-256 of each file; identity
      train.images.npy          a field: its type, [N, …]
      train.tokens.npy          a ragged field: its samples one after another, [rows, …]
      train.tokens.offsets.npy  int64 [N + 1]: the bounds of its samples
      train.digests.npy         uint64 [N]: digest of each sample's fields, to verify copies
      validation.….npy

The bytes depend on the contents alone. The manifest is written last: a folder without one is not a
store. `ai500.data.store_writer` writes stores; nodes' copies have splits of the same format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ai500.core import schema
from ai500.core.errors import DataError, InputError
from ai500.core.reading import file_sha256, read_json
from ai500.data.climate.packed_frames import frame_problems
from ai500.data.columns import Column
from ai500.data.gather import Empty, gather, gather_spans
from ai500.data.resumable_work import Progress
from ai500.data.store import (
    Arrays,
    CheckReport,
    Digests,
    Indices,
    array_names,
    chosen_fields,
    data_error,
    facts_of,
    numpy_dtype,
    require_fields,
    require_indices,
    summary_of,
)
from ai500.data.values import require_values
from ai500.records.fields import OFFSETS, Field
from ai500.records.problem import ProblemClass

FORMAT = "ai500 store 2"
MANIFEST = "manifest.json"
CHECK_BLOCK_BYTES = 1 << 24
COPY_AGAIN = "Make or copy the store again."


@dataclass(frozen=True)
class PackedSplit:
    """The samples of one split, of a store or of a node's copy."""

    folder: Path
    name: str
    count: int
    fields: tuple[Field, ...]
    ragged_rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of each ragged field's array, over all samples."""

    def __reduce__(self) -> tuple[type[PackedSplit], tuple[Any, ...]]:
        # Another process maps the files itself: pickling a map would copy the whole array.
        return PackedSplit, (self.folder, self.name, self.count, self.fields, self.ragged_rows)

    def column(self, name: str) -> Column:
        """Return the file of a field's values, or of a ragged field's `NAME.offsets`."""
        path = self.folder / f"{self.name}.{name}.npy"
        if name.endswith(OFFSETS):
            return Column(path, np.dtype("<i8"), (self.count + 1,))
        (stored,) = chosen_fields(self.fields, [name])
        rows = self.ragged_rows[name] if stored.ragged else self.count
        return Column(path, numpy_dtype(stored), (rows, *stored.row_shape))

    @property
    def digest_column(self) -> Column:
        return Column(self.folder / f"{self.name}.digests.npy", np.dtype("<u8"), (self.count,))

    @property
    def columns(self) -> tuple[Column, ...]:
        """All files of the split: the fields in their order, then the digests."""
        names = [name for stored in self.fields for name in array_names(stored)]
        return (*map(self.column, names), self.digest_column)

    @property
    def row_bytes(self) -> int:
        """Bytes of one sample on disk, on average: its fields and its digest."""
        return max(1, sum(column.file_bytes for column in self.columns) // max(1, self.count))

    def path_of(self, number: int) -> Path:
        """Return the file that holds a sample's first field: one for all samples."""
        return self.columns[0].path

    @cached_property
    def _mapped(self) -> Arrays:
        return {}

    def array(self, name: str) -> NDArray[Any]:
        """Return a field's mapped values of all samples, or a ragged field's `NAME.offsets`."""
        if name not in self._mapped:
            offsets = name.endswith(OFFSETS)
            self._mapped[name] = self._offsets(name) if offsets else self.column(name).mapped()
        return self._mapped[name]

    def _offsets(self, name: str) -> NDArray[np.int64]:
        """Map a ragged field's offsets, and check them: they address memory."""
        column, rows = self.column(name), self.ragged_rows[name.removesuffix(OFFSETS)]
        offsets = column.mapped()
        if offsets[0] != 0 or offsets[-1] != rows or (np.diff(offsets) < 0).any():
            raise data_error(
                column.path, f"corrupt: not the bounds of {self.count} samples.", COPY_AGAIN
            )
        return offsets

    @cached_property
    def digests(self) -> Digests:
        """Digest of every sample."""
        return self.digest_column.mapped()

    def rows(
        self, indices: Indices, *, names: Sequence[str] | None = None, empty: Empty = np.empty
    ) -> Arrays:
        """Read these samples, in this order."""
        require_indices(self, indices, folder=self.folder, name=self.name)
        rows: Arrays = {}
        for stored in chosen_fields(self.fields, names):
            values = self.array(stored.name)
            if not stored.ragged:
                rows[stored.name] = empty((len(indices), *stored.shape), values.dtype)
                gather(values, indices, rows[stored.name])
                continue
            bounds = self.array(stored.name + OFFSETS)
            offsets = offsets_of(bounds[indices + 1] - bounds[indices], empty=empty)
            rows[stored.name] = empty((int(offsets[-1]), *stored.row_shape), values.dtype)
            gather_spans(values, bounds[indices], offsets, rows[stored.name])
            rows[stored.name + OFFSETS] = offsets
        return rows

    def read(self, indices: Indices) -> Arrays:
        """Read samples in ascending order, without a memory map of their values."""
        rows: Arrays = {}
        for stored in self.fields:
            column = self.column(stored.name)
            if not stored.ragged:
                rows[stored.name] = column.read(indices)
                continue
            bounds = self.array(stored.name + OFFSETS)
            starts, ends = bounds[indices], bounds[indices + 1]
            rows[stored.name] = column.read_spans(starts, ends)
            rows[stored.name + OFFSETS] = offsets_of(ends - starts)
        return rows

    def lengths(self, name: str) -> Indices:
        """Return the length of every sample of a ragged field."""
        return np.diff(self.array(name + OFFSETS))

    def storage_chunks(self, indices: Indices) -> None:
        """Return None: a sample is read by itself."""


def offsets_of(lengths: NDArray[np.int64], *, empty: Empty = np.empty) -> NDArray[np.int64]:
    """Return the bounds of samples of these lengths, one after another."""
    offsets = empty((len(lengths) + 1,), np.dtype(np.int64))
    offsets[0] = 0
    np.cumsum(lengths, out=offsets[1:])
    return offsets


@dataclass(frozen=True)
class PackedStore:
    """A finished store on disk."""

    path: Path
    name: str
    sha256: str
    classes: tuple[str, ...]
    fields: tuple[Field, ...]
    splits: dict[str, PackedSplit]
    file_sha256: dict[str, str]

    preparation: ClassVar[str | None] = None

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        """Return True where the folder has a manifest."""
        return (path / MANIFEST).exists()

    @classmethod
    def open(cls, path: Path) -> PackedStore:
        """Read the manifest and compare the files' sizes with it; reads no sample."""
        manifest = _read_manifest(path)
        try:
            store = _from_manifest(path, manifest)
        except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
            raise data_error(
                path / MANIFEST,
                f"not the manifest of a store ({error!r}).",
                "Make the store again.",
                value=type(error).__name__,
            ) from error
        stated = manifest.get("sha256")
        if stated != store.sha256:
            raise data_error(
                path / MANIFEST,
                f"corrupt: its contents have SHA-256 {store.sha256}, it says {stated}.",
                COPY_AGAIN,
                key="sha256",
                value=stated,
            )
        for column in store.columns():
            _check_size(column)
        return store

    @classmethod
    def check(cls, path: Path, progress: Progress | None = None) -> CheckReport:
        """Verify every file and value; a damaged store raises `DataError`."""
        store = cls.open(path)
        store.verify(progress)
        for split in store.splits.values():
            _require_valid(split)
        problems = tuple(sorted(frame_problems(store.fields, store.splits)))
        return CheckReport(path, summary_of(store), facts_of(store), problems)

    def prepare(self, progress: Progress | None = None) -> None:
        """Do nothing: the manifest has everything."""

    def digests(self, split: str) -> Digests:
        """Return the digest of every sample of a split."""
        return self.splits[split].digests

    def normalization(self) -> None:
        """Return None: the workload's constants normalize inputs."""

    def require_fit(self, problem_class: ProblemClass) -> None:
        """Raise `DataError` unless the store has the class's fields and numbers of samples."""
        require_fields(self, problem_class)

    def columns(self) -> Iterator[Column]:
        """Iterate over every file of the store but its manifest."""
        for split in self.splits.values():
            yield from split.columns

    def verify(self, progress: Progress | None = None) -> None:
        """Compare the SHA-256 of every file with the manifest; progress is in bytes."""
        total = sum(column.file_bytes for column in self.columns())
        done = 0

        def count(size: int) -> None:
            nonlocal done
            done += size
            if progress:
                progress(done, total)

        for column in self.columns():
            sha256 = hash_column(column, count)
            expected = self.file_sha256[column.path.name]
            if sha256 != expected:
                raise data_error(
                    column.path,
                    f"corrupt: SHA-256 is {sha256}, manifest says {expected}.",
                    COPY_AGAIN,
                    key="sha256",
                    value=sha256,
                )


def _require_valid(split: PackedSplit) -> None:
    """Raise `DataError` where a value is not finite, or outside its field's limits."""
    for stored in split.fields:
        values, path = split.array(stored.name), split.column(stored.name).path
        step = max(1, CHECK_BLOCK_BYTES // max(1, stored.row_bytes))
        for first in range(0, len(values), step):
            block = values[first : first + step]
            rows = range(first, first + len(block))
            samples = f"rows {first} to {rows[-1]} of {split.name!r}"
            require_values(block, stored, numbers=rows, path=path, samples=samples)


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        manifest = read_json(file)
    except (FileNotFoundError, NotADirectoryError):
        raise _no_store_error(path) from None
    except (OSError, InputError) as error:
        raise data_error(file, f"cannot read this manifest: {error}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise data_error(
            file,
            f"not a manifest of format {FORMAT!r}.",
            "Make the store again.",
            key="format",
            value=manifest.get("format") if isinstance(manifest, dict) else None,
        )
    return manifest


def _no_store_error(path: Path) -> DataError:
    if any(path.glob("*.npy")):
        return DataError(
            f"{path / MANIFEST}: missing: {path} is an unfinished store.",
            path=path / MANIFEST,
            remedy="Run the command that makes it (ai500 data pack, ai500 data generate) again: it "
            "resumes.",
        )
    if path.is_dir():
        why = f"it has no {MANIFEST}, and no years of climate data (climo_1979.h5, …)"
    else:
        why = "it is a file, not a folder" if path.exists() else "there is no such folder"
    return DataError(
        f"{path} is no store: {why}.",
        path=path,
        remedy="`ai500 data pack` makes a store of your data, `ai500 data generate` one of "
        "learnable data.",
    )


def _from_manifest(path: Path, manifest: dict[str, Any]) -> PackedStore:
    fields = tuple(schema.decode(Field, entry) for entry in manifest["fields"])
    splits: dict[str, PackedSplit] = {}
    hashes: dict[str, str] = {}
    for name, entry in manifest["splits"].items():
        rows = {field.name: int(entry["rows"][field.name]) for field in fields if field.ragged}
        splits[name] = PackedSplit(path, name, int(entry["count"]), fields, rows)
        for column in splits[name].columns:
            hashes[column.path.name] = str(entry["files"][column.path.name]["sha256"])
    classes = tuple(str(name) for name in manifest["classes"])
    body = manifest_body(
        str(manifest["name"]), classes=classes, fields=fields, splits=splits, file_sha256=hashes
    )
    return PackedStore(path, body["name"], identity(body), classes, fields, splits, hashes)


def manifest_body(
    name: str,
    *,
    classes: tuple[str, ...],
    fields: tuple[Field, ...],
    splits: Mapping[str, PackedSplit],
    file_sha256: Mapping[str, str],
) -> dict[str, Any]:
    """Return the part of a manifest that the identity covers: contents, no paths, no times."""
    entries = {
        split.name: {
            "count": split.count,
            "rows": dict(split.ragged_rows),
            "files": {
                column.path.name: {
                    "bytes": column.file_bytes,
                    "sha256": file_sha256[column.path.name],
                }
                for column in split.columns
            },
        }
        for split in splits.values()
    }
    return {
        "format": FORMAT,
        "name": name,
        "classes": list(classes),
        "fields": [schema.encode(field) for field in fields],
        "splits": entries,
    }


def identity(body: dict[str, Any]) -> str:
    """Compute the SHA-256 of a manifest's contents in one canonical spelling."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_size(column: Column) -> None:
    try:
        size = column.path.stat().st_size
    except OSError as error:
        raise data_error(
            column.path, f"this file of the store is missing ({error.strerror}).", COPY_AGAIN
        ) from error
    if size != column.file_bytes:
        raise data_error(
            column.path,
            f"has {size} bytes, its manifest says {column.file_bytes}.",
            COPY_AGAIN,
            key="bytes",
            value=size,
        )


def hash_column(column: Column, on_bytes: Callable[[int], None] | None = None) -> str:
    """Compute the SHA-256 of a column's file; one that can't be read is a DataError."""
    try:
        return file_sha256(column.path, on_bytes)
    except OSError as error:
        raise data_error(column.path, f"cannot read this file: {error.strerror}.") from error
