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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500 import atomic
from ai500.data.cache import cache_folder
from ai500.data.chunks import Progress, available_cores
from ai500.data.climate.schema import CHANNELS, CLASSES, Frames
from ai500.data.climate.years import Year
from ai500.errors import DataError, EnvironmentLacksError

FORMAT = "ai500 climate 1"
INDEX = "ai500-index.json"
DIGEST_BYTES = 8
PASS_BYTES = 1 << 28


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
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def is_of(self, years: Sequence[Year]) -> bool:
        """Whether no file is more, less, or changed."""
        return set(self.files) == {year.path.name for year in years} and all(
            self.files[year.path.name].is_of(year) for year in years
        )


def digest_of(frame: NDArray[np.float32], boxes: NDArray[np.float32]) -> str:
    """Of one frame and its boxes."""
    digest = hashlib.blake2b(np.ascontiguousarray(frame, "<f4").data, digest_size=DIGEST_BYTES)
    digest.update(np.ascontiguousarray(boxes, "<f4").tobytes())
    return digest.hexdigest()


def moments_of(frames: Frames) -> Moments:
    """Sums of the channels, in double precision."""
    total, squares = np.zeros(len(CHANNELS)), np.zeros(len(CHANNELS))
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


def read_block(year: Year, first: int, last: int) -> Frames:
    """Frames of a block, read in the thread that asks."""
    frames = np.empty((last - first, len(CHANNELS), year.height, year.width), np.float32)
    for job in year.jobs([(first + row, row) for row in range(last - first)], frames):
        job()
    return frames


def compute(
    years: Sequence[Year], *, training: dict[str, int], progress: Progress | None = None
) -> Index:
    """The pass; `training` says how many frames of each file train. Progress is in frames."""
    boxes = {year.path.name: year.boxes() for year in years}
    digests: dict[str, list[str]] = {year.path.name: [""] * year.count for year in years}
    moments: dict[tuple[str, int], Moments] = {}
    done, total = 0, sum(year.count for year in years)

    def work(year: Year, first: int, last: int) -> tuple[list[str], Moments | None]:
        frames = read_block(year, first, last)
        mine = boxes[year.path.name][first:last]
        found = [digest_of(frame, box) for frame, box in zip(frames, mine, strict=True)]
        trained = frames[: max(0, training[year.path.name] - first)]
        return found, moments_of(trained) if len(trained) else None

    with concurrent.futures.ThreadPoolExecutor(available_cores()) as pool:
        jobs = {pool.submit(work, *block): block for block in blocks(years)}
        try:
            for job in concurrent.futures.as_completed(jobs):
                year, first, last = jobs.pop(job)
                name = year.path.name
                digests[name][first:last], found = job.result()
                if found is not None:
                    _require_finite(found, year, first=first, last=last)
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


def _require_finite(found: Moments, year: Year, *, first: int, last: int) -> None:
    wrong = [
        name for name, value in zip(CHANNELS, found.squares, strict=True) if not np.isfinite(value)
    ]
    if wrong:
        raise DataError(
            f"{year.path}: frames {first} to {last - 1} have values that are no numbers in "
            f"{', '.join(wrong)}. `ai500 data check {year.path.parent}` says where."
        )


def index_paths(folder: Path) -> tuple[Path, Path]:
    """Beside the data, and in the cache."""
    whole = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()
    return folder / INDEX, cache_folder() / "climate" / f"{whole[:24]}.json"


def save(folder: Path, index: Index) -> None:
    """Keep an index beside the data, or else in the cache."""
    body = {
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


def load(folder: Path) -> Index | None:
    """The index that was kept, whether or not it still fits; None: there is none to be read."""
    for path in index_paths(folder):
        try:
            body = json.loads(path.read_bytes())
            index = _from_body(body)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # none, or not one of ours: it is made again
        if body.get("sha256") == index.sha256:
            return index
    return None


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
