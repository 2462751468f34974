"""The protocols of stored and generated data, and what every kind of store shares.

A `Store` is a folder of samples on disk; a sample has named, typed fields. A `StoreReader`
recognizes, opens and checks one kind of folder: a plugin of kind `ai500.store`. A `DataSource`
generates the data of a problem class and writes its store. The other packages use these protocols
and never a store's class.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.core import schema
from ai500.core.errors import DataError
from ai500.data.gather import Empty
from ai500.data.resumable_work import Progress
from ai500.records.fields import OFFSETS, Field
from ai500.records.problem import ProblemClass

Arrays = dict[str, NDArray[Any]]
"""Rows of each field by its name; a ragged field NAME comes as `NAME`, its samples concatenated,
and `NAME.offsets`, the bounds of the samples in it (int64 [samples + 1], from 0)."""
Digests = NDArray[np.uint64]
Indices = NDArray[np.int64]
Normalization = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel."""


class Samples(Protocol):
    """Samples by their number in the store: read from it, or from a node's copy."""

    @property
    def count(self) -> int:
        """Number of samples in the store's split, present on this node or not."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of every sample, in the store's order."""

    def rows(
        self, indices: Indices, *, names: Sequence[str] | None = None, empty: Empty = np.empty
    ) -> Arrays:
        """Read these samples, in this order, from any thread; `names`: only these fields.

        Every array is allocated by `empty`, in the order of the fields.
        """


class StoredSplit(Samples, Protocol):
    """One split of a store, as verification and staging need it."""

    @property
    def name(self) -> str:
        """Name of the split, such as `train`."""

    def read(self, indices: Indices) -> Arrays:
        """Read samples in ascending order; a failing disk is a `DataError`."""

    def lengths(self, name: str) -> Indices:
        """Return the length of every sample of a ragged field."""

    def storage_chunks(self, indices: Indices) -> Indices | None:
        """Return the number of the chunk on disk that holds each sample.

        Samples of one chunk are best read together. None: every sample is read by itself.
        """

    def path_of(self, number: int) -> Path:
        """Return the file that holds a sample."""


class Store(Protocol):
    """A folder of samples with an identity."""

    @property
    def path(self) -> Path:
        """Folder of the store."""

    @property
    def name(self) -> str:
        """Name of the data set."""

    @property
    def sha256(self) -> str:
        """Identity of all samples: no paths, no times."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the targets' classes; empty: they have none."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of every sample."""

    @property
    def splits(self) -> Mapping[str, StoredSplit]:
        """Splits by name: `train` and `validation`."""

    @property
    def preparation(self) -> str | None:
        """Name of the stage that `prepare` is, as shown to the user; None: nothing to prepare."""

    def prepare(self, progress: Progress | None = None) -> None:
        """Compute once what identity and normalization need."""

    def verify(self, progress: Progress | None = None) -> None:
        """Compare the files with the store's hashes; raise `DataError` at the first difference."""

    def digests(self, split: str) -> Digests:
        """Return the digest of every sample of a split, as the store recorded it."""

    def normalization(self) -> Normalization | None:
        """Return the channels' statistics; None: the workload has constants of its own."""

    def require_fit(self, problem_class: ProblemClass) -> None:
        """Raise `DataError` unless the store has the fields and samples that the class declares."""


@dataclass(frozen=True, order=True)
class Problem:
    """A difference between a folder of data and its schema."""

    file: str
    frame: int
    """Number of the sample in the file; −1: the file or the folder as a whole."""
    text: str

    def __str__(self) -> str:
        where = self.file and f"{self.file}: "
        return f"{where}{f'frame {self.frame}: ' if self.frame >= 0 else ''}{self.text}"


