"""The index of a folder of years: each frame's digest, the identity of all, and statistics.

Computed in one pass over the files with all cores, and saved beside them (`ai500-index.json`), or
in the cache where the folder can't be written. A file whose size or time changed is read again.
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
from ai500.core.errors import EnvironmentLacksError
from ai500.data.climate.schema import CHANNELS, CLASSES, Boxes, Frames
from ai500.data.climate.years import Chunked, Year, require_usable_boxes
from ai500.data.gather import FLIGHT_BYTES
from ai500.data.resumable_work import Progress, available_cores
from ai500.data.store import cache_folder, data_error

FORMAT = "ai500 climate 1"
INDEX = "ai500-index.json"
DIGEST_BYTES = 8
# Memory of all threads in a pass; where chunks hold many frames, FLIGHT_BYTES bounds it.
PASS_BYTES = 1 << 28
Inspect = Callable[[int, Frames], None]
"""Called with the first channel's number and a block's frames of some channels."""


@dataclass(frozen=True)
class Moments:
    """Sums over the pixels of frames, one value per channel."""

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
    """Index of one file."""

    bytes: int
    modified_ns: int
    digests: tuple[str, ...]
    """BLAKE2b of 8 bytes of each frame and its boxes, in hex."""

    def is_of(self, year: Year) -> bool:
        """Return True while the file has the size and time it had."""
        return (self.bytes, self.modified_ns) == (year.bytes, year.modified_ns)


@dataclass(frozen=True)
class Index:
    """The contents of a folder of years."""

    origin: str | None
    """The recipe of generated frames; None: a user's own files."""
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
        """Return True where no file was added, removed or changed."""
        return not any(self.other_files(years)) and all(
            self.files[year.path.name].is_of(year) for year in years
        )

    def other_files(self, years: Sequence[Year]) -> Iterator[tuple[str, str]]:
        """Yield files that are missing, unknown, or of another length, with the reason."""
        counts = {year.path.name: year.count for year in years}
        for name in sorted(set(counts) | set(self.files)):
            recorded = len(self.files[name].digests) if name in self.files else None
            if name not in counts:
                yield name, f"is missing: {INDEX} has it"
            elif recorded is None:
                yield name, f"is not in {INDEX}"
            elif recorded != counts[name]:
                yield name, f"has {counts[name]} frames, {recorded} in {INDEX}"


def digest_of(frame: NDArray[np.float32], boxes: NDArray[np.float32]) -> str:
    """Compute the digest of one frame and its boxes."""
    digest = hashlib.blake2b(np.ascontiguousarray(frame, "<f4").data, digest_size=DIGEST_BYTES)
    digest.update(np.ascontiguousarray(boxes, "<f4").tobytes())
    return digest.hexdigest()


def moments_of(frames: Frames) -> Moments:
    """Sum the channels of frames in double precision."""
    total, squares = np.zeros(frames.shape[1]), np.zeros(frames.shape[1])
    for frame in frames:
        for channel, field in enumerate(frame):
            wide = field.reshape(-1).astype(np.float64)
            total[channel] += wide.sum()
            wide *= wide  # not a dot product: BLAS would start its own threads
            squares[channel] += wide.sum()
    return Moments(len(frames) * frames[0][0].size, total, squares)


def statistics_of(parts: Sequence[Moments]) -> Statistics:
    """Compute mean and deviation, rounded to six digits to hide the order of summation."""
    pixels = sum(part.pixels for part in parts)
    means, deviations = [], []
    for channel in range(len(CHANNELS)):
        mean = math.fsum(part.total[channel] for part in parts) / pixels
        square = math.fsum(part.squares[channel] for part in parts) / pixels
        means.append(float(f"{mean:.6g}"))
        # A constant channel gets 1: dividing by it leaves the channel as it is.
        deviations.append(float(f"{math.sqrt(max(0.0, square - mean * mean)):.6g}") or 1.0)
    return Statistics(tuple(means), tuple(deviations))


