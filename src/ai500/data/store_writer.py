"""Writes packed stores: in chunks, by many processes; a kill loses at most the chunks in work.

While a store is being written its folder holds `building.json` (the plan), `building.jsonl` (the
chunks already on disk) and `building.lock`. Rows of a fixed size are written to their place, in any
order. Where a field is ragged the place is not known: workers write each chunk to a file of its
own (`building.train.0.npz`), and the chunks are appended in order; `building.appended.json` says
how far. The manifest comes last.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ai500.core import atomic, schema
from ai500.core.errors import EnvironmentLacksError
from ai500.data.columns import Column
from ai500.data.packed_store import (
    MANIFEST,
    PackedSplit,
    PackedStore,
    hash_column,
    identity,
    manifest_body,
)
from ai500.data.resumable_work import (
    JOURNAL,
    LOCK,
    PLAN,
    Chunk,
    Holes,
    Journal,
    Progress,
    available_cores,
    cut,
    in_parallel,
    locked,
)
from ai500.data.store import Arrays, Digests, array_names, data_error, digests_of
from ai500.data.values import require_arrays
from ai500.records.fields import OFFSETS, Field, sample_bytes

CHUNK_BYTES = 1 << 24
CHUNK_ROWS = 1024
# Ragged samples may be long: a chunk of them is held in memory.
RAGGED_CHUNK_ROWS = 256
APPENDED = "building.appended.json"
DIGESTS = "digests"


@dataclass(frozen=True)
class Plan:
    """The contents of a store to be written; only the same plan resumes an unfinished store."""

    name: str
    classes: tuple[str, ...]
    counts: dict[str, int]
    fields: tuple[Field, ...]
    origin: str
    """Source of the rows, so that rows of two sources are never mixed."""

    @property
    def ragged(self) -> bool:
        """True where a field is ragged: samples are then appended in order."""
        return any(field.ragged for field in self.fields)

    @property
    def row_bytes(self) -> int:
        """Bytes of a sample: its fields and its digest, without ragged values."""
        return sample_bytes(self.fields) + 8

    @property
    def store_bytes(self) -> int:
        return sum(self.counts.values()) * self.row_bytes

    @property
    def rows_per_chunk(self) -> int:
        """Number of samples that are written at once."""
        most = RAGGED_CHUNK_ROWS if self.ragged else CHUNK_ROWS
        return max(1, min(most, CHUNK_BYTES // self.row_bytes))

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of all splits."""
        for split, count in self.counts.items():
            yield from cut(split, count, rows_per_chunk=self.rows_per_chunk)


def require_free_bytes(needed_bytes: int, *, folder: Path, purpose: str) -> None:
    """Raise `EnvironmentLacksError` where the disk has too little space left."""
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        raise EnvironmentLacksError(
            f"{purpose} needs {needed_bytes} bytes in {folder}, {free_bytes} are free.",
            key="bytes",
            value=needed_bytes,
            path=folder,
            remedy="Free some, or choose a folder on another disk.",
        )


