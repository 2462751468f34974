"""Plugin points: built-ins by name, other packages by entry-point group `ai500.<kind>`.

The built-ins are listed in a table here, so that a source tree works without installation. Two
plugins with the same name are an error.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Literal

from ai500.core.errors import EnvironmentLacksError, setting_error
from ai500.core.schema import nearest

Kind = Literal[
    "workload",
    "framework",
    "scheduler",
    "launcher",
    "sampler",
    "engine",
    "collective",
    "optimizer",
    "learning_rate",
    "store",
    "meter",
]

BUILT_IN: dict[Kind, dict[str, str]] = {
    "workload": {
        "image_classification": "ai500.workloads.image_classification:WORKLOAD",
        "extreme_weather": "ai500.workloads.extreme_weather:WORKLOAD",
        "language_model": "ai500.workloads.language_model:WORKLOAD",
        "automl": "ai500.workloads.automl:WORKLOAD",
        "climate_segmentation": "ai500.workloads.climate_segmentation:WORKLOAD",
        "cosmology": "ai500.workloads.cosmology:WORKLOAD",
        "custom": "ai500.workloads.custom:WORKLOAD",
    },
    "framework": {
        "pytorch": "ai500.frameworks.pytorch:PYTORCH",
        "script": "ai500.frameworks.script:SCRIPT",
        "jax": "ai500.frameworks.jax:JAX",
        "tensorflow": "ai500.frameworks.tensorflow:TENSORFLOW",
        "mindspore": "ai500.frameworks.mindspore:MINDSPORE",
    },
    "scheduler": {
        "local": "ai500.jobs.schedulers.local:LOCAL",
        "slurm": "ai500.jobs.schedulers.slurm:SLURM",
        "grid_engine": "ai500.jobs.schedulers.grid_engine:GRID_ENGINE",
    },
    "launcher": {
        "bare": "ai500.jobs.launchers:bare",
        "apptainer": "ai500.jobs.launchers:apptainer",
        "podman": "ai500.jobs.launchers:podman",
        "docker": "ai500.jobs.launchers:docker",
        "pyxis": "ai500.jobs.launchers:pyxis",
    },
    "sampler": {
        "bootstrap": "ai500.bagging.data_sampler:BOOTSTRAP",
        "poisson": "ai500.bagging.data_sampler:POISSON",
        "whole": "ai500.bagging.data_sampler:WHOLE",
    },
    "engine": {
        "data": "ai500.parallel.engines.data:DataParallel",
        "sharded": "ai500.parallel.engines.sharded:ShardedDataParallel",
        "tensor": "ai500.parallel.engines.mixed:MixedParallel",
        "pipeline": "ai500.parallel.engines.mixed:MixedParallel",
        "mixed": "ai500.parallel.engines.mixed:MixedParallel",
    },
    "collective": {
        "all_reduce": "ai500.parallel.collectives:all_reduce",
        "hierarchical": "ai500.parallel.collectives:hierarchical",
        "torus_2d": "ai500.parallel.collectives:torus_2d",
        "ring": "ai500.parallel.message_passing:ring",
        "double_binary_tree": "ai500.parallel.message_passing:double_binary_tree",
        "butterfly": "ai500.parallel.message_passing:butterfly",
        "parameter_server": "ai500.parallel.message_passing:parameter_server",
    },
    "optimizer": {
        "sgd": "ai500.train.optimizers:sgd",
        "sgd_no_vector_decay": "ai500.train.optimizers:sgd_no_vector_decay",
        "adam": "ai500.train.optimizers:adam",
        "adamw": "ai500.train.optimizers:adamw",
        "adagrad": "ai500.train.optimizers:adagrad",
        "lars": "ai500.train.optimizers:lars",
        "lamb": "ai500.train.optimizers:lamb",
    },
    "learning_rate": {
        "cosine": "ai500.train.learning_rate:cosine",
        "step": "ai500.train.learning_rate:step_decay",
        "polynomial": "ai500.train.learning_rate:polynomial",
        "inverse_time": "ai500.train.learning_rate:inverse_time",
    },
    "store": {
        "packed": "ai500.data.packed_store:PackedStore",
        "climate": "ai500.data.climate.store:ClimateStore",
    },
    "meter": {
        "nvml": "ai500.meters.nvml:open_meter",
        "drm": "ai500.meters.drm:open_meter",
        "rapl": "ai500.meters.power:open_rapl",
        "cray": "ai500.meters.power:open_cray",
        "ipmi": "ai500.meters.power:open_ipmi",
        "slurm": "ai500.meters.power:open_slurm",
        "host": "ai500.meters.host:open_host",
        "disk": "ai500.meters.host:open_disks",
        "network": "ai500.meters.host:open_network",
    },
}


@cache
def _table(kind: Kind) -> dict[str, str]:
    from importlib.metadata import entry_points  # slow to import

    table = dict(BUILT_IN[kind])
    for point in entry_points(group=f"ai500.{kind}"):
        if point.name in table and table[point.name] != point.value:
            raise EnvironmentLacksError(
                f"two plugins define the {kind} {point.name!r}: {table[point.name]} and "
                f"{point.value}.",
                key=f"ai500.{kind}",
                value=point.name,
                remedy="Uninstall one of the packages, or rename its entry point.",
            )
        table[point.name] = point.value
    return table


def names(kind: Kind) -> list[str]:
    """Return the known names of a kind."""
    return sorted(_table(kind))


def check(kind: Kind, name: str, *, key: str) -> None:
    """Raise a ConfigError about `key` unless there is a plugin `name`."""
    if name not in _table(kind):
        raise setting_error(key, name, f"no such {kind};", nearest(name, names(kind)))


def is_built_in(kind: Kind, name: str) -> bool:
    """Return True if the plugin comes with ai500."""
    return name in BUILT_IN[kind]


def location(kind: Kind, name: str) -> str | None:
    """Return `module:attribute` of a plugin; None: there is none of that name."""
    return _table(kind).get(name)


def load(kind: Kind, name: str, *, key: str | None = None) -> Any:
    """Import and return the plugin `name`; `key` is the configuration key that names it."""
    check(kind, name, key=key or kind)
    module, _, attribute = _table(kind)[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise EnvironmentLacksError(
            f"the {kind} {name!r} ({_table(kind)[name]}) can't be loaded: {error}",
            key=key or kind,
            value=name,
        ) from error
