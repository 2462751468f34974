"""The store of climate data: a folder of years; the last one validates, the others train.

In a folder with one year, the last fifth of its frames validates.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from ai500.data.climate import index as indexing
from ai500.data.climate.check import check_years
from ai500.data.climate.index import Index, Statistics, blocks, digests_of_block, threads_for
from ai500.data.climate.schema import (
    CLASSES,
    Boxes,
    Frames,
    frame_fields,
    missing_years,
    year_files,
)
from ai500.data.climate.years import Places, Year, open_year
from ai500.data.gather import Empty, Job, run_in_threads
from ai500.data.resumable_work import PLAN, Progress
from ai500.data.store import (
    Arrays,
    CheckReport,
    Digests,
    Indices,
    Normalization,
    chosen_fields,
    data_error,
    require_fields,
    require_indices,
)
from ai500.records.fields import Field
from ai500.records.problem import ProblemClass

VALIDATION_SHARE = 5
"""In a folder with one year, one frame in this many, at its end, validates."""


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
        """Number of frames."""
        return sum(part.count for part in self.parts)

    @property
    def fields(self) -> tuple[Field, ...]:
        """`images` [16, height, width] and `boxes` [15, 5]."""
        year = self.parts[0].year
        return frame_fields(year.height, year.width)

    @cached_property
    def boxes(self) -> Boxes:
        """All boxes, float32 [count, 15, 5]."""
        boxes = [part.year.boxes()[part.first : part.first + part.count] for part in self.parts]
        return np.concatenate(boxes)

    def rows(
        self, indices: Indices, *, names: Sequence[str] | None = None, empty: Empty = np.empty
    ) -> Arrays:
        """Read frames and their boxes, in this order; each distinct frame and chunk once."""
        require_indices(self, indices, folder=self.folder, name=self.name)
        rows: Arrays = {}
        for stored in chosen_fields(self.fields, names):
            rows[stored.name] = empty((len(indices), *stored.shape), np.dtype(np.float32))
        if "images" in rows:
            self._read_frames(indices, rows["images"])
        if "boxes" in rows:
            np.take(self.boxes, indices, axis=0, out=rows["boxes"])
        return rows

    def _read_frames(self, indices: Indices, frames: Frames) -> None:
        distinct, first, which = np.unique(indices, return_index=True, return_inverse=True)
        run_in_threads(self._jobs(distinct, first, frames))
        repeats = np.flatnonzero(first[which] != np.arange(len(indices)))
        run_in_threads(partial(np.copyto, frames[r], frames[first[which[r]]]) for r in repeats)

    def read(self, indices: Indices) -> Arrays:
        """Read frames and boxes: `rows` maps no file."""
        return self.rows(indices)

    def lengths(self, name: str) -> Indices:
        """Raise `DataError`: no field is ragged."""
        raise data_error(self.folder, f"its field {name!r} is not ragged.", key=name)

    def storage_chunks(self, indices: Indices) -> Indices | None:
        """Return the HDF5 chunk, counted over all years, of each frame: each is unpacked once."""
        if all(part.year.frames_per_chunk == 1 for part in self.parts):
            return None
        numbers: list[Indices] = []
        begin = 0
        for part in self.parts:
            position = np.arange(part.first, part.first + part.count, dtype=np.int64)
            numbers.append(begin + position // part.year.frames_per_chunk)
            begin = int(numbers[-1][-1]) + 1
        return np.concatenate(numbers)[indices]

    def path_of(self, number: int) -> Path:
        """Return the file that holds a frame."""
        return self.parts[self._place(number)[0]].year.path

    def _place(self, number: int) -> tuple[int, int]:
        """Return the part that a frame is in, and its position in that file."""
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
            for part, frames in zip(self.parts, places, strict=True)
            if frames
            for job in part.year.jobs(frames, out)
        ]


@dataclass
class ClimateStore:
    """A folder of years; digests, identity and statistics come from its index."""

    path: Path
    years: tuple[Year, ...]
    splits: dict[str, ClimateSplit]
    _index: Index | None = field(default=None, repr=False)

    name: ClassVar[str] = "extreme weather"
    classes: ClassVar[tuple[str, ...]] = CLASSES
    preparation: ClassVar[str | None] = "index and statistics of the years"

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        """Return True where the folder holds years of climate data, finished or not."""
        return bool(year_files(path)) or _is_unfinished(path)

    @classmethod
    def open(cls, path: Path) -> ClimateStore:
        """Compare the files with the schema, and generated ones with their index; no frame."""
        _require_finished(path)
        files = year_files(path)
        if not files:
            raise data_error(
                path,
                "has no files of the ExtremeWeather schema, such as climo_1979.h5.",
                "`ai500 data generate --workload extreme_weather` makes learnable ones.",
            )
        years = tuple(open_year(file) for file in files.values())
        _require_alike(path, years)
        store = cls(path, years, _splits(path, years))
        # None where a user's own files have changed: their index is stale.
        store._index = indexing.load(path, years)
        if store._index is not None:
            _require_same_files(path, store._index, years)
        return store

    @classmethod
    def check(cls, path: Path, progress: Progress | None = None) -> CheckReport:
        """Read every year and report every problem."""
        _require_finished(path)
        return check_years(path, progress)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of every frame."""
        return self.splits["train"].fields

    @property
    def index(self) -> Index:
        """Digests and statistics of the files, computed at first use."""
        if self._index is None:
            self.prepare()
        assert self._index is not None
        return self._index

    def prepare(self, progress: Progress | None = None) -> None:
        """Compute the index in one pass over all files, unless it exists; progress is in frames.

        Raises `DataError` for values that are not finite and for boxes that can't be trained on.
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

    def normalization(self) -> Normalization:
        """Return mean and standard deviation of each channel over the training frames."""
        return self.statistics.mean, self.statistics.deviation

    def digests(self, split: str) -> Digests:
        """Return the digest of every frame of a split, as the index has it."""
        hexadecimal = "".join(
            digest
            for part in self.splits[split].parts
            for digest in self.index.files[part.year.path.name].digests[
                part.first : part.first + part.count
            ]
        )
        return np.frombuffer(bytes.fromhex(hexadecimal), dtype="<u8")

    def require_fit(self, problem_class: ProblemClass) -> None:
        """Raise `DataError` where fields differ from the class's, or a split has no box at all."""
        require_fields(self, problem_class)
        # Quality is undefined without an event to detect.
        for name, split in self.splits.items():
            if not (split.boxes[..., 4] >= 0).any():
                raise data_error(
                    self.path,
                    f"its {split.count} {name} frames have no box at all: there is "
                    "nothing to learn or to detect.",
                    f"Run `ai500 data check {self.path}`.",
                )

    def verify(self, progress: Progress | None = None) -> None:
        """Read again the files whose size or time differ from the index's; progress is in frames.

        `ai500 data check` reads every file.
        """
        self.prepare(progress)
        changed = [y for y in self.years if not self.index.files[y.path.name].is_of(y)]
        if changed:
            self._verify_years(changed, progress)
            self._update_times(changed)

    def _verify_years(self, years: Sequence[Year], progress: Progress | None) -> None:
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

    def _update_times(self, years: Sequence[Year]) -> None:
        """Save the present size and time of files whose contents the index describes."""
        files = dict(self.index.files)
        for year in years:
            files[year.path.name] = dataclasses.replace(
                files[year.path.name], bytes=year.bytes, modified_ns=year.modified_ns
            )
        self._index = dataclasses.replace(self.index, files=files)
        indexing.save(self.path, self._index)


