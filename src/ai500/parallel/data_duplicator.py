"""Data Duplicator (V3 §3.3, Fig. 4): copies to a node the samples that its members use.

A node's copy holds the training samples that at least one of its members draws, and every other
split whole. The members share it. Each sample is verified against the store's digest as it is
copied. Samples keep their numbers, so training reads a store and a copy in the same way.

    FOLDER/<store>-<subset>/   named by hashes, so that every run that needs the same copy finds it
      stage.json               written last
      train.images.npy …       fields as in a store, samples in ascending order of their numbers
      train.indices.npy        their numbers in the store
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core import atomic, schema
from ai500.core.errors import DataError, InputError
from ai500.data.columns import Column
from ai500.data.gather import FLIGHT_BYTES, Empty
from ai500.data.open_store import verify
from ai500.data.packed_store import PackedSplit, offsets_of
from ai500.data.resumable_work import Chunk, Progress, available_cores, cut, locked
from ai500.data.store import Arrays, Digests, Indices, Store, StoredSplit, digests_of
from ai500.data.store_writer import require_free_bytes
from ai500.records.fields import OFFSETS, Field

FORMAT = "ai500 stage 4"
MARK = "stage.json"
TRAIN = "train"
BLOCK_BYTES = 1 << 24  # per piece of work: small enough for progress, large enough to stream


def expected_distinct(samples: int, *, members: int) -> float:
    """Return the expected number of the N samples that k members draw at least once:
    N · (1 − (1 − 1/N)^(N·k)) ≈ N · (1 − e^−k)."""
    if samples <= 1:
        return float(samples if members else 0)
    return -samples * math.expm1(samples * members * math.log1p(-1 / samples))


def staged_bytes(
    train_samples: int, *, validation_samples: int, sample_bytes: int, members: int | None
) -> int:
    """Estimate the size of a node's copy for planning, without reading data.

    It has the samples of so many members; None: of any.
    """
    row_bytes = sample_bytes + 8  # and its digest
    train = train_samples
    if members is not None:
        train = math.ceil(expected_distinct(train_samples, members=members))
    return train * (row_bytes + 8) + validation_samples * row_bytes


@dataclass(frozen=True)
class StagedSplit:
    """The part of a split that is on this node, indexed like the store."""

    part: PackedSplit
    count: int

    def __reduce__(self) -> tuple[type[StagedSplit], tuple[PackedSplit, int]]:
        return StagedSplit, (self.part, self.count)  # see PackedSplit.__reduce__

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.part.fields

    @property
    def numbers(self) -> Column:
        """Column of the samples' numbers in the store."""
        path = self.part.folder / f"{self.part.name}.indices.npy"
        return Column(path, np.dtype("<i8"), (self.part.count,))

    @cached_property
    def indices(self) -> Indices:
        return self.numbers.mapped()

    def rows(
        self, indices: Indices, *, names: Sequence[str] | None = None, empty: Empty = np.empty
    ) -> Arrays:
        """Return these samples of the store, in this order."""
        return self.part.rows(self._local_rows(indices), names=names, empty=empty)

    def _local_rows(self, indices: Indices) -> Indices:
        rows = np.minimum(np.searchsorted(self.indices, indices), self.part.count - 1)
        absent = np.asarray(indices)[self.indices[rows] != indices]
        if absent.size:
            raise DataError(
                f"{self.part.folder}: sample {absent.flat[0]} of split {self.part.name!r} is not "
                "on this node: no member planned here draws it.",
                key=self.part.name,
                path=self.part.folder,
                value=int(absent.flat[0]),
                remedy="Duplicate the data for this member's bootstrap, or set data.stage = false "
                "to read the store.",
            )
        return rows


