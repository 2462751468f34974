"""Is a folder what the schema says? Every problem, with its year and frame."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ai500.core.errors import DataError
from ai500.data.climate import index as indexing
from ai500.data.climate.boxes import Problem, box_problems
from ai500.data.climate.index import FileIndex, digests_of_block, slabs, threads_for
from ai500.data.climate.schema import CHANNELS, Boxes, Frames, missing_years, year_files
from ai500.data.climate.years import Chunk, Chunked, Year, open_year
from ai500.data.resumable_work import Progress

CHUNKS_A_JOB = 64


@dataclass(frozen=True)
class Checked:
    """What was looked at, and what is wrong with it."""

    path: Path
    years: tuple[Year, ...]
    boxes: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    """What is right, but slow."""


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
    boxes: dict[Year, Boxes] = {}
    for year in years:
        try:
            boxes[year] = year.boxes()
        except DataError as error:
            problems.append(Problem(year.path.name, -1, _without_path(str(error), year.path)))
        else:
            problems += box_problems(year, boxes[year])
    count = sum(int((rows[..., 4] >= 0).sum()) for rows in boxes.values())
    if boxes and count == 0:
        problems.append(Problem("", -1, "no frame of any year has a box: nothing can be learned"))
    problems += _content_problems(path, years, boxes, progress)
    found = tuple(sorted(set(problems)))
    return Checked(path, tuple(years), count, found, tuple(_notes(years)))


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


def _notes(years: Sequence[Year]) -> Iterator[str]:
    """Chunks of several frames: whoever wants one of them has to read and unpack them all."""
    deep = [year for year in years if year.frames_together > 1]
    if deep:
        one = deep[0]
        several = f"{len(deep)} files have" if len(deep) > 1 else f"{one.path.name} has"
        yield (
            f"{several} chunks of {one.frames_together} frames: training reads frames at random "
            "and will be slow. This cures a file: h5repack -l "
            f"images:CHUNK=1x1x{one.height}x{one.width} {one.path.name} repacked.h5"
        )


def _content_problems(
    path: Path, years: Sequence[Year], boxes: Mapping[Year, Boxes], progress: Progress | None
) -> Iterator[Problem]:
    """Values that are no numbers, chunks that can't be unpacked, frames that have changed."""
    kept = indexing.load(path, years) or next(indexing.kept(path), None)
    others = dict(kept.other_files(years)) if kept is not None else {}
    if kept is not None and kept.origin is not None:
        yield from (Problem(name, -1, why) for name, why in others.items())
    jobs: list[Callable[[], list[Problem]]] = []
    for year in years:
        known = None if kept is None else kept.files.get(year.path.name)
        if year.path.name in others or year not in boxes:
            known = None
        elif known is not None and kept is not None and kept.origin is None:
            # A person may change their own files; the next run reads them anew.
            known = known if known.is_of(year) else None
        try:
            jobs += _jobs(year, boxes.get(year), known)
        except DataError as error:
            yield Problem(year.path.name, -1, _without_path(str(error), year.path))
    pool = concurrent.futures.ThreadPoolExecutor(threads_for(years))
    try:
        waiting = {pool.submit(job) for job in jobs}
        for done, job in enumerate(concurrent.futures.as_completed(waiting), 1):
            yield from job.result()
            if progress:
                progress(done, len(jobs))
    finally:
        pool.shutdown(cancel_futures=True)


def _jobs(
    year: Year, boxes: Boxes | None, known: FileIndex | None
) -> Iterator[Callable[[], list[Problem]]]:
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
    for one, first, last in indexing.blocks([year]):
        yield partial(_block_problems, one, first, last, boxes, known)


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
    year: Year, first: int, last: int, boxes: Boxes | None, known: FileIndex | None
) -> list[Problem]:
    found: list[Problem] = []

    def look(channel: int, slab: Frames) -> None:
        for row, fields in enumerate(slab):
            for number, field in enumerate(fields):
                if not np.isfinite(field).all():
                    count = int((~np.isfinite(field)).sum())
                    found.append(_not_finite(year, first + row, channel + number, count))

    try:
        if boxes is None or known is None:
            for channel, slab in slabs(year, first, last):
                look(channel, slab)
            return found
        digests = digests_of_block(year, first, last, boxes=boxes, look=look)
    except DataError as error:
        return [*found, Problem(year.path.name, first, _without_path(str(error), year.path))]
    for frame, (one, other) in enumerate(zip(digests, known.digests[first:last], strict=True)):
        if one != other:
            text = f"has changed: its digest is not the one in {indexing.INDEX}"
            found.append(Problem(year.path.name, first + frame, text))
    return found


def _not_finite(year: Year, frame: int, channel: int, count: int) -> Problem:
    values = "value is" if count == 1 else "values are"
    return Problem(year.path.name, frame, f"{CHANNELS[channel]}: {count} {values} NaN or infinite")
