"""Writes generated years: in any order, by many processes; a kill loses the frames in the works.

While a folder is being filled its files are called `.part`, and `building.json` (what it will be),
`building.jsonl` (the frames already on disk) and `building.lock` lie beside them. The index comes
last: from then on it is a store. The files are contiguous, so that a frame is one run of bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
    MOST_BOXES,
    file_name,
    hdf5,
)
from ai500.data.climate.store import ClimateStore
from ai500.data.image_store_writer import JOURNAL, LOCK, PLAN, require_free_bytes
from ai500.data.resumable_work import Progress, available_cores, in_parallel, locked
from ai500.workloads.climate.recipe import ClimateRecipe

JOB_BYTES = 1 << 23
MOST_GPU_WORKERS = 8  # each holds a context of its own on the accelerator


@dataclass(frozen=True)
class YearPlan:
    """Frames first … first + count − 1 of a split, which become one file."""

    year: int
    split: str
    first: int
    count: int


@dataclass(frozen=True)
class Target:
    """A file being filled, and where its two data sets lie in it."""

    path: Path
    images_offset: int
    boxes_offset: int


@dataclass(frozen=True)
class Piece:
    """Some frames of a file: what one job makes."""

    year: int
    first: int
    last: int


@dataclass(frozen=True)
class Made:
    """What is kept of finished frames."""

    digests: list[str]
    total: list[float]
    squares: list[float]


def plan_years(train: int, validation: int) -> list[YearPlan]:
    """Training frames fill years of 1460; the validation frames are the last year."""
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
    """The data set of a recipe, made or found; progress is in frames."""
    if min(recipe.train, recipe.validation) < 1:
        raise DataError(
            f"{recipe.train} training and {recipe.validation} validation frames asked for: "
            "at least one of each. Ask for more frames."
        )
    if path.exists() and not path.is_dir():
        raise DataError(f"{path}: is a file; climate data is a folder. Choose another name.")
    with atomic.explaining_write_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path / LOCK):
        if not (path / indexing.INDEX).exists():
            _make(path, recipe, expected=expected_sha256, workers=workers, progress=progress)
        _discard(path)  # here, not in `_make`: a kill may have come between the index and this
    (path / LOCK).unlink(missing_ok=True)
    store = ClimateStore.open(path)
    if store.index.origin != repr(recipe) or expected_sha256 not in (None, store.sha256):
        raise DataError(
            f"{path}: holds other climate data, SHA-256 {store.sha256}, made by "
            f"{store.index.origin or 'someone else'}. Wanted: {recipe!r}"
            f"{f', SHA-256 {expected_sha256}' if expected_sha256 else ''}. Choose another folder."
        )
    return store


def _make(
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
    made = _fill(path, recipe, plans, targets, workers=workers, progress=progress)
    index = _index(path, recipe, plans, made)
    if expected not in (None, index.sha256):
        for target in targets.values():
            target.path.unlink()
        _discard(path)
        raise DataError(
            f"{path}: the frames made here have SHA-256 {index.sha256}, the class must have "
            f"{expected}. They were deleted. This machine computes differently: report it."
        )
    for plan in plans:
        targets[plan.year].path.replace(path / file_name(plan.year))
    indexing.save(path, index)


def _begin(path: Path, recipe: ClimateRecipe, plans: list[YearPlan]) -> None:
    """Begin a folder, or take up the same one where a job before this one stopped."""
    text = atomic.json_text({"recipe": repr(recipe), "years": [vars(plan) for plan in plans]})
    plan_file = path / PLAN
    if plan_file.exists():
        if plan_file.read_text() != text:
            raise DataError(
                f"{path}: holds other, half-made climate data. Delete the folder, or choose "
                "another."
            )
        return
    if any(file.name != LOCK and file.name[0] != "." for file in path.iterdir()):
        raise DataError(f"{path}: holds other files. Choose an empty or a new folder.")
    frame_bytes = 4 * len(CHANNELS) * recipe.height * recipe.width
    needed = (recipe.train + recipe.validation) * frame_bytes
    require_free_bytes(needed, folder=path, purpose="the climate data")
    atomic.write_text(plan_file, text)


def _target(path: Path, plan: YearPlan, recipe: ClimateRecipe) -> Target:
    """The file of a year, created unless a job before this one did."""
    final = path / file_name(plan.year)
    part = final if final.exists() else final.with_name(final.name + ".part")
    if not part.exists():
        with atomic.explaining_write_errors(part):
            _create(part, plan.count, recipe)
    with hdf5().File(part, "r") as file:
        return Target(part, file["images"].id.get_offset(), file["boxes"].id.get_offset())


def _create(path: Path, count: int, recipe: ClimateRecipe) -> None:
    """A file of the schema whose frames have their places, but no values yet."""
    library = hdf5()
    temporary = path.with_name(path.name + ".new")
    places = library.h5p.create(library.h5p.DATASET_CREATE)
    places.set_alloc_time(library.h5d.ALLOC_TIME_EARLY)
    places.set_fill_time(library.h5d.FILL_TIME_NEVER)
    shapes = {
        "boxes": (count, MOST_BOXES, 5),
        "images": (count, len(CHANNELS), recipe.height, recipe.width),
    }
    with library.File(temporary, "w", alignment_threshold=1 << 16, alignment_interval=4096) as file:
        for name, shape in shapes.items():
            space = library.h5s.create_simple(shape)
            library.h5d.create(file.id, name.encode(), library.h5t.IEEE_F32LE, space, places)
    temporary.replace(path)


def _fill(
    path: Path,
    recipe: ClimateRecipe,
    plans: list[YearPlan],
    targets: dict[int, Target],
    *,
    workers: int | None,
    progress: Progress | None,
) -> dict[Piece, Made]:
    """Make the frames that are not there yet."""
    frame_bytes = 4 * len(CHANNELS) * recipe.height * recipe.width
    pieces = list(_pieces(plans, step=max(1, JOB_BYTES // frame_bytes)))
    journal = path / JOURNAL
    made = _read_journal(journal, pieces)
    of_year = {plan.year: plan for plan in plans}
    total = sum(plan.count for plan in plans)
    done = sum(piece.last - piece.first for piece in made)
    waiting = [piece for piece in pieces if piece not in made]
    jobs = (
        (piece, partial(make_frames, recipe, of_year[piece.year], targets[piece.year], piece))
        for piece in waiting
    )
    if progress:
        progress(done, total)
    most = workers or _default_workers(total * frame_bytes)
    count = min(most, max(1, len(waiting)))
    for piece, result in in_parallel(jobs, workers=count):
        made[piece] = result
        with atomic.explaining_write_errors(journal), journal.open("a") as file:
            file.write(json.dumps([vars(piece), vars(result)]) + "\n")
        done += piece.last - piece.first
        if progress:
            progress(done, total)
    return made


def _default_workers(total_bytes: int) -> int:
    """All cores, but no more than have some work: a process takes seconds to start."""
    cores = min(available_cores(), MOST_GPU_WORKERS) if _accelerated() else available_cores()
    return max(1, min(cores, total_bytes // (4 * JOB_BYTES)))


def _accelerated() -> bool:
    """Whether an NVIDIA or AMD device is here, asked of the system: torch stays in its rooms."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()