@dataclass(frozen=True)
class CheckReport:
    """Result of `ai500 data check`."""

    path: Path
    summary: tuple[str, ...]
    """Lines that describe the data."""
    facts: dict[str, Any]
    """The same for `--json`."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """Hints about data that is valid but slow to read."""


class StoreReader(Protocol):
    """Recognizes, opens and checks one kind of store."""

    def recognizes(self, path: Path) -> bool:
        """Return True where a folder holds this kind of store; reads no sample."""

    def open(self, path: Path) -> Store:
        """Open a store without reading a sample; raise `DataError` where it is damaged."""

    def check(self, path: Path, progress: Progress | None = None) -> CheckReport:
        """Read everything once and report every problem."""


class DataSource(Protocol):
    """A generator of a problem class's data.

    Its `repr` is its identity and names its folder in the cache: sources with the same `repr`
    write the same bytes.
    """

    @property
    def own_data(self) -> str:
        """Remedy for a class without a generator: how to bring one's own data."""

    def write_store(
        self,
        folder: Path,
        *,
        name: str,
        problem_class: ProblemClass,
        progress: Progress | None = None,
    ) -> Store:
        """Write the store of a class, or open it where it is already there.

        Resumes an interrupted write. Raises `DataError` where the identity is not the class's
        `store_sha256`.
        """

    def resized(self, samples: int, *, height: int | None, width: int | None) -> DataSource:
        """Return a source of so many samples of this size; `InputError` where both are fixed."""


def facts_of(store: Store) -> dict[str, Any]:
    """Return what `--json` prints about a store."""
    return {
        "path": str(store.path),
        "name": store.name,
        "sha256": store.sha256,
        "classes": len(store.classes),
        "fields": [schema.encode(field) for field in store.fields],
        "splits": {name: split.count for name, split in store.splits.items()},
    }


def summary_of(store: Store) -> tuple[str, ...]:
    """Return the lines that describe a store."""
    counts = ", ".join(f"{split.count} {name}" for name, split in store.splits.items())
    classes = f", {len(store.classes)} classes" if store.classes else ""
    return (
        f"{store.path}: {counts}{classes}",
        f"fields {', '.join(map(str, store.fields))}",
        f"SHA-256 {store.sha256}",
    )


def data_error(
    path: str | Path,
    problem: str,
    remedy: str = "",
    *,
    key: str | None = None,
    value: object = None,
) -> DataError:
    """Build the error about a file or folder of data: `PATH: problem remedy`."""
    return DataError(f"{path}: {problem}", key=key, path=path, value=value, remedy=remedy)


def require_indices(split: Samples, indices: Indices, *, folder: Path, name: str) -> None:
    """Raise `DataError` unless the split has all these samples."""
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < split.count:
        raise data_error(
            folder,
            f"samples {indices.min()} to {indices.max()} asked for, split {name!r} has "
            f"0 to {split.count - 1}.",
            "Use the store that the bootstrap was drawn for.",
            key=name,
            value=int(indices.max() if indices.min() >= 0 else indices.min()),
        )


def chosen_fields(fields: Sequence[Field], names: Sequence[str] | None) -> Iterator[Field]:
    """Yield the fields with these names, or all; a name that there is not is a `DataError`."""
    known = [field.name for field in fields]
    for name in names or ():
        if name not in known:
            raise DataError(
                f"no field {name!r}: the samples have {', '.join(known)}.", key=name, value=known
            )
    yield from (field for field in fields if names is None or field.name in names)


def array_names(field: Field) -> tuple[str, ...]:
    """Return the names of a field's arrays: its own, and a ragged field's offsets."""
    return (field.name, field.name + OFFSETS) if field.ragged else (field.name,)


def numpy_dtype(field: Field) -> np.dtype[Any]:
    """Return the type of a field's values on disk and in memory: little-endian."""
    return np.dtype(field.dtype).newbyteorder("<")


