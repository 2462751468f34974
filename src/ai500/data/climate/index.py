"""What is known of a folder of years: each frame's digest, the identity of all, and statistics.

Found in one pass over the files by all cores, and kept beside them (`ai500-index.json`), or in the
cache where the folder can't be written. A file whose size or time changed is read again.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core import atomic
from ai500.core.errors import DataError, EnvironmentLacksError
from ai500.data.cache import cache_folder
from ai500.data.climate.boxes import require_usable_boxes
from ai500.data.climate.schema import CHANNELS, CLASSES, Boxes, Frames
from ai500.data.climate.years import Chunked, Year
from ai500.data.resumable_work import Progress, available_cores

FORMAT = "ai500 climate 1"
INDEX = "ai500-index.json"
DIGEST_BYTES = 8
PASS_BYTES = 1 << 28
FLIGHT_BYTES = 1 << 30
"""What all threads may hold together, if not one frame each, where chunks are of many frames."""
Look = Callable[[int, Frames], None]
"""Shown some channels of a block's frames, and the number of the first of them."""


@dataclass(frozen=True)
class Moments:
    """Sums over the pixels of some frames, a value for each channel."""

    pixels: int
    total: NDArray[np.float64]
    squares: NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation of each channel over the training frames."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class FileIndex:
    """One file as the pass found it."""

    bytes: int
    modified_ns: int
    digests: tuple[str, ...]
    """BLAKE2b of 8 bytes of each frame and its boxes, in hex."""

    def is_of(self, year: Year) -> bool:
        """Whether the file still has the size and time it had."""
        return (self.bytes, self.modified_ns) == (year.bytes, year.modified_ns)


@dataclass(frozen=True)
class Index:
    """The contents of a folder of years."""

    origin: str | None
    """The recipe of generated frames; None: a person's own files."""
    shape: tuple[int, int, int]
    files: dict[str, FileIndex]
    statistics: Statistics

    @property
    def sha256(self) -> str:
        """Identity of the contents: no paths, no times, no layout."""
        body = {
            "format": FORMAT,
            "shape": list(self.shape),
            "classes": list(CLASSES),
            "files": {name: list(file.digests) for name, file in self.files.items()},
        }
        return _sha256(body)

    def is_of(self, years: Sequence[Year]) -> bool:
        """Whether no file is more, less, or changed."""
        return not any(self.other_files(years)) and all(
            self.files[year.path.name].is_of(year) for year in years
        )

    def other_files(self, years: Sequence[Year]) -> Iterator[tuple[str, str]]:
        """Files that are missing, strange, or of another number of frames, and why."""
        counts = {year.path.name: year.count for year in years}
        for name in sorted(set(counts) | set(self.files)):
            known = len(self.files[name].digests) if name in self.files else None
            if name not in counts:
                yield name, f"is missing: {INDEX} has it"
            elif known is None:
                yield name, f"is not in {INDEX}"
            elif known != counts[name]:
                yield name, f"has {counts[name]} frames, {known} in {INDEX}"


def digest_of(frame: NDArray[np.float32], boxes: NDArray[np.float32]) -> str:
    """Of one frame and its boxes."""
    digest = hashlib.blake2b(np.ascontiguousarray(frame, "<f4").data, digest_size=DIGEST_BYTES)
    digest.update(np.ascontiguousarray(boxes, "<f4").tobytes())
    return digest.hexdigest()


def moments_of(frames: Frames) -> Moments:
    """Sums of the channels that are here, in double precision."""
    total, squares = np.zeros(frames.shape[1]), np.zeros(frames.shape[1])
    for frame in frames:
        for channel, field in enumerate(frame):
            wide = field.reshape(-1).astype(np.float64)
            total[channel] += wide.sum()
            wide *= wide  # not a dot product: BLAS would start threads of its own
            squares[channel] += wide.sum()
    return Moments(len(frames) * frames[0][0].size, total, squares)