def _pieces(plans: Iterable[YearPlan], *, step: int) -> Iterator[Piece]:
    for plan in plans:
        for first in range(0, plan.count, step):
            yield Piece(plan.year, first, min(plan.count, first + step))


def make_frames(recipe: ClimateRecipe, plan: YearPlan, target: Target, piece: Piece) -> Made:
    """Draw frames, put them at their places on the disk, and say what they are."""
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
    return Made(digests, moments.total.tolist(), moments.squares.tolist())


def _pwrite(descriptor: int, rows: NDArray[np.float32], offset: int) -> None:
    data = np.ascontiguousarray(rows, "<f4").reshape(-1).view(np.uint8).data
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _read_journal(path: Path, pieces: Iterable[Piece]) -> dict[Piece, Made]:
    """What a job before this one finished; a torn last line is dropped."""
    known, made = set(pieces), {}
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        try:
            piece, result = json.loads(line)
            key, value = Piece(**piece), Made(**result)
        except (ValueError, TypeError):
            continue
        if key in known:
            made[key] = value
    kept: list[Any] = [[vars(piece), vars(result)] for piece, result in made.items()]
    atomic.write_text(path, "".join(json.dumps(entry) + "\n" for entry in kept))
    return made


def _index(
    path: Path, recipe: ClimateRecipe, plans: list[YearPlan], made: dict[Piece, Made]
) -> Index:
    files: dict[str, FileIndex] = {}
    moments: list[Moments] = []
    for plan in plans:
        pieces = sorted((p for p in made if p.year == plan.year), key=lambda piece: piece.first)
        digests = tuple(digest for piece in pieces for digest in made[piece].digests)
        file = path / file_name(plan.year)
        stat = (file if file.exists() else file.with_name(file.name + ".part")).stat()
        files[file.name] = FileIndex(stat.st_size, stat.st_mtime_ns, digests)
        if plan.split == "train":
            pixels = recipe.height * recipe.width
            moments += [
                Moments(
                    (piece.last - piece.first) * pixels,
                    np.array(made[piece].total),
                    np.array(made[piece].squares),
                )
                for piece in pieces
            ]
    shape = (len(CHANNELS), recipe.height, recipe.width)
    return Index(repr(recipe), shape, files, statistics_of(moments))


def _discard(path: Path) -> None:
    for name in (JOURNAL, PLAN):
        (path / name).unlink(missing_ok=True)
