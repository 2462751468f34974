"""Writes image stores: in chunks, by many processes, in any order; a kill loses at most a chunk.

While a store is being written its folder holds `building.json` (the plan), `building.jsonl` (the
chunks already on disk) and `building.lock`. The manifest comes last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.core import atomic
from ai500.core.errors import DataError, EnvironmentLacksError, InputError
from ai500.data.image_store import (
    MANIFEST,
    Column,
    Images,
    ImageSplit,
    ImageStore,
    Labels,
    columns,
    file_sha256,
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
from ai500.data.store import DataSource, Shape, data_error, digests_of
from ai500.records import ProblemClass

CHUNK_BYTES = 1 << 24
CHUNK_ROWS = 1024


class ImageSource(Protocol):
    """Images that are computed by their numbers."""

    def draw(
        self, split: str, first: int, last: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return images first … last − 1 of a split, and their labels.

        A sample's bytes depend on its number alone, not on how the samples are chunked.
        """


class GeneratedImages(ImageSource):
    """A `DataSource` of images: a subclass has `draw` and a `repr` of its settings."""

    own_data: ClassVar[str] = (
        "Pack it with `ai500 data pack SOURCE --out STORE` and pass --data STORE."
    )

    def write_store(
        self,
        folder: Path,
        *,
        name: str,
        problem_class: ProblemClass,
        progress: Progress | None = None,
    ) -> ImageStore:
        """Write the images of a class with all cores, or open the store that is there."""
        return generate(
            folder,
            self,
            name=name,
            classes=[f"class {number}" for number in range(problem_class.classes)],
            splits={
                "train": problem_class.train_samples,
                "validation": problem_class.validation_samples,
            },
            expected_sha256=problem_class.store_sha256,
            progress=progress,
        )

    def resized(self, samples: int, *, height: int | None, width: int | None) -> DataSource:
        """Refuse: number and size of the images are the class's."""
        raise InputError(
            "--frames, --height and --width are for climate data; this workload's images have a "
            "fixed number and size.",
            remedy="Leave them out.",
        )


@dataclass(frozen=True)
class Plan:
    """The contents of a store to be written; only the same plan resumes an unfinished store."""

    name: str
    classes: tuple[str, ...]
    counts: dict[str, int]
    shape: Shape
    origin: str
    """Source of the rows, so that rows of two sources are never mixed."""

    @property
    def row_bytes(self) -> int:
        return sum(c.row_bytes for c in columns(Path(), "", count=1, shape=self.shape))

    @property
    def store_bytes(self) -> int:
        return sum(self.counts.values()) * self.row_bytes

    def chunks(self) -> Iterator[Chunk]:
        rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // self.row_bytes))
        for split, count in self.counts.items():
            yield from cut(split, count, rows_per_chunk=rows)


def require_free_bytes(needed_bytes: int, *, folder: Path, purpose: str) -> None:
    """Raise `EnvironmentLacksError` where the disk has too little space left."""
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        raise EnvironmentLacksError(
            f"{purpose} needs {needed_bytes} bytes in {folder}, {free_bytes} are free.",
            path=folder,
            remedy="Free some, or choose a folder on another disk.",
        )