def blocks(years: Sequence[Year]) -> Iterator[tuple[Year, int, int]]:
    """Yield all frames as (year, first, last), in whole chunks and limited by memory."""
    for year in years:
        most = max(1, PASS_BYTES // available_cores() // year.frame_bytes)
        step = max(year.frames_per_chunk, most // year.frames_per_chunk * year.frames_per_chunk)
        for first in range(0, year.count, step):
            yield year, first, min(year.count, first + step)


def _channels_at_once(year: Year, frames: int) -> int:
    """Return how many channels of so many frames fit into memory, in whole chunks."""
    per_chunk = year.layout.shape[1] if isinstance(year.layout, Chunked) else len(CHANNELS)
    budget = max(year.frame_bytes, PASS_BYTES // available_cores())
    fitting = budget * len(CHANNELS) // (year.frame_bytes * frames)
    return min(len(CHANNELS), max(per_chunk, fitting // per_chunk * per_chunk))


def threads_for(years: Sequence[Year]) -> int:
    """Return the number of threads: one per core, fewer where each needs much memory."""
    bytes_per_thread = [
        year.frame_bytes * last * _channels_at_once(year, last) // len(CHANNELS)
        for year, _, last in (next(blocks([each])) for each in years)
    ]
    cores = available_cores()
    budget = max([FLIGHT_BYTES, *(cores * year.frame_bytes for year in years)])
    return max(1, min(cores, budget // max(bytes_per_thread, default=1)))


def slabs(year: Year, first: int, last: int) -> Iterator[tuple[int, Frames]]:
    """Yield a block's frames, some channels at a time, in one array that is reused."""
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
    year: Year, first: int, last: int, *, boxes: Boxes, inspect: Inspect | None = None
) -> list[str]:
    """Compute `digest_of` each frame of a block, reading in the calling thread."""
    digests = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in range(first, last)]
    for channel, slab in slabs(year, first, last):
        for digest, frame in zip(digests, slab, strict=True):
            digest.update(np.ascontiguousarray(frame, "<f4").data)
        if inspect:
            inspect(channel, slab)
    for digest, rows in zip(digests, boxes[first:last], strict=True):
        digest.update(np.ascontiguousarray(rows, "<f4").tobytes())
    return [digest.hexdigest() for digest in digests]


def compute(
    years: Sequence[Year], *, training: dict[str, int], progress: Progress | None = None
) -> Index:
    """Index all files; `training` is the number of training frames per file.

    Progress is in frames.
    """
    boxes = {year: year.boxes() for year in years}
    require_usable_boxes(years[0].path.parent, boxes)
    digests: dict[str, list[str]] = {year.path.name: [""] * year.count for year in years}
    moments: dict[tuple[str, int], Moments] = {}
    done, total = 0, sum(year.count for year in years)

    def work(year: Year, first: int, last: int) -> tuple[list[str], Moments | None]:
        trained = max(0, training[year.path.name] - first)
        sums: list[Moments] = []

        def inspect(channel: int, slab: Frames) -> None:
            _require_finite(slab, year, frame=first, channel=channel)
            if trained:
                sums.append(moments_of(slab[:trained]))

        block = digests_of_block(year, first, last, boxes=boxes[year], inspect=inspect)
        return block, _concatenated(sums) if trained else None

    with concurrent.futures.ThreadPoolExecutor(threads_for(years)) as pool:
        jobs = {pool.submit(work, *block): block for block in blocks(years)}
        try:
            for job in concurrent.futures.as_completed(jobs):
                year, first, last = jobs.pop(job)
                name = year.path.name
                digests[name][first:last], block_moments = job.result()
                if block_moments is not None:
                    moments[name, first] = block_moments
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


def _concatenated(parts: Sequence[Moments]) -> Moments:
    """Join the moments of a block's slabs, which are those of consecutive channels."""
    total = np.concatenate([part.total for part in parts])
    return Moments(parts[0].pixels, total, np.concatenate([part.squares for part in parts]))


def _require_finite(slab: Frames, year: Year, *, frame: int, channel: int) -> None:
    for row, fields in enumerate(slab):
        for number, field in enumerate(fields):
            if not np.isfinite(field).all():
                raise data_error(
                    year.path,
                    f"frame {frame + row} has values that are no numbers in "
                    f"{CHANNELS[channel + number]}.",
                    f"Correct the file; `ai500 data check {year.path.parent}` lists all.",
                    key=CHANNELS[channel + number],
                    value=frame + row,
                )


def index_paths(folder: Path) -> tuple[Path, Path]:
    """Return the index's file beside the data, and the one in the cache."""
    key = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()
    return folder / INDEX, cache_folder() / "climate" / f"{key[:24]}.json"


def save(folder: Path, index: Index) -> None:
    """Write an index beside the data, or else to the cache."""
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
            pass  # a read-only or full disk: the cache may be writable
    with atomic.explaining_write_errors(cached):
        cached.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(cached, body)


def load(folder: Path, years: Sequence[Year]) -> Index | None:
    """Read the first saved index that is generated, or still describes these files."""
    usable = (index for index in saved(folder) if index.origin is not None or index.is_of(years))
    return next(usable, None)


def saved(folder: Path) -> Iterator[Index]:
    """Read the undamaged indices beside the data and in the cache, stale or not."""
    for path in index_paths(folder):
        try:
            body = json.loads(path.read_bytes())
            stated = body.pop("index_sha256")
            index = _from_body(body)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # missing or damaged: it is computed again
        if stated == _sha256(body) and body.get("sha256") == index.sha256:
            yield index


def _sha256(body: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of contents in one canonical spelling."""
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
