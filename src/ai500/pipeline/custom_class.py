"""The class of a run: a registered one, or one of the user's own from [custom_class].

A class of one's own is labelled wherever it is shown, compared with itself by the rules, and never
an entry of the list.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ai500.bagging.script_result import read_targets
from ai500.config import Config
from ai500.core.errors import ConfigError, DataError
from ai500.data.open_store import open_store
from ai500.frameworks.script_data import is_store, require_folder
from ai500.records import CustomClass, Field, Hyperparameters, ProblemClass
from ai500.workloads.custom import METRICS
from ai500.workloads.protocol import load_workload

CHANGES = ("target_quality", "penalty_exponent", "ensemble_size", "required_runs")
"""Keys that replace a field of the same name of a registered class."""
REQUIRED = (
    "target_quality", "penalty_exponent", "epochs", "batch_size", "quality_name",
    "quality_direction",
)  # fmt: skip
"""Keys without which workload custom has no class."""
OUT_OF_BAG_SAMPLES = 10_000  # predictions of more would outgrow those of most validation splits
SET_BY_SCRIPT = "script"
"""Value of the hyper-parameters that only the script knows."""


def planned_class(config: Config) -> ProblemClass:
    """Return the registered class that a configuration names, or the one that it defines."""
    settings, classes = config.custom_class, load_workload(config.workload).problem_classes
    if settings.name is None:
        _refuse(config, _fields(settings), "it needs custom_class.name")
        return classes[config.problem_class]
    if not settings.name.strip() or settings.name in classes:
        raise ConfigError(
            f"custom_class.name = {settings.name!r}: a class of one's own needs another name than "
            f"the registered {', '.join(classes) or 'classes'}.",
            key="custom_class.name",
            value=settings.name,
        )
    if not classes:
        return _defined(config, settings.name)
    return _changed(config, classes[config.problem_class])


def _changed(config: Config, base: ProblemClass) -> ProblemClass:
    """Change a registered class of a workload; it keeps its name, by which a workload builds the
    model, and the plan has the user's."""
    settings = config.custom_class
    only_custom = set(_fields(settings)) - {"name", "epochs", *CHANGES}
    _refuse(config, sorted(only_custom), f"workload {config.workload} defines it")
    changes: dict[str, Any] = {key: getattr(settings, key) for key in CHANGES}
    changes = {key: value for key, value in changes.items() if value is not None}
    epochs = settings.epochs or base.reference.epochs
    own_data = config.data.path is not None
    return dataclasses.replace(
        base,
        reference=dataclasses.replace(base.reference, epochs=epochs),
        store_sha256=None if own_data else base.store_sha256,
        custom=CustomClass(base.name),
        **changes,
    )


def _defined(config: Config, name: str) -> ProblemClass:
    """Define a class for a script; what only the script knows has no number."""
    settings = config.custom_class
    for key in REQUIRED:
        if getattr(settings, key) is None:
            raise ConfigError(
                f"custom_class.{key} is missing: workload custom has no default for it.",
                key=f"custom_class.{key}",
                remedy="Set it in [custom_class].",
            )
    assert settings.target_quality is not None and settings.penalty_exponent is not None
    assert settings.epochs is not None and settings.batch_size is not None
    assert settings.quality_name is not None and settings.quality_direction is not None
    _check_direction(settings.quality_name, settings.quality_direction)
    if config.data.path is not None:
        require_folder(Path(config.data.path))
    validation_samples = _samples(config, "validation")
    if settings.validation_targets is not None:
        read_targets(settings.validation_targets, count=validation_samples)
    return ProblemClass(
        name=name,
        ensemble_size=settings.ensemble_size or 1,
        target_quality=settings.target_quality,
        penalty_exponent=settings.penalty_exponent,
        required_runs=settings.required_runs or 1,
        input_shape=(),
        fields=_store_fields(config),
        classes=0,
        train_samples=_samples(config, "train"),
        validation_samples=validation_samples,
        out_of_bag_samples=OUT_OF_BAG_SAMPLES,
        reference=Hyperparameters(
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            optimizer=SET_BY_SCRIPT,
            base_learning_rate=0.0,
            reference_batch_size=settings.batch_size,
            schedule=SET_BY_SCRIPT,
            warmup_epochs=0.0,
            momentum=0.0,
            weight_decay=0.0,
        ),
        custom=CustomClass(
            base=None,
            quality_name=settings.quality_name,
            quality_direction=settings.quality_direction,
            validation_targets=settings.validation_targets,
        ),
    )


def _check_direction(name: str, direction: str) -> None:
    if name in METRICS and METRICS[name][1] != direction:
        raise ConfigError(
            f"custom_class.quality_direction = {direction!r}: of {name}, {METRICS[name][1]} is "
            "better.",
            key="custom_class.quality_direction",
            value=direction,
        )


def _store_fields(config: Config) -> tuple[Field, ...]:
    """Return the fields of the user's store; none of a folder that only the script understands."""
    path = config.data.path
    return open_store(Path(path)).fields if path is not None and is_store(Path(path)) else ()


def _samples(config: Config, split: str) -> int:
    """Return the number of samples of a split: the store's, else the configured one."""
    key, path = f"{split}_samples", config.data.path
    stated: int | None = getattr(config.custom_class, key)
    if path is not None and is_store(Path(path)):
        store = open_store(Path(path))
        count = store.splits[split].count if split in store.splits else 0
        if count == 0 or stated not in (None, count):
            raise DataError(
                f"{path}: its split {split!r} has {count} samples; custom_class.{key} is {stated}.",
                key=f"custom_class.{key}",
                value=stated,
                path=path,
                remedy=f"Leave custom_class.{key} out." if count else "Pack it again.",
            )
        return count
    if stated is None:
        raise ConfigError(
            f"custom_class.{key} is missing: data.path is no store that could be asked.",
            key=f"custom_class.{key}",
            remedy="State the number of samples, or pack the data with `ai500 data pack`.",
        )
    return stated


def _fields(settings: object) -> list[str]:
    return [field.name for field in dataclasses.fields(settings)]  # type: ignore[arg-type]


def _refuse(config: Config, names: list[str], reason: str) -> None:
    for name in names:
        value = getattr(config.custom_class, name)
        if value is not None:
            raise ConfigError(
                f"custom_class.{name} = {value!r} has no effect: {reason}.",
                key=f"custom_class.{name}",
                value=value,
                remedy="Leave it out.",
            )
