"""The data of a problem class: generated once, the same bytes everywhere, kept in a cache."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

from ai500.core.errors import DataError, InputError
from ai500.data.cache import cache_folder
from ai500.data.climate.store import VALIDATION_SHARE
from ai500.data.image_store import ImageSource
from ai500.data.image_store_writer import generate
from ai500.data.open_store import AnyStore
from ai500.data.resumable_work import Progress
from ai500.workloads.climate.recipe import ClimateRecipe
from ai500.workloads.climate.writer import generate_years
from ai500.workloads.protocol import load_workload


def class_source(workload_name: str, class_name: str) -> ImageSource | ClimateRecipe:
    """The generator of a class's data, or an error that says how to bring one's own."""
    workload = load_workload(workload_name)
    source = workload.source(workload.problem_classes[class_name])
    if source is None:
        classes = workload.problem_classes.values()
        climate = any(isinstance(workload.source(one), ClimateRecipe) for one in classes)
        raise DataError(
            f"class {class_name} of {workload_name} needs your own data: "
            + (
                "pass --data FOLDER with its HDF5 files, one a year (climo_1979.h5, …)."
                if climate
                else "pack it with `ai500 data pack SOURCE --out STORE` and pass --data STORE."
            )
        )
    return source


def generate_store(
    workload_name: str,
    class_name: str,
    *,
    progress: Progress | None = None,
    path: Path | None = None,
) -> AnyStore:
    """The learnable data of a built-in class, the same bytes on every machine."""
    source = class_source(workload_name, class_name)
    workload = load_workload(workload_name)
    problem_class = workload.problem_classes[class_name]
    name = f"{getattr(workload, 'data_of', workload_name)}-{class_name}"
    identity = problem_class.store_sha256
    folder = path or _cached(name, source)
    if isinstance(source, ClimateRecipe):
        return generate_years(folder, source, expected_sha256=identity, progress=progress)
    return generate(
        folder,
        source,
        name=name,
        classes=[f"class {number}" for number in range(problem_class.classes)],
        splits={
            "train": problem_class.train_samples,
            "validation": problem_class.validation_samples,
        },
        expected_sha256=identity,
        progress=progress,
    )


def generate_frames(
    workload_name: str,
    class_name: str,
    *,
    frames: int,
    height: int | None = None,
    width: int | None = None,
    progress: Progress | None = None,
    path: Path | None = None,
) -> AnyStore:
    """So many frames as a class has them, a fifth of them for validation."""
    source = class_source(workload_name, class_name)
    if not isinstance(source, ClimateRecipe):
        raise InputError(
            f"--frames, --height and --width are for climate data; {workload_name} has images of "
            "a fixed number and size. Leave them out."
        )
    validation = -(-frames // VALIDATION_SHARE)
    recipe = dataclasses.replace(
        source,
        train=frames - validation,
        validation=validation,
        height=height or source.height,
        width=width or source.width,
    )
    folder = path or _cached(f"{workload_name}-{frames}", recipe)
    return generate_years(folder, recipe, progress=progress)


def _cached(name: str, source: ImageSource | ClimateRecipe) -> Path:
    """Another generator, or the same with other settings, makes another store."""
    origin = hashlib.sha256(repr(source).encode()).hexdigest()
    return cache_folder() / f"{name}-{origin[:12]}"