def write_rows(column: Column, first: int, rows: NDArray[Any]) -> None:
    """Write rows at their place in a file and flush them to the disk."""
    data = np.ascontiguousarray(rows, dtype=column.dtype).reshape(-1).view(np.uint8).data
    offset = column.offset(first)
    # Not through a memory map: there, a full disk is a fatal signal, not an error.
    with atomic.explaining_write_errors(column.path):
        descriptor = os.open(column.path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            while data:
                written = os.pwrite(descriptor, data, offset)
                data, offset = data[written:], offset + written
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_samples(split: ImageSplit, first: int, images: Images, labels: Labels) -> None:
    """Write samples first, first + 1, … at their place in the three files of a split."""
    values: tuple[NDArray[Any], ...] = (images, labels, digests_of(images, labels))
    for column, rows in zip(split.columns, values, strict=True):
        write_rows(column, first, rows)


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
        text = atomic.json_text(asdict(plan))
        plan_file = path / PLAN
        if plan_file.exists():
            if plan_file.read_text() != text:
                raise data_error(
                    path,
                    "holds another unfinished store, or its source has changed since.",
                    "Delete the folder, or choose another.",
                )
        elif any(file.name != LOCK and file.name[0] != "." for file in path.iterdir()):
            raise data_error(path, "holds other files.", "Choose an empty or a new folder.")
        written_bytes = sum(file.stat().st_blocks * 512 for file in path.glob("*.npy"))
        require_free_bytes(plan.store_bytes - written_bytes, folder=path, purpose="the store")
        atomic.write_text(plan_file, text)
        return cls(path, plan)

    def split(self, name: str, *, fewer: int = 0) -> ImageSplit:
        """Return a split of the store, with or without its last samples."""
        return ImageSplit(self.path, name, self.plan.counts[name] - fewer, self.plan.shape)

    def write(self, split: str, first: int, images: Images, labels: Labels) -> None:
        """Write samples first, first + 1, … of a split at their place."""
        plan = self.plan
        span = f"{plan.name}: images {first} to {first + len(images) - 1} of {split!r}"
        if images.dtype != np.uint8 or images.shape[1:] != plan.shape:
            raise DataError(
                f"{span} are {images.dtype} {images.shape[1:]}; the store holds uint8 "
                f"{plan.shape}.",
                remedy="Scale to 0 … 255 in the source, back in evaluation_inputs.",
            )
        if labels.shape != images.shape[:1]:
            raise DataError(
                f"{span} come with labels of shape {labels.shape}; every image needs one label."
            )
        if labels.size and not 0 <= labels.min() <= labels.max() < len(plan.classes):
            raise DataError(
                f"{span} have labels {labels.min()} to {labels.max()}; "
                f"{len(plan.classes)} classes have labels 0 to {len(plan.classes) - 1}."
            )
        write_samples(self.split(split), first, images, labels)

    def complete(
        self,
        job_of: Callable[[Chunk], Callable[[], Holes]],
        *,
        workers: int | None,
        progress: Progress | None,
    ) -> Journal:
        """Run the jobs of the chunks that are not done yet; progress is in samples."""
        chunks = list(self.plan.chunks())
        journal = Journal.open(self.path / JOURNAL, chunks=chunks)
        waiting = [chunk for chunk in chunks if chunk not in journal.done]
        total = sum(self.plan.counts.values())
        done = sum(chunk.last - chunk.first for chunk in journal.done)
        if progress:
            progress(done, total)
        jobs = ((chunk, job_of(chunk)) for chunk in waiting)
        workers = min(workers or available_cores(), len(waiting))
        for chunk, holes in in_parallel(jobs, workers=workers):
            journal.record(chunk, holes)
            done += chunk.last - chunk.first
            if progress:
                progress(done, total)
        return journal

    def finish(self, journal: Journal, *, expected_sha256: str | None = None) -> ImageStore:
        """Close the gaps, hash the files, and write the manifest, which completes the store."""
        splits: dict[str, ImageSplit] = {}
        hashes: dict[str, str] = {}
        for name in self.plan.counts:
            holes = [row for row, _ in journal.holes(name)]
            splits[name] = self.split(name, fewer=len(holes))
            if splits[name].count == 0:
                raise data_error(self.path, f"no image of split {name!r} can be read.")
            for before, after in zip(self.split(name).columns, splits[name].columns, strict=True):
                _close_gaps(before, after, holes)
                hashes[after.path.name] = file_sha256(after.path)
        plan = self.plan
        body = manifest_body(plan.name, classes=plan.classes, splits=splits, file_sha256=hashes)
        sha256 = identity(body)
        if expected_sha256 not in (None, sha256):
            self._discard([*hashes, JOURNAL, PLAN])
            raise data_error(
                self.path,
                f"the store written here had SHA-256 {sha256}, {plan.name} must have "
                f"{expected_sha256}. It was deleted.",
                value=sha256,
                remedy="This machine computes differently: report it.",
            )
        atomic.write_json(self.path / MANIFEST, {**body, "sha256": sha256})
        self._discard([JOURNAL, PLAN, LOCK])
        return ImageStore.open(self.path)

    def _discard(self, names: Sequence[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)


def _close_gaps(before: Column, after: Column, holes: Sequence[int]) -> None:
    """Fill each hole with a row from the end, and cut the end off.

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
            write_rows(after, hole, source[row : row + 1])
    with atomic.explaining_write_errors(after.path), after.path.open("r+b") as file:
        file.truncate(after.file_bytes)
        file.write(after.header())
        file.flush()
        os.fsync(file.fileno())


def make_store(path: Path, make: Callable[[], ImageStore]) -> ImageStore:
    """Run `make` unless the store is already there; of two processes, one runs it."""
    if (path / MANIFEST).exists():
        return ImageStore.open(path)
    if path.exists() and not path.is_dir():
        raise data_error(path, "is a file; a store is a folder.", "Choose another name.")
    with atomic.explaining_write_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path / LOCK):
        return ImageStore.open(path) if (path / MANIFEST).exists() else make()


def generate(
    path: Path,
    source: ImageSource,
    *,
    name: str,
    classes: Sequence[str],
    splits: dict[str, int],
    expected_sha256: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> ImageStore:
    """Write a store of computed images; all cores unless `workers` says otherwise."""

    def make() -> ImageStore:
        split = next(iter(splits), "train")
        height, width, channels = source.draw(split, 0, 1)[0].shape[1:]
        shape = (height, width, channels)
        plan = Plan(name, tuple(classes), dict(splits), shape, origin=repr(source))
        writer = StoreWriter.create(path, plan)
        journal = writer.complete(
            lambda chunk: partial(_generate_chunk, writer, source, chunk),
            workers=workers,
            progress=progress,
        )
        return writer.finish(journal, expected_sha256=expected_sha256)

    store = make_store(path, make)
    counts = {split.name: split.count for split in store.splits.values()}
    same = (store.name, store.classes, counts) == (name, tuple(classes), splits)
    if not same or expected_sha256 not in (None, store.sha256):
        raise data_error(
            path,
            f"holds another store: {store.name!r} with {counts}, SHA-256 {store.sha256}; "
            f"expected {name!r} with {splits}"
            f"{f', SHA-256 {expected_sha256}' if expected_sha256 else ''}.",
            "Choose another folder.",
        )
    return store


def _generate_chunk(writer: StoreWriter, source: ImageSource, chunk: Chunk) -> Holes:
    images, labels = source.draw(chunk.split, chunk.first, chunk.last)
    writer.write(chunk.split, chunk.first, images, labels)
    return []