def require_fields(store: Store, problem_class: ProblemClass) -> None:
    """Raise `DataError` unless a store has the class's splits, fields and numbers of samples."""
    _require_splits(store, problem_class)
    stored = {field.name: field for field in store.fields}
    remedy = f"Choose another --class, or make the store with the fields of {problem_class.name}."
    for field in problem_class.fields:
        if field.name not in stored:
            raise data_error(
                store.path,
                f"has no field {field.name!r} ({field.role}), which class {problem_class.name} "
                f"needs; it has {', '.join(stored)}.",
                remedy,
                key=field.name,
                value=list(stored),
            )
        for key in ("role", "dtype", "shape"):
            value, needed = getattr(stored[field.name], key), getattr(field, key)
            if value != needed:
                raise data_error(
                    store.path,
                    f"its field {field.name!r} has {key} {_text(value)}; class "
                    f"{problem_class.name} needs {_text(needed)}.",
                    remedy,
                    key=f"{field.name}.{key}",
                    value=value,
                )
        _require_limits(store, stored[field.name], field)


def _require_splits(store: Store, problem_class: ProblemClass) -> None:
    needed = {
        "train": problem_class.train_samples,
        "validation": problem_class.validation_samples,
    }
    for name, count in needed.items():
        if name not in store.splits:
            raise data_error(
                store.path, f"it has the splits {sorted(store.splits)}, not {name!r}.", key=name
            )
        if store.splits[name].count != count:
            raise data_error(
                store.path,
                f"has {store.splits[name].count} samples in {name!r}; the plan has {count}.",
                "Plan the run again on this store.",
                key=name,
                value=store.splits[name].count,
            )


def _require_limits(store: Store, stored: Field, needed: Field) -> None:
    if needed.limits is None:
        return
    low, high = stored.limits or (-np.inf, np.inf)
    if low < needed.limits[0] or high > needed.limits[1]:
        raise data_error(
            store.path,
            f"its field {needed.name!r} may have values from {low:g} to {high:g}; the "
            f"class needs {needed.limits[0]:g} to {needed.limits[1]:g}.",
            f"Pack it with --limits {needed.name}={needed.limits[0]:.15g}:{needed.limits[1]:.15g}, "
            "which checks every value.",
            key=f"{needed.name}.limits",
            value=stored.limits,
        )


def _text(value: object) -> str:
    return "×".join(map(str, value)) or "()" if isinstance(value, tuple) else str(value)


def digests_of(arrays: Arrays, fields: Sequence[Field]) -> Digests:
    """Compute BLAKE2b of 8 bytes over the bytes of each sample's fields, in their order.

    A ragged field adds its length, so that no two divisions of values have one digest.
    """
    parts = [buffers for field in fields for buffers in _buffers(arrays, field)]
    digests = bytearray()
    for sample in zip(*parts, strict=True):
        digest = hashlib.blake2b(digest_size=8)
        for buffer in sample:
            digest.update(buffer)
        digests += digest.digest()
    return np.frombuffer(bytes(digests), dtype="<u8")


def _buffers(arrays: Arrays, field: Field) -> Iterator[Iterable[memoryview]]:
    """Yield what a field adds to each sample's digest: its bytes, before them its length."""
    values = np.ascontiguousarray(arrays[field.name], dtype=numpy_dtype(field))
    if not field.ragged:
        yield _bytes_of_rows(values)
        return
    offsets = arrays[field.name + OFFSETS]
    yield _bytes_of_rows(np.diff(offsets).astype("<i8"))
    data = values.reshape(-1).view(np.uint8).data
    bounds = (offsets * field.row_bytes).tolist()
    yield [data[first:last] for first, last in pairwise(bounds)]


def _bytes_of_rows(rows: NDArray[Any]) -> list[memoryview]:
    if not len(rows):
        return []
    data = rows.reshape(-1).view(np.uint8).data
    size = len(data) // len(rows)
    return [data[first : first + size] for first in range(0, len(data), size)]


def cache_folder() -> Path:
    """Return the folder of generated stores: $AI500_CACHE, or `ai500` in the user's cache."""
    if "AI500_CACHE" in os.environ:
        return Path(os.environ["AI500_CACHE"])
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ai500"