@dataclass(frozen=True)
class Staged:
    """A node's finished copy; `splits` reads like the store's."""

    path: Path
    name: str
    sha256: str
    """Digest of the store it was copied from."""
    classes: tuple[str, ...]
    splits: dict[str, StagedSplit | PackedSplit]

    @classmethod
    def open(cls, path: Path) -> Staged:
        """Open a copy that `duplicate` finished, and check the sizes of its files."""
        try:
            mark = json.loads((path / MARK).read_bytes())
            if mark["format"] != FORMAT:
                raise ValueError(f"format {mark['format']!r}")
            splits: dict[str, StagedSplit | PackedSplit] = {}
            fields = tuple(schema.decode(Field, entry) for entry in mark["fields"])
            for name, entry in mark["splits"].items():
                part = PackedSplit(path, name, int(entry["staged"]), fields, entry["rows"])
                staged = StagedSplit(part, int(entry["count"]))
                splits[name] = staged if name == TRAIN else part
                for column in (*part.columns, *([staged.numbers] if name == TRAIN else [])):
                    if column.path.stat().st_size != column.file_bytes:
                        raise ValueError(f"{column.path.name} is not {column.file_bytes} bytes")
            return cls(path, mark["name"], mark["sha256"], tuple(mark["classes"]), splits)
        except (
            OSError, ValueError, KeyError, TypeError, AttributeError, InputError,
        ) as error:  # fmt: skip
            raise DataError(
                f"{path}: no finished copy of a store ({error}).",
                path=path,
                remedy="Duplicate the data again.",
            ) from error

    def verify(self, progress: Progress | None = None) -> None:
        """Verify every sample of the copy against its digest; progress is in samples."""
        parts = [s.part if isinstance(s, StagedSplit) else s for s in self.splits.values()]
        pieces = [
            (partial(_verify, part, chunk), chunk) for part in parts for chunk in _chunks(part)
        ]
        _in_threads(pieces, workers=available_cores(), progress=progress)


def _verify(part: PackedSplit, chunk: Chunk) -> None:
    rows = np.arange(chunk.first, chunk.last, dtype=np.int64)
    digests = digests_of(part.read(rows), part.fields)
    verify(part, rows, digests=digests, expected=part.digests[rows])