@dataclass(frozen=True)
class StoreWriter:
    """A store being written; `write` may be called in any process, the rest in one."""

    path: Path
    plan: Plan

    @classmethod
    def create(cls, path: Path, plan: Plan) -> StoreWriter:
        """Begin a store, or resume an unfinished one of the same plan."""
        if not plan.counts or min(plan.counts.values()) < 1:
            raise data_error(
                path,
                f"each split of a store needs samples; asked: {plan.counts}.",
                value=plan.counts,
            )
        if not plan.fields:
            raise data_error(path, "a store needs at least one field.", key="fields")
        text = atomic.json_text(schema.encode(plan))
        plan_file = path / PLAN
        if plan_file.exists():
            if plan_file.read_text() != text:
                raise data_error(
                    path,
                    "holds another unfinished store, or its source has changed since.",
                    "Delete the folder, or choose another.",
                    key="plan",
                )
        elif any(file.name != LOCK and file.name[0] != "." for file in path.iterdir()):
            raise data_error(path, "holds other files.", "Choose an empty or a new folder.")
        written_bytes = sum(file.stat().st_blocks * 512 for file in path.glob("*.npy"))
        require_free_bytes(plan.store_bytes - written_bytes, folder=path, purpose="the store")
        atomic.write_text(plan_file, text)
        return cls(path, plan)

    def write(self, chunk: Chunk, arrays: Arrays, *, holes: Holes | None = None) -> None:
        """Write the samples of a chunk, without those that could not be made."""
        missing = {row for row, _ in holes or ()}
        kept = [row for row in range(chunk.first, chunk.last) if row not in missing]
        samples = f"samples {chunk.first} to {chunk.last - 1} of {chunk.split!r}"
        require_arrays(arrays, self.plan.fields, numbers=kept, path=self.path, samples=samples)
        digests = digests_of(arrays, self.plan.fields)
        if self.plan.ragged:
            self._write_part(chunk, arrays, digests)
        else:
            self._place(chunk, arrays, digests, kept=kept)

    def _place(self, chunk: Chunk, arrays: Arrays, digests: Digests, *, kept: list[int]) -> None:
        """Write rows of a fixed size at their places."""
        split = self.split(chunk.split, self.plan.counts[chunk.split])
        rows = np.array(kept, dtype=np.int64) - chunk.first
        values_in_order = [
            *(arrays[name] for field in self.plan.fields for name in array_names(field)),
            digests,
        ]
        for column, values in zip(split.columns, values_in_order, strict=True):
            if len(kept) < chunk.last - chunk.first:  # `finish` closes the gaps
                spread = np.zeros((chunk.last - chunk.first, *column.shape[1:]), column.dtype)
                spread[rows] = values
                values = spread
            column.write(chunk.first, values)

    def _write_part(self, chunk: Chunk, arrays: Arrays, digests: Digests) -> None:
        """Write a chunk to a file of its own, to be appended when its turn comes."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays, **{DIGESTS: digests})
        atomic.write_bytes(self.part(chunk), buffer.getbuffer())

    def part(self, chunk: Chunk) -> Path:
        """Return the file of a chunk that is not appended yet."""
        return self.path / f"building.{chunk.split}.{chunk.first}.npz"

    def written_digests(self, chunk: Chunk) -> Digests:
        """Read the digests of a chunk that is written and has no holes."""
        if self.plan.ragged and self.part(chunk).exists():
            return _read_part(self.part(chunk))[DIGESTS]
        column = self.split(chunk.split, chunk.last).digest_column
        return column.read(np.arange(chunk.first, chunk.last, dtype=np.int64))

    def split(self, name: str, count: int, *, rows: dict[str, int] | None = None) -> PackedSplit:
        """Return a split of so many samples, and so many rows of ragged fields."""
        return PackedSplit(self.path, name, count, self.plan.fields, rows or {})

    def complete(
        self,
        job_of: Callable[[Chunk], Callable[[], Holes]],
        *,
        workers: int | None,
        progress: Progress | None,
    ) -> Journal:
        """Run the jobs of the chunks that are not done yet; progress is in samples.

        A job computes a chunk, calls `write` with it and returns its holes.
        """
        chunks = list(self.plan.chunks())
        journal = Journal.open(self.path / JOURNAL, chunks=chunks)
        waiting = [chunk for chunk in chunks if chunk not in journal.done]
        total = sum(self.plan.counts.values())
        done = sum(chunk.last - chunk.first for chunk in journal.done)
        if progress:
            progress(done, total)
        appender = Appender(self, journal) if self.plan.ragged else None
        jobs = ((chunk, job_of(chunk)) for chunk in waiting)
        workers = min(workers or available_cores(), len(waiting))
        for chunk, holes in in_parallel(jobs, workers=workers):
            journal.record(chunk, holes)
            if appender is not None:
                appender.advance()
            done += chunk.last - chunk.first
            if progress:
                progress(done, total)
        if appender is not None:
            appender.advance()
        return journal

    def finish(self, journal: Journal, *, expected_sha256: str | None = None) -> PackedStore:
        """Close the gaps, hash the files, and write the manifest, which completes the store."""
        splits: dict[str, PackedSplit] = {}
        hashes: dict[str, str] = {}
        for name in self.plan.counts:
            splits[name] = self._finished(name, journal)
            for column in splits[name].columns:
                column.finish()
                hashes[column.path.name] = hash_column(column)
        plan = self.plan
        body = manifest_body(
            plan.name,
            classes=plan.classes,
            fields=plan.fields,
            splits=splits,
            file_sha256=hashes,
        )
        sha256 = identity(body)
        if expected_sha256 not in (None, sha256):
            self._discard([*hashes, JOURNAL, PLAN, APPENDED])
            raise data_error(
                self.path,
                f"the store written here had SHA-256 {sha256}, {plan.name} must have "
                f"{expected_sha256}. It was deleted.",
                value=sha256,
                remedy="This machine computes differently: report it.",
            )
        atomic.write_json(self.path / MANIFEST, {**body, "sha256": sha256})
        self._discard([JOURNAL, PLAN, LOCK, APPENDED])
        return PackedStore.open(self.path)

    def _discard(self, names: Sequence[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        # Left by a kill: chunks that were appended but not removed, or half written.
        for part in (*self.path.glob("building.*.npz"), *self.path.glob(".building.*.npz.*")):
            part.unlink()

    def _finished(self, name: str, journal: Journal) -> PackedSplit:
        """Return a split as it will be: without the samples that could not be made."""
        holes = [row for row, _ in journal.holes(name)]
        count = self.plan.counts[name] - len(holes)
        if count == 0:
            raise data_error(self.path, f"no sample of split {name!r} can be read.", key=name)
        if self.plan.ragged:
            return self.split(name, count, rows=read_positions(self)[name].rows)
        whole, split = self.split(name, self.plan.counts[name]), self.split(name, count)
        for before, after in zip(whole.columns, split.columns, strict=True):
            _close_gaps(before, after, holes)
        return split


@dataclass(frozen=True)
class Position:
    """End of what is appended of a split."""

    chunks: int
    count: int
    """Samples."""
    rows: dict[str, int]
    """Rows of each ragged field."""


def read_positions(writer: StoreWriter) -> dict[str, Position]:
    """Read how far the chunks of each split are appended."""
    file, fields = writer.path / APPENDED, writer.plan.fields
    start = Position(0, 0, {field.name: 0 for field in fields if field.ragged})
    entries = json.loads(file.read_bytes()) if file.exists() else {}
    positions = {name: schema.decode(Position, entry) for name, entry in entries.items()}
    return {name: positions.get(name, start) for name in writer.plan.counts}


class Appender:
    """Appends the chunks of a ragged store in order, as they are finished."""

    def __init__(self, writer: StoreWriter, journal: Journal) -> None:
        self._writer = writer
        self._journal = journal
        self._positions = read_positions(writer)
        self._chunks: dict[str, list[Chunk]] = {name: [] for name in writer.plan.counts}
        for chunk in writer.plan.chunks():
            self._chunks[chunk.split].append(chunk)

    def advance(self) -> None:
        """Append the finished chunks that follow the last one appended."""
        for split, chunks in self._chunks.items():
            for chunk in chunks[self._positions[split].chunks :]:
                if chunk not in self._journal.done:
                    break
                self._append(chunk, self._positions[split])

    def _append(self, chunk: Chunk, position: Position) -> None:
        """Append one chunk; after a kill it is written again to the same place."""
        part = self._writer.part(chunk)
        arrays = _read_part(part)
        digests = arrays.pop(DIGESTS)
        split = self._writer.split(chunk.split, position.count, rows=position.rows)
        for field in self._writer.plan.fields:
            first = position.count
            if field.ragged:
                first = position.rows[field.name]
                bounds = arrays[field.name + OFFSETS] + first
                split.column(field.name + OFFSETS).write(position.count, bounds)
            split.column(field.name).write(first, arrays[field.name])
        split.digest_column.write(position.count, digests)
        rows = {name: count + len(arrays[name]) for name, count in position.rows.items()}
        self._positions[chunk.split] = Position(
            position.chunks + 1, position.count + len(digests), rows
        )
        atomic.write_json(self._writer.path / APPENDED, schema.encode(self._positions))
        part.unlink(missing_ok=True)


def _read_part(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise data_error(
            path, f"cannot read this chunk: {error}.", "Delete the folder and make it again."
        ) from error


def _close_gaps(before: Column, after: Column, holes: Sequence[int]) -> None:
    """Fill each hole with a row from the end, which `Column.finish` then cuts off.

    A kill in the middle does no harm: a row that is copied is never overwritten, and a file that
    has its final size is complete.
    """
    size = after.path.stat().st_size
    if size not in (before.file_bytes, after.file_bytes):
        raise data_error(
            after.path,
            f"has {size} bytes instead of {before.file_bytes}: another program changed it.",
            "Delete the folder and make the store again.",
        )
    missing = set(holes)
    count = after.shape[0]
    if size != after.file_bytes:
        spare = [row for row in range(count, before.shape[0]) if row not in missing]
        source = before.mapped()
        for hole, row in zip((row for row in holes if row < count), spare, strict=True):
            after.write(hole, source[row : row + 1])


def make_store(path: Path, make: Callable[[], PackedStore]) -> PackedStore:
    """Run `make` unless the store is already there; of two processes, one runs it."""
    if (path / MANIFEST).exists():
        return PackedStore.open(path)
    if path.exists() and not path.is_dir():
        raise data_error(path, "is a file; a store is a folder.", "Choose another name.")
    with atomic.explaining_write_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path / LOCK):
        return PackedStore.open(path) if (path / MANIFEST).exists() else make()
