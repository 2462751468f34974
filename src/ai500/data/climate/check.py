"""Is a folder what the schema says? Every problem, with its year and frame."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ai500.data.chunks import Progress, available_cores
from ai500.data.climate import index as indexing
from ai500.data.climate.index import FileIndex, digest_of, read_block
from ai500.data.climate.schema import CHANNELS, CLASSES, Boxes, missing_years, year_files
from ai500.data.climate.years import Chunk, Chunked, Year, open_year
from ai500.errors import DataError

CHUNKS_A_JOB = 64


@dataclass(frozen=True, order=True)
class Problem:
    """Something that is not as the schema says."""

    file: str
    frame: int
    """−1: of the file, or of the folder as a whole."""
    text: str

    def __str__(self) -> str:
        where = self.file and f"{self.file}: "
        return f"{where}{f'frame {self.frame}: ' if self.frame >= 0 else ''}{self.text}"


@dataclass(frozen=True)
class Checked:
    """What was looked at, and what is wrong with it."""

    path: Path
    years: tuple[Year, ...]
    boxes: int
    problems: tuple[Problem, ...]


def check_years(path: Path, progress: Progress | None = None) -> Checked:
    """Read everything once, with all cores; progress is in pieces of work."""
    years: list[Year] = []
    problems: list[Problem] = []
    files = year_files(path)
    for file in files.values():
        try:
            years.append(open_year(file))
        except DataError as error:
            lines = str(error).splitlines()
            problems += [Problem(file.name, -1, _without_path(line, file)) for line in lines]
    for missing in missing_years(list(files)):
        problems.append(Problem("", -1, f"the year {missing} is missing"))
    problems += _size_problems(years)
    boxes = 0
    for year in years:
        of_year = year.boxes()
        boxes += int((of_year[..., 4] >= 0).sum())
        problems += box_problems(year, of_year)
    if years and boxes == 0:
        problems.append(Problem("", -1, "no frame of any year has a box: nothing can be learned"))
    problems += _content_problems(path, years, progress)
    return Checked(path, tuple(years), boxes, tuple(sorted(set(problems))))


def _without_path(line: str, file: Path) -> str:
    return line.removeprefix(f"{file}: ")


def _size_problems(years: Sequence[Year]) -> Iterator[Problem]:
    for year in years[1:]:
        if (year.height, year.width) != (years[0].height, years[0].width):
            yield Problem(
                year.path.name,
                -1,
                f"frames are {year.height}×{year.width}, those of {years[0].path.name} "
                f"{years[0].height}×{years[0].width}",
            )


def box_problems(year: Year, boxes: Boxes) -> Iterator[Problem]:
    """Boxes outside, inverted, of no class, badly padded; one look at all, a closer at the bad."""
    south, west, north, east, kind = np.moveaxis(boxes, -1, 0)
    padding = (boxes == -1).all(axis=-1)
    after = np.zeros_like(padding)
    after[:, 1:] = np.logical_or.accumulate(padding, axis=1)[:, :-1]
    with np.errstate(invalid="ignore"):
        whole = (boxes == np.floor(boxes)).all(axis=-1)
        inside = (south >= 0) & (west >= 0) & (north <= year.height) & (east <= year.width)
        tests: tuple[tuple[NDArray[np.bool_], str], ...] = (
            (whole, "is not of whole numbers"),
            (inside, f"lies outside the frame of {year.height}×{year.width}"),
            ((south < north) & (west < east), "is inverted or empty"),
            ((kind >= 0) & (kind < len(CLASSES)), f"has no class of 0 to {len(CLASSES) - 1}"),
            (~after, "comes after a row of padding (−1)"),
        )
    for good, text in tests:
        for frame, row in np.argwhere(~good & ~padding).tolist():
            values = ", ".join(f"{value:g}" for value in boxes[frame, row])
            yield Problem(year.path.name, frame, f"box {row} ({values}) {text}")


def _content_problems(
    path: Path, years: Sequence[Year], progress: Progress | None
) -> Iterator[Problem]:
    """Values that are no numbers, chunks that can't be unpacked, frames that have changed."""
    kept = indexing.load(path)
    jobs: list[Callable[[], list[Problem]]] = []
    for year in years:
        known = None if kept is None else kept.files.get(year.path.name)
        if known is not None and len(known.digests) != year.count:
            known = None
            if kept is not None and kept.origin is not None:
                yield Problem(year.path.name, -1, f"{indexing.INDEX} has another number of frames")
        elif known is not None and kept is not None and kept.origin is None:
            # A person may change their own files; the next run reads them anew.
            known = known if known.is_of(year) else None
        jobs += _jobs(year, known)
    pool = concurrent.futures.ThreadPoolExecutor(available_cores())
    try:
        waiting = {pool.submit(job) for job in jobs}
        for done, job in enumerate(concurrent.futures.as_completed(waiting), 1):
            yield from job.result()
            if progress:
                progress(done, len(jobs))
    finally:
        pool.shutdown(cancel_futures=True)


def _jobs(year: Year, known: FileIndex | None) -> Iterator[Callable[[], list[Problem]]]:
    layout = year.layout
    if known is None and isinstance(layout, Chunked):
        # Chunks that were never written hold the fill value: there is nothing to read.
        chunks = year.chunks(layout, range(0, year.count, layout.shape[0]))
        written = [chunk for chunk in chunks if chunk.offset is not None]
        if len(written) < len(chunks) and not np.isfinite(layout.fill):
            text = f"{len(chunks) - len(written)} chunks were never written and read as no number"
            yield lambda: [Problem(year.path.name, -1, text)]
        for first in range(0, len(written), CHUNKS_A_JOB):
            yield partial(_chunk_problems, year, layout, written[first : first + CHUNKS_A_JOB])
        return
    boxes = year.boxes()
    for one, first, last in indexing.blocks([year]):
        yield partial(_block_problems, one, first, last, boxes[first:last], known)


def _chunk_problems(year: Year, layout: Chunked, chunks: Sequence[Chunk]) -> list[Problem]:
    found: list[Problem] = []
    for chunk in chunks:
        frame, channel = chunk.corner[:2]
        try:
            values = year.unpacked(layout, chunk)
        except DataError as error:
            found.append(Problem(year.path.name, frame, _without_path(str(error), year.path)))
            continue
        if np.isfinite(values).all():
            continue
        bad = ~np.isfinite(values[: year.count - frame, : len(CHANNELS) - channel])
        found += [
            _not_finite(year, frame + deep, channel + of, count)
            for deep, of in np.argwhere(bad.any(axis=(2, 3))).tolist()
            if (count := int(bad[deep, of].sum()))
        ]
    return found


def _block_problems(
    year: Year, first: int, last: int, boxes: Boxes, known: FileIndex | None
) -> list[Problem]:
    try:
        frames = read_block(year, first, last)
    except DataError as error:
        return [Problem(year.path.name, first, _without_path(str(error), year.path))]
    found: list[Problem] = []
    for row, frame in enumerate(frames):
        for channel, field in enumerate(frame):
            if not np.isfinite(field).all():
                count = int((~np.isfinite(field)).sum())
                found.append(_not_finite(year, first + row, channel, count))
        if known is not None and digest_of(frame, boxes[row]) != known.digests[first + row]:
            text = f"has changed: its digest is not the one in {indexing.INDEX}"
            found.append(Problem(year.path.name, first + row, text))
    return found


def _not_finite(year: Year, frame: int, channel: int, count: int) -> Problem:
    values = "value is" if count == 1 else "values are"
    return Problem(year.path.name, frame, f"{CHANNELS[channel]}: {count} {values} NaN or infinite")