def _chunks(split: PackedSplit) -> Iterator[Chunk]:
    rows = max(1, BLOCK_BYTES // split.row_bytes)
    return cut(split.name, split.count, rows_per_chunk=rows)


@dataclass(frozen=True)
class _Copy:
    """Copy of one split to the node: the rows `indices` of `source` become all of `target`."""

    source: StoredSplit
    digests: Digests
    """Digests of all samples of the source."""
    target: PackedSplit
    indices: Indices

    @property
    def target_bytes(self) -> int:
        number_bytes = 8 if self.target.name == TRAIN else 0
        return self.target.count * (self.target.row_bytes + number_bytes)

    def chunks(self) -> list[Chunk]:
        """Return the pieces of work; samples that share a chunk on disk are copied together."""
        numbers = self.source.storage_chunks(self.indices)
        if numbers is None:
            return list(_chunks(self.target))
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        most = max(1, FLIGHT_BYTES // self.target.row_bytes)
        return [
            Chunk(self.target.name, first, min(last, first + most))
            for begin, last in pairwise([*starts.tolist(), self.target.count])
            for first in range(begin, last, most)
        ]

    def begin(self) -> None:
        """Write what the store knows of every sample: digests, numbers, bounds of ragged ones."""
        small: list[tuple[Column, NDArray[Any]]] = [
            (self.target.digest_column, self.digests[self.indices])
        ]
        if self.target.name == TRAIN:
            small.append((StagedSplit(self.target, self.source.count).numbers, self.indices))
        for field in self.target.fields:
            if field.ragged:
                lengths = self.source.lengths(field.name)[self.indices]
                small.append((self.target.column(field.name + OFFSETS), offsets_of(lengths)))
        for column, rows in small:
            column.finish()
            column.write(0, rows)
        for field in self.target.fields:
            self.target.column(field.name).finish()

    def copy(self, chunk: Chunk) -> None:
        """Copy samples to the target unless they are there and correct."""
        indices = self.indices[chunk.first : chunk.last]
        expected = self.digests[indices]
        if self._is_present(chunk, expected):
            return
        arrays = self.source.read(indices)
        digests = digests_of(arrays, self.source.fields)
        verify(self.source, indices, digests=digests, expected=expected)
        for field in self.target.fields:
            first, _ = self._bounds(field, chunk)
            self.target.column(field.name).write(first, arrays[field.name])

    def _is_present(self, chunk: Chunk, expected: Digests) -> bool:
        """Return True where an interrupted copy has these samples, with their digests."""
        for field in self.target.fields:
            column = self.target.column(field.name)
            _, last = self._bounds(field, chunk)
            if column.path.stat().st_size < column.offset(last):
                return False
        present = self.target.read(np.arange(chunk.first, chunk.last, dtype=np.int64))
        return np.array_equal(digests_of(present, self.target.fields), expected)

    def _bounds(self, field: Field, chunk: Chunk) -> tuple[int, int]:
        """Return the first row of a chunk in a field's file, and the row after its last."""
        if not field.ragged:
            return chunk.first, chunk.last
        offsets = self.target.array(field.name + OFFSETS)
        return int(offsets[chunk.first]), int(offsets[chunk.last])


def duplicate(
    store: Store,
    *,
    counts: Sequence[NDArray[np.uint8]],
    folder: Path,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Staged:
    """Copy the samples that members with these repeat counts use; progress is in samples.

    A finished copy is verified and used. In one that was interrupted, correct samples are kept. Of
    two processes that need the same copy, one makes it while the other waits.
    """
    used = _union(store, counts)
    subset = hashlib.sha256(np.packbits(used).tobytes()).hexdigest()
    path = folder / f"{store.sha256[:16]}-{subset[:16]}"
    with atomic.explaining_write_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock")):
        if (path / MARK).exists():
            try:
                staged = Staged.open(path)
                staged.verify()  # scratch folders may be writable by others
                return staged
            except DataError:
                (path / MARK).unlink()
        copies = _copies(store, used=used, path=path)
        needed_bytes = sum(copy.target_bytes for copy in copies)
        present_bytes = sum(file.stat().st_blocks * 512 for file in path.glob("*.npy"))
        require_free_bytes(needed_bytes - present_bytes, folder=path, purpose="the node's copy")
        _copy_all(copies, workers=workers or available_cores(), progress=progress)
        return _finish(store, copies=copies, path=path)


def _union(store: Store, counts: Sequence[NDArray[np.uint8]]) -> NDArray[np.bool_]:
    if TRAIN not in store.splits:
        raise DataError(
            f"{store.path}: has no split {TRAIN!r}, only {sorted(store.splits)}.", path=store.path
        )
    samples = store.splits[TRAIN].count
    used = np.zeros(samples, dtype=np.bool_)
    for member in counts:
        if member.shape != (samples,):
            raise DataError(
                f"{store.path}: has {samples} training samples, a bootstrap of {member.size} "
                "belongs to another store.",
                key="samples",
                path=store.path,
                value=member.size,
                remedy="Draw the bootstraps again for this store.",
            )
        used |= member > 0
    if not used.any():
        raise DataError(
            f"{store.path}: no member draws any sample.", key="bootstraps", path=store.path
        )
    return used


def _copies(store: Store, *, used: NDArray[np.bool_], path: Path) -> list[_Copy]:
    copies = []
    for name, split in store.splits.items():
        whole = np.ones(split.count, dtype=np.bool_)
        indices = np.flatnonzero(used if name == TRAIN else whole).astype(np.int64)
        rows = {
            field.name: int(split.lengths(field.name)[indices].sum())
            for field in split.fields
            if field.ragged
        }
        target = PackedSplit(path, name, indices.size, split.fields, rows)
        copies.append(_Copy(split, store.digests(name), target, indices))
    return copies


def _copy_all(copies: list[_Copy], *, workers: int, progress: Progress | None) -> None:
    for copy in copies:
        copy.begin()
    pieces = [(copy, chunk) for copy in copies for chunk in copy.chunks()]
    row_bytes = max(copy.target.row_bytes for copy in copies)
    piece_bytes = max((chunk.last - chunk.first) * copy.target.row_bytes for copy, chunk in pieces)
    # Bounds the memory of all threads together, yet lets each hold at least one row.
    budget = max(FLIGHT_BYTES, workers * row_bytes)
    _in_threads(
        [(partial(copy.copy, chunk), chunk) for copy, chunk in pieces],
        workers=max(1, min(workers, budget // piece_bytes)),
        progress=progress,
    )


def _in_threads(
    pieces: Sequence[tuple[Callable[[], None], Chunk]], *, workers: int, progress: Progress | None
) -> None:
    """Run pieces of work in threads: hashing and reading release the GIL."""
    done, total = 0, sum(chunk.last - chunk.first for _, chunk in pieces)
    pool = concurrent.futures.ThreadPoolExecutor(workers)
    try:
        jobs = {pool.submit(work): chunk.last - chunk.first for work, chunk in pieces}
        for job in concurrent.futures.as_completed(jobs):
            job.result()
            done += jobs[job]
            if progress:
                progress(done, total)
    finally:
        pool.shutdown(cancel_futures=True)


def _finish(store: Store, *, copies: list[_Copy], path: Path) -> Staged:
    splits = {
        copy.target.name: {
            "count": copy.source.count,
            "staged": copy.target.count,
            "rows": dict(copy.target.ragged_rows),
        }
        for copy in copies
    }
    mark = {
        "format": FORMAT,
        "name": store.name,
        "sha256": store.sha256,
        "classes": list(store.classes),
        "fields": [schema.encode(field) for field in store.fields],
        "splits": splits,
    }
    atomic.write_json(path / MARK, mark)
    return Staged.open(path)
