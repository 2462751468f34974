"""A folder of years as training reads it: the last year validates, the others train.

Of a folder with one year, the last fifth of its frames validates.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.climate import index as indexing
from ai500.data.climate.index import Index, Statistics, blocks, digests_of_block, threads_for
from ai500.data.climate.schema import CHANNELS, CLASSES, Boxes, Frames, missing_years, year_files
from ai500.data.climate.years import Places, Year, open_year
from ai500.data.gather import Empty, Job, read_together
from ai500.data.resumable_work import Progress

Indices = NDArray[np.int64]
VALIDATION_SHARE = 5
"""Of a folder with one year, one frame in so many, at its end, validates."""


@dataclass(frozen=True)
class Part:
    """Frames first … first + count − 1 of a year."""

    year: Year
    first: int
    count: int


@dataclass(frozen=True)
class ClimateSplit:
    """The frames of one split, by their number over all its years."""

    folder: Path
    name: str
    parts: tuple[Part, ...]

    @property
    def count(self) -> int:
        """How many frames there are."""
        return sum(part.count for part in self.parts)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels; `rows` has the channels first, as the files have."""
        year = self.parts[0].year
        return year.height, year.width, len(CHANNELS)

    @cached_property
    def labels(self) -> Boxes:
        """All boxes, float32 [count, 15, 5]."""
        kept = [part.year.boxes()[part.first : part.first + part.count] for part in self.parts]
        return np.concatenate(kept)

    def labels_of(self, indices: Indices) -> Boxes:
        """The boxes of these frames."""
        self._check(indices)
        return self.labels[indices]

    def rows(self, indices: Indices, *, empty: Empty = np.empty) -> tuple[Frames, Boxes]:
        """Frames [n, 16, height, width] and their boxes [n, 15, 5], in this order.

        Each frame is read once however often it is asked for, each chunk once.
        """
        self._check(indices)
        height, width, channels = self.shape
        frames = empty((len(indices), channels, height, width), np.dtype(np.float32))
        distinct, first, which = np.unique(indices, return_index=True, return_inverse=True)
        read_together(self._jobs(distinct, first, frames))
        again = np.flatnonzero(first[which] != np.arange(len(indices)))
        read_together(partial(np.copyto, frames[r], frames[first[which[r]]]) for r in again)
        return frames, self.labels[indices]

    @property
    def frames_together(self) -> int:
        """How many frames the largest chunk holds."""
        return max(part.year.frames_together for part in self.parts)

    def chunk_numbers(self, indices: Indices) -> Indices:
        """Which chunk, counted over all years, holds each frame: those of one are read together."""
        numbers: list[Indices] = []
        begin = 0
        for part in self.parts:
            position = np.arange(part.first, part.first + part.count, dtype=np.int64)
            numbers.append(begin + position // part.year.frames_together)
            begin = int(numbers[-1][-1]) + 1
        return np.concatenate(numbers)[indices]

    def path_of(self, number: int) -> Path:
        """The file that holds a frame."""
        return self.parts[self._place(number)[0]].year.path

    def _place(self, number: int) -> tuple[int, int]:
        """Which part a frame is in, and its position in that file."""
        which = 0
        while number >= self.parts[which].count:
            number -= self.parts[which].count
            which += 1
        return which, self.parts[which].first + number

    def _jobs(self, numbers: Indices, rows: Indices, out: Frames) -> list[Job]:
        places: list[Places] = [[] for _ in self.parts]
        for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
            which, position = self._place(number)
            places[which].append((position, row))
        return [
            job
            for part, wanted in zip(self.parts, places, strict=True)
            if wanted
            for job in part.year.jobs(wanted, out)
        ]

    def _check(self, indices: Indices) -> None:
        if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < self.count:
            raise DataError(
                f"{self.folder}: frames {indices.min()} to {indices.max()} asked for, split "
                f"{self.name!r} has 0 to {self.count - 1}. Is this the data of the bootstrap?"
            )


@dataclass
class ClimateStore:
    """A folder of years; frames' digests, identity and statistics come from its index."""

    path: Path
    years: tuple[Year, ...]
    splits: dict[str, ClimateSplit]
    _index: Index | None = field(default=None, repr=False)

    name = "extreme weather"
    classes = CLASSES

    @classmethod
    def open(cls, path: Path) -> ClimateStore:
        """Hold every file against the schema, and a generator's against its index; no frame."""
        files = year_files(path)
        if not files:
            raise DataError(
                f"{path}: has no files of the ExtremeWeather schema, such as climo_1979.h5. "
                "`ai500 data generate --workload extreme_weather` makes learnable ones."
            )
        years = tuple(open_year(file) for file in files.values())
        _require_alike(path, years)
        store = cls(path, years, _splits(path, years))
        # Where a person's own files have changed, what was known of them is void: None.
        store._index = indexing.load(path, years)
        if store._index is not None:
            _require_same_files(path, store._index, years)
        return store

    @property
    def index(self) -> Index:
        """What the one pass over the files found; the pass itself where nobody made it yet."""
        if self._index is None:
            self.make_index()
        assert self._index is not None
        return self._index

    def make_index(self, progress: Progress | None = None) -> None:
        """The pass over all files, unless it was made; progress is in frames.

        Refuses what can't be trained on: values that are no numbers, and unusable boxes.
        """
        if self._index is not None:
            return
        training = {year.path.name: 0 for year in self.years}
        for part in self.splits["train"].parts:
            training[part.year.path.name] = part.count
        self._index = indexing.compute(self.years, training=training, progress=progress)
        indexing.save(self.path, self._index)

    @property
    def sha256(self) -> str:
        """Identity of all frames and boxes."""
        return self.index.sha256

    @property
    def statistics(self) -> Statistics:
        """Mean and standard deviation of each channel over the training frames."""
        return self.index.statistics

    def digests(self, split: str) -> list[str]:
        """Of each frame of a split, as the index has them."""
        return [
            digest
            for part in self.splits[split].parts
            for digest in self.index.files[part.year.path.name].digests[
                part.first : part.first + part.count
            ]
        ]

    def verify(self, progress: Progress | None = None) -> None:
        """Read again the files whose size or time differ from the index's; progress in frames.

        `ai500 data check` reads every file.
        """
        self.make_index(progress)
        changed = [y for y in self.years if not self.index.files[y.path.name].is_of(y)]
        if changed:
            self._hold_against_digests(changed, progress)
            self._stamp(changed)

    def _hold_against_digests(self, years: Sequence[Year], progress: Progress | None) -> None:
        boxes = {year: year.boxes() for year in years}
        done, total = 0, sum(year.count for year in years)

        def work(year: Year, first: int, last: int) -> list[str]:
            return digests_of_block(year, first, last, boxes=boxes[year])

        with concurrent.futures.ThreadPoolExecutor(threads_for(years)) as pool:
            jobs = {pool.submit(work, *block): block for block in blocks(years)}
            try:
                for job in concurrent.futures.as_completed(jobs):
                    year, first, last = jobs.pop(job)
                    expected = self.index.files[year.path.name].digests
                    _compare(year, first, job.result(), expected[first:last])
                    done += last - first
                    if progress:
                        progress(done, total)
            finally:
                pool.shutdown(cancel_futures=True)

    def _stamp(self, years: Sequence[Year]) -> None:
        """Note that these files, as they are now, hold what the index says."""
        files = dict(self.index.files)
        for year in years:
            files[year.path.name] = dataclasses.replace(
                files[year.path.name], bytes=year.bytes, modified_ns=year.modified_ns
            )
        self._index = dataclasses.replace(self.index, files=files)
        indexing.save(self.path, self._index)


def _compare(year: Year, first: int, found: list[str], expected: Sequence[str]) -> None:
    for row, (one, other) in enumerate(zip(found, expected, strict=True)):
        if one != other:
            raise DataError(
                f"{year.path}: frame {first + row} is corrupt: it and its boxes have digest {one}, "
                f"{indexing.INDEX} says {other}. Make or copy the file again."
            )


def _require_same_files(folder: Path, index: Index, years: Sequence[Year]) -> None:
    others = [f"{name} {why}" for name, why in index.other_files(years)]
    if others:
        raise DataError(
            f"{folder}: {'; '.join(others)}. The folder is not the generated data of its index. "
            f"Put back what is missing and move away what is strange, or delete {indexing.INDEX} "
            "if the files are your own."
        )


def _require_alike(folder: Path, years: Sequence[Year]) -> None:
    sizes: dict[tuple[int, int], str] = {}
    for year in years:
        sizes.setdefault((year.height, year.width), year.path.name)
    if len(sizes) > 1:
        told = ", ".join(f"{name} has {high}×{wide}" for (high, wide), name in sizes.items())
        raise DataError(f"{folder}: frames of one data set have one size: {told}.")
    missing = missing_years([year.year for year in years])
    if missing:
        raise DataError(
            f"{folder}: the year{'s' if len(missing) > 1 else ''} "
            f"{', '.join(map(str, missing))} between {years[0].year} and {years[-1].year} "
            f"{'are' if len(missing) > 1 else 'is'} missing. Add the files, or move those on "
            "one side of the gap to another folder."
        )


def _splits(folder: Path, years: tuple[Year, ...]) -> dict[str, ClimateSplit]:
    last = years[-1]
    if len(years) > 1:
        train = tuple(Part(year, 0, year.count) for year in years[:-1])
        validation = Part(last, 0, last.count)
    else:
        held = -(-last.count // VALIDATION_SHARE)
        if held == last.count:
            raise DataError(
                f"{last.path}: one frame is too few: some train, some validate. Add frames."
            )
        train = (Part(last, 0, last.count - held),)
        validation = Part(last, last.count - held, held)
    return {
        "train": ClimateSplit(folder, "train", train),
        "validation": ClimateSplit(folder, "validation", (validation,)),
    }
