"""Compares a folder of years with the schema and with physics: every problem, with its frame."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ai500.core.errors import DataError
from ai500.data.climate import index as indexing
from ai500.data.climate.index import FileIndex, digests_of_block, slabs, threads_for
from ai500.data.climate.physics import Tally, impossible
from ai500.data.climate.schema import Boxes, Frames, missing_years, year_files
from ai500.data.climate.years import Chunk, Chunked, Year, box_problems, open_year
from ai500.data.resumable_work import Progress
from ai500.data.store import CheckReport, Problem

CHUNKS_PER_JOB = 64


def check_years(path: Path, progress: Progress | None = None) -> CheckReport:
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
    problems += [
        Problem(year.path.name, -1, f"`images` holds {year.dtype}; the schema has float32")
        for year in years
        if year.dtype != "float32"
    ]
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
    tallies = {year: _tally_of(year) for year in years}
    problems += _content_problems(path, tallies, boxes, progress)
    problems += impossible(list(tallies.values()))
    frames = sum(year.count for year in years)
    return CheckReport(
        path,
        summary=(
            f"{path}: {len(years)} year{'s' * (len(years) != 1)}, {frames} frames, {count} boxes",
        ),
        facts={
            "path": str(path),
            "years": {year.path.name: year.count for year in years},
            "frames": frames,
            "boxes": count,
        },
        problems=tuple(sorted(set(problems))),
        notes=tuple(_notes(years)),
    )


def _tally_of(year: Year) -> Tally:
    return Tally(year.path.name, count=year.count, height=year.height, width=year.width)


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
    """Yield a note on chunks of several frames: all are read and unpacked for one of them."""
    slow = [year for year in years if year.frames_per_chunk > 1]
    if slow:
        first = slow[0]
        subject = f"{len(slow)} files have" if len(slow) > 1 else f"{first.path.name} has"
        yield (
            f"{subject} chunks of {first.frames_per_chunk} frames: training reads frames at random "
            "and will be slow. To repack a file: h5repack -l "
            f"images:CHUNK=1x1x{first.height}x{first.width} {first.path.name} repacked.h5"
        )


def _content_problems(
    path: Path,
    tallies: Mapping[Year, Tally],
    boxes: Mapping[Year, Boxes],
    progress: Progress | None,
) -> Iterator[Problem]:
    """Yield chunks that can't be unpacked and frames that changed; tally all values."""
    years = list(tallies)
    index = indexing.load(path, years) or next(indexing.saved(path), None)
    differing = dict(index.other_files(years)) if index is not None else {}
    if index is not None and index.origin is not None:
        yield from (Problem(name, -1, why) for name, why in differing.items())
    jobs: list[Callable[[], list[Problem]]] = []
    for year in years:
        recorded = None if index is None else index.files.get(year.path.name)
        if year.path.name in differing or year not in boxes:
            recorded = None
        elif recorded is not None and index is not None and index.origin is None:
            # Users may change their own files; the next run indexes them again.
            recorded = recorded if recorded.is_of(year) else None
        try:
            jobs += _jobs(year, tallies[year], boxes.get(year), recorded)
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
    year: Year, tally: Tally, boxes: Boxes | None, recorded: FileIndex | None
) -> Iterator[Callable[[], list[Problem]]]:
    layout = year.layout
    if recorded is None and isinstance(layout, Chunked):
        chunks = year.chunks(layout, range(0, year.count, layout.shape[0]))
        for first in range(0, len(chunks), CHUNKS_PER_JOB):
            part = chunks[first : first + CHUNKS_PER_JOB]
            yield partial(_chunk_problems, year, tally, layout, part)
        return
    for _, first, last in indexing.blocks([year]):
        yield partial(_block_problems, year, tally, first, last, boxes, recorded)


def _chunk_problems(
    year: Year, tally: Tally, layout: Chunked, chunks: Sequence[Chunk]
) -> list[Problem]:
    problems: list[Problem] = []
    for chunk in chunks:
        if chunk.offset is None:  # never written: nothing to read
            tally.add_unwritten(chunk.corner, layout.shape, layout.fill)
            continue
        try:
            values = year.unpacked(layout, chunk)
        except DataError as error:
            text = _without_path(str(error), year.path)
            problems.append(Problem(year.path.name, chunk.corner[0], text))
        else:
            tally.add(values, corner=chunk.corner)
    return problems


def _block_problems(
    year: Year,
    tally: Tally,
    first: int,
    last: int,
    boxes: Boxes | None,
    recorded: FileIndex | None,
) -> list[Problem]:
    def inspect(channel: int, slab: Frames) -> None:
        tally.add(slab, corner=(first, channel, 0, 0))

    try:
        if boxes is None or recorded is None:
            for channel, slab in slabs(year, first, last):
                inspect(channel, slab)
            return []
        digests = digests_of_block(year, first, last, boxes=boxes, inspect=inspect)
    except DataError as error:
        return [Problem(year.path.name, first, _without_path(str(error), year.path))]
    text = f"has changed: its digest is not the one in {indexing.INDEX}"
    pairs = zip(digests, recorded.digests[first:last], strict=True)
    return [
        Problem(year.path.name, frame, text)
        for frame, (digest, known) in enumerate(pairs, first)
        if digest != known
    ]
