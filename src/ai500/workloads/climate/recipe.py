"""Learnable climate: the recipe of a generated data set, and writing its years to disk.

A frame is a function of (seed, split, number) alone: the same bytes on every machine and device.
`generator` draws it. Frames are written in any order, by many processes; a kill loses the frames
in progress. While a folder is being filled its files are called `.part`, and `building.json` (the
plan), `building.jsonl` (the frames already on disk) and `building.lock` lie beside them. The index
comes last and completes the store. The files are contiguous, so that a frame is one run of bytes.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ai500.core import atomic
from ai500.core.errors import DataError
from ai500.data.climate import index as indexing
from ai500.data.climate.index import FileIndex, Index, Moments, digest_of, moments_of, statistics_of
from ai500.data.climate.schema import (
    CHANNELS,
    FIRST_YEAR,
    FRAMES_A_YEAR,
    HEIGHT,
    MOST_BOXES,
    WIDTH,
    Boxes,
    Frames,
    file_name,
    hdf5,
)
from ai500.data.climate.store import VALIDATION_SHARE, ClimateStore
from ai500.data.resumable_work import (
    JOURNAL,
    LOCK,
    PLAN,
    Progress,
    available_cores,
    in_parallel,
    locked,
)
from ai500.data.store import data_error
from ai500.data.store_writer import require_free_bytes
from ai500.records import ProblemClass

LEAST_HEIGHT, LEAST_WIDTH = 48, 72
JOB_BYTES = 1 << 23
MAX_GPU_WORKERS = 8  # each has a context of its own on the accelerator


@dataclass(frozen=True)
class ClimateRecipe:
    """A `DataSource` of climate data; its `repr` is the origin that the index records."""

    own_data: ClassVar[str] = (
        "Pass --data FOLDER with its HDF5 files, one per year (climo_1979.h5, …)."
    )

    seed: int
    height: int = HEIGHT
    width: int = WIDTH
    train: int = 0
    validation: int = 0
    event_scale: float = 1.0
    """Factor of the events' size: on a coarse grid they must be larger to be visible."""
    contrast: float = 1.0
    """Strength of the events' patterns in the fields, labels unchanged; smaller is harder."""
    distractors: float = 4.0
    """Mean number per frame of weak vortices and short or dry plumes that carry no label."""
    boundary: float = 0.5
    """Fraction of tropical events with a wind close to the boundary between the two classes."""
    noise: float = 1.0
    """Noise of every pixel and channel, as a multiple of its usual size."""

    def __post_init__(self) -> None:
        if self.height < LEAST_HEIGHT or self.width < LEAST_WIDTH:
            raise DataError(
                f"frames of {self.height}×{self.width} are too small for weather; the least is "
                f"{LEAST_HEIGHT}×{LEAST_WIDTH}, full size is {HEIGHT}×{WIDTH}.",
                key="shape",
                value=(self.height, self.width),
            )

    def draw(self, split: str, first: int, last: int) -> tuple[Frames, Boxes]:
        """Draw frames first … last − 1 of a split and their boxes, on a GPU where there is one."""
        from ai500.workloads.climate.generator import draw

        frames, boxes, _ = draw(self, split, first, last)
        return frames, boxes

    def write_store(
        self,
        folder: Path,
        *,
        name: str,
        problem_class: ProblemClass,
        progress: Progress | None = None,
    ) -> ClimateStore:
        """Write the years, or open the folder that has them."""
        return generate_years(
            folder, self, expected_sha256=problem_class.store_sha256, progress=progress
        )

    def resized(self, samples: int, *, height: int | None, width: int | None) -> ClimateRecipe:
        """Return the same climate in so many frames, a fifth of them for validation."""
        validation = -(-samples // VALIDATION_SHARE)
        return dataclasses.replace(
            self,
            train=samples - validation,
            validation=validation,
            height=height or self.height,
            width=width or self.width,
        )


SMOKE = ClimateRecipe(
    seed=1979, height=96, width=144, train=384, validation=128, event_scale=1.6, distractors=3.0
)
WORKSTATION = ClimateRecipe(
    seed=1979,
    train=256,
    validation=64,
    contrast=0.6,
    distractors=10.0,
    boundary=0.8,
    noise=2.0,
)


@dataclass(frozen=True)
class YearPlan:
    """Frames first … first + count − 1 of a split, written to one file."""

    year: int
    split: str
    first: int
    count: int


@dataclass(frozen=True)
class Target:
    """A file being written, and the offsets of its two data sets."""

    path: Path
    images_offset: int
    boxes_offset: int


@dataclass(frozen=True)
class Piece:
    """Frames first … last − 1 of a file: one job's work."""

    year: int
    first: int
    last: int


@dataclass(frozen=True)
class PieceResult:
    """Digests of a piece's frames, and the sums of its channels."""

    digests: list[str]
    total: list[float]
    squares: list[float]


def plan_years(train: int, validation: int) -> list[YearPlan]:
    """Divide training frames into years of 1460; the validation frames are the last year."""
    plans: list[YearPlan] = []
    for first in range(0, train, FRAMES_A_YEAR):
        count = min(FRAMES_A_YEAR, train - first)
        plans.append(YearPlan(FIRST_YEAR + len(plans), "train", first, count))
    plans.append(YearPlan(FIRST_YEAR + len(plans), "validation", 0, validation))
    return plans


def generate_years(
    path: Path,
    recipe: ClimateRecipe,
    *,
    expected_sha256: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> ClimateStore:
    """Write the data set of a recipe, or open the folder that has it; progress is in frames."""
    if min(recipe.train, recipe.validation) < 1:
        raise DataError(
            f"{recipe.train} training and {recipe.validation} validation frames asked for; each "
            "split needs one.",
            key="frames",
            value=(recipe.train, recipe.validation),
            remedy="Ask for more frames.",
        )
    if path.exists() and not path.is_dir():
        raise data_error(path, "is a file; climate data is a folder.", "Choose another name.")
    with atomic.explaining_write_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path / LOCK):
        if not (path / indexing.INDEX).exists():
            _write(path, recipe, expected=expected_sha256, workers=workers, progress=progress)
        _discard(path)  # here, not in `_write`: a kill may have come between the index and this
    (path / LOCK).unlink(missing_ok=True)
    store = ClimateStore.open(path)
    if store.index.origin != repr(recipe) or expected_sha256 not in (None, store.sha256):
        raise data_error(
            path,
            f"holds other climate data, SHA-256 {store.sha256}, origin "
            f"{store.index.origin or 'unknown'}; expected {recipe!r}"
            f"{f', SHA-256 {expected_sha256}' if expected_sha256 else ''}.",
            "Choose another folder.",
            key="sha256",
            value=store.sha256,
        )
    return store


def _write(
    path: Path,
    recipe: ClimateRecipe,
    *,
    expected: str | None,
    workers: int | None,
    progress: Progress | None,
) -> None:
    plans = plan_years(recipe.train, recipe.validation)
    _begin(path, recipe, plans)
    targets = {plan.year: _target(path, plan, recipe) for plan in plans}
    results = _fill(path, recipe, plans, targets, workers=workers, progress=progress)
    index = _index(path, recipe, plans, results)
    if expected not in (None, index.sha256):
        for target in targets.values():
            target.path.unlink()
        _discard(path)
        raise data_error(
            path,
            f"the frames written here had SHA-256 {index.sha256}, the class must have "
            f"{expected}. They were deleted.",
            key="sha256",
            value=index.sha256,
            remedy="This machine computes differently: report it.",
        )
    for plan in plans:
        targets[plan.year].path.replace(path / file_name(plan.year))
    indexing.save(path, index)


def _begin(path: Path, recipe: ClimateRecipe, plans: list[YearPlan]) -> None:
    """Begin a folder, or resume an unfinished one of the same recipe."""
    text = atomic.json_text({"recipe": repr(recipe), "years": [vars(plan) for plan in plans]})
    plan_file = path / PLAN
    if plan_file.exists():
        if plan_file.read_text() != text:
            raise data_error(
                path,
                "holds other, unfinished climate data.",
                "Delete the folder, or choose another.",
                key="plan",
            )
        return
    if any(file.name != LOCK and file.name[0] != "." for file in path.iterdir()):
        raise data_error(path, "holds other files.", "Choose an empty or a new folder.")
    frame_bytes = 4 * len(CHANNELS) * recipe.height * recipe.width
    needed = (recipe.train + recipe.validation) * frame_bytes
    require_free_bytes(needed, folder=path, purpose="the climate data")
    atomic.write_text(plan_file, text)


def _target(path: Path, plan: YearPlan, recipe: ClimateRecipe) -> Target:
    """Open the file of a year, created unless an earlier job did."""
    final = path / file_name(plan.year)
    part = final if final.exists() else final.with_name(final.name + ".part")
    if not part.exists():
        with atomic.explaining_write_errors(part):
            _create(part, plan.count, recipe)
    with hdf5().File(part, "r") as file:
        return Target(part, file["images"].id.get_offset(), file["boxes"].id.get_offset())


def _create(path: Path, count: int, recipe: ClimateRecipe) -> None:
    """Create a file of the schema with space for its frames, but no values yet."""
    library = hdf5()
    temporary = path.with_name(path.name + ".new")
    properties = library.h5p.create(library.h5p.DATASET_CREATE)
    properties.set_alloc_time(library.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(library.h5d.FILL_TIME_NEVER)
    shapes = {
        "boxes": (count, MOST_BOXES, 5),
        "images": (count, len(CHANNELS), recipe.height, recipe.width),
    }
    with library.File(temporary, "w", alignment_threshold=1 << 16, alignment_interval=4096) as file:
        for name, shape in shapes.items():
            space = library.h5s.create_simple(shape)
            library.h5d.create(file.id, name.encode(), library.h5t.IEEE_F32LE, space, properties)
    temporary.replace(path)


def _fill(
    path: Path,
    recipe: ClimateRecipe,
    plans: list[YearPlan],
    targets: dict[int, Target],
    *,
    workers: int | None,
    progress: Progress | None,
) -> dict[Piece, PieceResult]:
    """Write the frames that are not on disk yet."""
    frame_bytes = 4 * len(CHANNELS) * recipe.height * recipe.width
    pieces = list(_pieces(plans, step=max(1, JOB_BYTES // frame_bytes)))
    journal = path / JOURNAL
    results = _read_journal(journal, pieces)
    plan_of = {plan.year: plan for plan in plans}
    total = sum(plan.count for plan in plans)
    done = sum(piece.last - piece.first for piece in results)
    waiting = [piece for piece in pieces if piece not in results]
    jobs = (
        (piece, partial(write_frames, recipe, plan_of[piece.year], targets[piece.year], piece))
        for piece in waiting
    )
    if progress:
        progress(done, total)
    workers = min(workers or _default_workers(total * frame_bytes), max(1, len(waiting)))
    for piece, result in in_parallel(jobs, workers=workers):
        results[piece] = result
        with atomic.explaining_write_errors(journal), journal.open("a") as file:
            file.write(json.dumps([vars(piece), vars(result)]) + "\n")
        done += piece.last - piece.first
        if progress:
            progress(done, total)
    return results


def _default_workers(total_bytes: int) -> int:
    """Return the number of cores, or fewer where little is to do: processes start slowly."""
    cores = min(available_cores(), MAX_GPU_WORKERS) if _accelerated() else available_cores()
    return max(1, min(cores, total_bytes // (4 * JOB_BYTES)))


def _accelerated() -> bool:
    """Return True where an NVIDIA or AMD device is present, without importing torch."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()


def _pieces(plans: Iterable[YearPlan], *, step: int) -> Iterator[Piece]:
    for plan in plans:
        for first in range(0, plan.count, step):
            yield Piece(plan.year, first, min(plan.count, first + step))


def write_frames(
    recipe: ClimateRecipe, plan: YearPlan, target: Target, piece: Piece
) -> PieceResult:
    """Draw frames and write them to their places on disk."""
    frames, boxes = recipe.draw(plan.split, plan.first + piece.first, plan.first + piece.last)
    with atomic.explaining_write_errors(target.path):
        descriptor = os.open(target.path, os.O_WRONLY)
        try:
            _pwrite(descriptor, frames, target.images_offset + piece.first * frames[0].nbytes)
            _pwrite(descriptor, boxes, target.boxes_offset + piece.first * boxes[0].nbytes)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    digests = [digest_of(frame, box) for frame, box in zip(frames, boxes, strict=True)]
    moments = moments_of(frames)
    return PieceResult(digests, moments.total.tolist(), moments.squares.tolist())


def _pwrite(descriptor: int, rows: NDArray[np.float32], offset: int) -> None:
    data = np.ascontiguousarray(rows, "<f4").reshape(-1).view(np.uint8).data
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _read_journal(path: Path, pieces: Iterable[Piece]) -> dict[Piece, PieceResult]:
    """Read the pieces that an earlier job finished; a torn last line is dropped."""
    known, results = set(pieces), {}
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        try:
            piece, result = json.loads(line)
            key, value = Piece(**piece), PieceResult(**result)
        except (ValueError, TypeError):
            continue
        if key in known:
            results[key] = value
    entries: list[Any] = [[vars(piece), vars(result)] for piece, result in results.items()]
    atomic.write_text(path, "".join(json.dumps(entry) + "\n" for entry in entries))
    return results


def _index(
    path: Path, recipe: ClimateRecipe, plans: list[YearPlan], results: dict[Piece, PieceResult]
) -> Index:
    files: dict[str, FileIndex] = {}
    moments: list[Moments] = []
    for plan in plans:
        pieces = sorted((p for p in results if p.year == plan.year), key=lambda piece: piece.first)
        digests = tuple(digest for piece in pieces for digest in results[piece].digests)
        file = path / file_name(plan.year)
        stat = (file if file.exists() else file.with_name(file.name + ".part")).stat()
        files[file.name] = FileIndex(stat.st_size, stat.st_mtime_ns, digests)
        if plan.split == "train":
            pixels = recipe.height * recipe.width
            moments += [
                Moments(
                    (piece.last - piece.first) * pixels,
                    np.array(results[piece].total),
                    np.array(results[piece].squares),
                )
                for piece in pieces
            ]
    shape = (len(CHANNELS), recipe.height, recipe.width)
    return Index(repr(recipe), shape, files, statistics_of(moments))


def _discard(path: Path) -> None:
    for name in (JOURNAL, PLAN):
        (path / name).unlink(missing_ok=True)
