"""The data of a problem class: generated once, the same bytes everywhere, kept in a cache."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
from pathlib import Path

from ai500.core.errors import DataError
from ai500.data.generated import Generated
from ai500.data.resumable_work import LOCK, Progress, locked
from ai500.data.store import DataSource, Store, cache_folder
from ai500.workloads.protocol import load_workload


def class_source(workload_name: str, class_name: str) -> DataSource:
    """Return the generator of a class's data; `DataError` where users bring their own."""
    workload = load_workload(workload_name)
    source = workload.data_source(workload.problem_classes[class_name])
    if source is None:
        sources = map(workload.data_source, workload.problem_classes.values())
        remedies = (other.own_data for other in sources if other is not None)
        raise DataError(
            f"class {class_name} of {workload_name} needs your own data.",
            value=class_name,
            remedy=next(remedies, Generated.own_data),
        )
    return source


def generate_store(
    workload_name: str,
    class_name: str,
    *,
    progress: Progress | None = None,
    path: Path | None = None,
) -> Store:
    """Write the learnable data of a class, the same bytes on every machine."""
    workload = load_workload(workload_name)
    name = _data_name(workload_name, class_name)
    source = class_source(workload_name, class_name)

    def write(folder: Path) -> Store:
        return source.write_store(
            folder,
            name=name,
            problem_class=workload.problem_classes[class_name],
            progress=progress,
        )

    if path is not None:
        return write(path)
    folder = _cached(name, source)
    was_there = folder.exists()
    try:
        return write(folder)
    except DataError:
        if not was_there:
            raise
    # The cache holds generated data only: a damaged store is made again, by one process.
    with locked(folder.with_name(f".{folder.name}.lock")):
        with contextlib.suppress(DataError):
            return write(folder)  # another process may have made it again meanwhile
        _clear(folder)
        return write(folder)


def cached_store(workload_name: str, class_name: str) -> Path | None:
    """Return the folder of a class's generated data; None where users bring their own."""
    workload = load_workload(workload_name)
    source = workload.data_source(workload.problem_classes[class_name])
    return None if source is None else _cached(_data_name(workload_name, class_name), source)


def _data_name(workload_name: str, class_name: str) -> str:
    shared = getattr(load_workload(workload_name), "data_workload", workload_name)
    return f"{shared}-{class_name}"


def generate_resized(
    workload_name: str,
    class_name: str,
    *,
    samples: int,
    height: int | None = None,
    width: int | None = None,
    progress: Progress | None = None,
    path: Path | None = None,
) -> Store:
    """Write as many samples of this size as asked for, generated like a class's."""
    source = class_source(workload_name, class_name).resized(samples, height=height, width=width)
    problem_class = load_workload(workload_name).problem_classes[class_name]
    name = f"{workload_name}-{samples}"
    return source.write_store(
        path or _cached(name, source),
        name=name,
        problem_class=dataclasses.replace(problem_class, store_sha256=None),
        progress=progress,
    )


def _clear(folder: Path) -> None:
    """Delete the contents of a damaged store, or a file in its place."""
    if not folder.is_dir():
        folder.unlink()
        return
    # Renaming the folder would leave processes that wait for its lock with another folder's.
    with locked(folder / LOCK):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink(missing_ok=True)


def _cached(name: str, source: DataSource) -> Path:
    """Return the source's folder in the cache: other settings make another folder."""
    identity = f"{getattr(source, 'store_format', '')}{source!r}"
    origin = hashlib.sha256(identity.encode()).hexdigest()
    return cache_folder() / f"{name}-{origin[:12]}"