def _is_unfinished(path: Path) -> bool:
    building = (path / PLAN).exists() and not (path / indexing.INDEX).exists()
    return building and (any(path.glob("*.h5")) or any(path.glob("*.h5.part")))


def _require_finished(path: Path) -> None:
    if _is_unfinished(path):
        raise data_error(
            path,
            "is unfinished climate data.",
            "Run the same `ai500 data generate` again: it resumes.",
        )


def _compare(year: Year, first: int, digests: list[str], expected: Sequence[str]) -> None:
    for row, (digest, recorded) in enumerate(zip(digests, expected, strict=True)):
        if digest != recorded:
            raise data_error(
                year.path,
                f"frame {first + row} is corrupt: it and its boxes have digest "
                f"{digest}, {indexing.INDEX} says {recorded}.",
                "Make or copy the file again.",
                key="frame",
                value=first + row,
            )


def _require_same_files(folder: Path, index: Index, years: Sequence[Year]) -> None:
    differences = [f"{name} {why}" for name, why in index.other_files(years)]
    if differences:
        raise data_error(
            folder,
            f"{'; '.join(differences)}. The folder is not the generated data of its index.",
            "Put back missing files and move away unknown ones, or delete "
            f"{indexing.INDEX} if the files are your own.",
            key=indexing.INDEX,
            value=[name for name, _ in index.other_files(years)],
        )


def _require_alike(folder: Path, years: Sequence[Year]) -> None:
    sizes: dict[tuple[int, int], str] = {}
    for year in years:
        sizes.setdefault((year.height, year.width), year.path.name)
    if len(sizes) > 1:
        examples = ", ".join(f"{name} has {high}×{wide}" for (high, wide), name in sizes.items())
        raise data_error(
            folder,
            f"frames of one data set have one size: {examples}.",
            key="shape",
            value=list(sizes),
        )
    missing = missing_years([year.year for year in years])
    if missing:
        raise data_error(
            folder,
            f"the year{'s' if len(missing) > 1 else ''} "
            f"{', '.join(map(str, missing))} between {years[0].year} and {years[-1].year} "
            f"{'are' if len(missing) > 1 else 'is'} missing.",
            "Add the files, or move those on one side of the gap to another folder.",
            key="years",
            value=missing,
        )


def _splits(folder: Path, years: tuple[Year, ...]) -> dict[str, ClimateSplit]:
    last = years[-1]
    if len(years) > 1:
        train = tuple(Part(year, 0, year.count) for year in years[:-1])
        validation = Part(last, 0, last.count)
    else:
        held_out = -(-last.count // VALIDATION_SHARE)
        if held_out == last.count:
            raise data_error(last.path, "one frame can't both train and validate.", "Add frames.")
        train = (Part(last, 0, last.count - held_out),)
        validation = Part(last, last.count - held_out, held_out)
    return {
        "train": ClimateSplit(folder, "train", train),
        "validation": ClimateSplit(folder, "validation", (validation,)),
    }
