"""The data of a problem class: generated once, the same bytes everywhere, kept in a cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ai500 import plugins
from ai500.data.chunks import Progress
from ai500.data.store import ImageSource, Store
from ai500.data.store_writer import generate
from ai500.errors import DataError


def class_source(workload_name: str, class_name: str) -> ImageSource:
    """The generator of a class's data, or an error that says how to bring one's own."""
    workload = plugins.workload(workload_name)
    source = workload.source(workload.problem_classes[class_name])
    if source is None:
        raise DataError(
            f"class {class_name} of {workload_name} needs your own data: pack it with "
            "`ai500 data pack SOURCE --out STORE` and pass --data STORE."
        )
    return source


def generate_store(
    workload_name: str,
    class_name: str,
    *,
    progress: Progress | None = None,
    path: Path | None = None,
) -> Store:
    """The learnable data of a built-in class, the same bytes on every machine."""
    source = class_source(workload_name, class_name)
    problem_class = plugins.workload(workload_name).problem_classes[class_name]
    name = f"{workload_name}-{class_name}"
    identity = problem_class.store_sha256
    return generate(
        # Another generator, or the same with other settings, makes another store.
        path or cache_folder() / f"{name}-{hashlib.sha256(repr(source).encode()).hexdigest()[:12]}",
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


def cache_folder() -> Path:
    """Where generated data is kept between runs."""
    if "AI500_CACHE" in os.environ:
        return Path(os.environ["AI500_CACHE"])
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ai500"