def statistics_of(parts: Sequence[Moments]) -> Statistics:
    """Rounded to six digits, so that the order of summation on a machine does not show."""
    pixels = sum(part.pixels for part in parts)
    means, deviations = [], []
    for channel in range(len(CHANNELS)):
        mean = math.fsum(part.total[channel] for part in parts) / pixels
        square = math.fsum(part.squares[channel] for part in parts) / pixels
        means.append(float(f"{mean:.6g}"))
        # A channel that never changes is left as it is, not divided by nothing.
        deviations.append(float(f"{math.sqrt(max(0.0, square - mean * mean)):.6g}") or 1.0)
    return Statistics(tuple(means), tuple(deviations))


def blocks(years: Sequence[Year]) -> Iterator[tuple[Year, int, int]]:
    """All frames in pieces of whole chunks that several threads can hold at once."""
    for year in years:
        most = max(1, PASS_BYTES // available_cores() // year.frame_bytes)
        step = max(year.frames_together, most // year.frames_together * year.frames_together)
        for first in range(0, year.count, step):
            yield year, first, min(year.count, first + step)


def _channels_at_once(year: Year, frames: int) -> int:
    """All channels of so many frames, or as few as a chunk has: deep chunks make blocks large."""
    deep = year.layout.shape[1] if isinstance(year.layout, Chunked) else len(CHANNELS)
    budget = max(year.frame_bytes, PASS_BYTES // available_cores())
    fitting = budget * len(CHANNELS) // (year.frame_bytes * frames)
    return min(len(CHANNELS), max(deep, fitting // deep * deep))


def threads_for(years: Sequence[Year]) -> int:
    """As many as there are cores, fewer where each would hold much."""
    held = [
        year.frame_bytes * last * _channels_at_once(year, last) // len(CHANNELS)
        for year, _, last in (next(blocks([one])) for one in years)
    ]
    cores = available_cores()
    budget = max([FLIGHT_BYTES, *(cores * year.frame_bytes for year in years)])
    return max(1, min(cores, budget // max(held, default=1)))


def slabs(year: Year, first: int, last: int) -> Iterator[tuple[int, Frames]]:
    """Frames of a block, some channels at a time, in one array that the next slab overwrites."""
    step = _channels_at_once(year, last - first)
    array = np.empty((last - first, step, year.height, year.width), np.float32)
    places = [(first + row, row) for row in range(last - first)]
    for channel in range(0, len(CHANNELS), step):
        channels = range(channel, min(channel + step, len(CHANNELS)))
        slab = array[:, : len(channels)]
        for job in year.jobs(places, slab, channels):
            job()
        yield channel, slab


def digests_of_block(
    year: Year, first: int, last: int, *, boxes: Boxes, look: Look | None = None
) -> list[str]:
    """`digest_of` each frame of a block, read in the thread that asks."""
    hashes = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in range(first, last)]
    for channel, slab in slabs(year, first, last):
        for one, frame in zip(hashes, slab, strict=True):
            one.update(np.ascontiguousarray(frame, "<f4").data)
        if look:
            look(channel, slab)
    for one, rows in zip(hashes, boxes[first:last], strict=True):
        one.update(np.ascontiguousarray(rows, "<f4").tobytes())
    return [one.hexdigest() for one in hashes]


def compute(
    years: Sequence[Year], *, training: dict[str, int], progress: Progress | None = None
) -> Index:
    """The pass; `training` says how many frames of each file train. Progress is in frames."""
    boxes = {year: year.boxes() for year in years}
    require_usable_boxes(years[0].path.parent, boxes)
    digests: dict[str, list[str]] = {year.path.name: [""] * year.count for year in years}
    moments: dict[tuple[str, int], Moments] = {}
    done, total = 0, sum(year.count for year in years)

    def work(year: Year, first: int, last: int) -> tuple[list[str], Moments | None]:
        trained = max(0, training[year.path.name] - first)
        seen: list[Moments] = []

        def look(channel: int, slab: Frames) -> None:
            _require_finite(slab, year, frame=first, channel=channel)
            if trained:
                seen.append(moments_of(slab[:trained]))

        found = digests_of_block(year, first, last, boxes=boxes[year], look=look)
        return found, _side_by_side(seen) if trained else None

    with concurrent.futures.ThreadPoolExecutor(threads_for(years)) as pool:
        jobs = {pool.submit(work, *block): block for block in blocks(years)}
        try:
            for job in concurrent.futures.as_completed(jobs):
                year, first, last = jobs.pop(job)
                name = year.path.name
                digests[name][first:last], found = job.result()
                if found is not None:
                    moments[name, first] = found
                done += last - first
                if progress:
                    progress(done, total)
        finally:
            pool.shutdown(cancel_futures=True)
    files = {
        year.path.name: FileIndex(year.bytes, year.modified_ns, tuple(digests[year.path.name]))
        for year in years
    }
    shape = (len(CHANNELS), years[0].height, years[0].width)
    ordered = [moments[key] for key in sorted(moments)]
    return Index(origin=None, shape=shape, files=files, statistics=statistics_of(ordered))


def _side_by_side(parts: Sequence[Moments]) -> Moments:
    """Of the same frames, one slab's channels after the other's."""
    total = np.concatenate([part.total for part in parts])
    return Moments(parts[0].pixels, total, np.concatenate([part.squares for part in parts]))


def _require_finite(slab: Frames, year: Year, *, frame: int, channel: int) -> None:
    for row, fields in enumerate(slab):
        for number, field in enumerate(fields):
            if not np.isfinite(field).all():
                raise DataError(
                    f"{year.path}: frame {frame + row} has values that are no numbers in "
                    f"{CHANNELS[channel + number]}. Correct the file; "
                    f"`ai500 data check {year.path.parent}` names all."
                )


def index_paths(folder: Path) -> tuple[Path, Path]:
    """Beside the data, and in the cache."""
    whole = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()
    return folder / INDEX, cache_folder() / "climate" / f"{whole[:24]}.json"


def save(folder: Path, index: Index) -> None:
    """Keep an index beside the data, or else in the cache."""
    body: dict[str, Any] = {
        "format": FORMAT,
        "sha256": index.sha256,
        "origin": index.origin,
        "shape": list(index.shape),
        "channels": list(CHANNELS),
        "statistics": {
            "mean": list(index.statistics.mean),
            "deviation": list(index.statistics.deviation),
        },
        "files": {
            name: {
                "bytes": file.bytes,
                "modified_ns": file.modified_ns,
                "digests": list(file.digests),
            }
            for name, file in index.files.items()
        },
    }
    body["index_sha256"] = _sha256(body)
    beside, cached = index_paths(folder)
    if os.access(folder, os.W_OK):
        try:
            atomic.write_json(beside, body)
            return
        except EnvironmentLacksError:
            pass  # a read-only or full disk: the cache may have room
    with atomic.explaining_write_errors(cached):
        cached.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(cached, body)


def load(folder: Path, years: Sequence[Year]) -> Index | None:
    """The first index kept that is of these files; a generator's is of whatever lies there."""
    found = (index for index in kept(folder) if index.origin is not None or index.is_of(years))
    return next(found, None)


def kept(folder: Path) -> Iterator[Index]:
    """Whole indices beside the data and in the cache, whether or not they still fit."""
    for path in index_paths(folder):
        try:
            body = json.loads(path.read_bytes())
            stated = body.pop("index_sha256")
            index = _from_body(body)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # none, or not one of ours: it is made again
        if stated == _sha256(body) and body.get("sha256") == index.sha256:
            yield index


def _sha256(body: Mapping[str, Any]) -> str:
    """Of contents in one canonical spelling."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _from_body(body: dict[str, Any]) -> Index:
    if body["format"] != FORMAT:
        raise ValueError(body["format"])
    channels, height, width = (int(size) for size in body["shape"])
    files = {
        name: FileIndex(int(file["bytes"]), int(file["modified_ns"]), tuple(file["digests"]))
        for name, file in body["files"].items()
    }
    statistics = Statistics(
        tuple(map(float, body["statistics"]["mean"])),
        tuple(map(float, body["statistics"]["deviation"])),
    )
    return Index(body["origin"], (channels, height, width), files, statistics)
