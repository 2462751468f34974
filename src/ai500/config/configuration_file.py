"""Loading of the configuration file: overrides, paths, names of plugins, errors that name a key."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ai500.config.sections import Config
from ai500.config.toml_text import documented_keys
from ai500.core import plugins
from ai500.core.errors import ConfigError, InputError, setting_error
from ai500.core.reading import MAX_TOML_BYTES, UnsafeTextError, parse_toml, read_text
from ai500.core.schema import SchemaError, UnknownKeyError, decode, nearest
from ai500.records import precision

PLUGIN_KEYS: dict[plugins.Kind, str] = {
    "workload": "workload",
    "framework": "framework.kind",
    "sampler": "ensemble.sampler",
    "engine": "parallel.mode",
    "collective": "communication.mode",
    "optimizer": "train.optimizer",
    "learning_rate": "train.schedule",
    "scheduler": "scheduler.kind",
    "launcher": "scheduler.launcher",
}
"""Kind of plugin → the key that names one."""
PATHS: dict[str, tuple[str, ...]] = {
    "data": ("path", "scratch"),
    "framework": ("folder", "operations", "python"),
    "free_level": ("folder",),
    "custom_class": ("validation_targets",),
}
"""Section → its keys that are paths; a program's name without a folder is none."""
FOLDER_USERS: dict[str, tuple[str, ...]] = {
    "framework": ("command",),
    "free_level": ("model", "optimizer", "loss"),
}
"""Section with a `folder` → keys that need it; its default is the configuration file's folder."""
SITE_OPTIONS = frozenset(
    {
        "scheduler.max_retries", "scheduler.poll_seconds", "scheduler.patience_minutes",
        "scheduler.follow", "scheduler.overdue_minutes",
        "slurm.partition", "slurm.account", "slurm.qos", "slurm.time_limit", "slurm.constraint",
        "slurm.reservation", "slurm.exclude", "slurm.memory", "slurm.gpu_type", "slurm.python",
        "slurm.sbatch", "slurm.srun", "slurm.setup", "slurm.cpu_bind",
        "slurm.checkpoint_signal_seconds", "slurm.barrier_seconds",
        "grid_engine.queue", "grid_engine.project", "grid_engine.time_limit", "grid_engine.qsub",
        "grid_engine.setup", "grid_engine.python",
    }
)  # fmt: skip
"""Options that a resumed run may change: where and how its jobs run, not what they train."""


def load(path: Path | None = None, *, overrides: dict[str, Any] | None = None) -> Config:
    """Load and validate the file; `overrides` (dotted key → value) take precedence."""
    overrides = overrides or {}
    data: dict[str, Any] = {} if path is None else _read(path)
    _resolve_paths(data, base=Path() if path is None else path.parent)
    for key, value in overrides.items():
        _set(data, key, value)
    _resolve_paths(data, base=Path())
    try:
        config = decode(Config, data)
    except SchemaError as error:
        overridden = (error.key or "").partition("[")[0] in overrides
        source = None if overridden else path
        raise ConfigError(
            f"{source or 'the configuration'}: {_with_section(error)}",
            key=error.key,
            value=error.value,
            path=source,
        ) from error
    _check_names(config)
    return config


def changed_site_options(path: Path, overrides: dict[str, Any]) -> Config:
    """Load a run's configuration with other site options; refuse every other option."""
    for key, value in overrides.items():
        if key not in SITE_OPTIONS:
            raise setting_error(
                key,
                value,
                "fixed when the run was planned.",
                f"Start a new run; `resume --set` changes {', '.join(sorted(SITE_OPTIONS))}.",
            )
    return load(path, overrides=overrides)


def parse_assignment(text: str) -> tuple[str, Any]:
    """Parse `key=value` of --set; the value is TOML, a bare word is text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            f"--set {text}: expected key=value,", value=text, remedy="for example ensemble.size=4"
        )
    try:
        return key.strip(), parse_toml(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
    except UnsafeTextError as error:
        raise ConfigError(f"--set {key.strip():.80}: {error}.", key=key.strip()) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_text(path, limit=MAX_TOML_BYTES))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(
            f"{path}: no such file.", path=path, remedy="`ai500 init` writes one."
        ) from error
    except InputError as error:
        remedy = "`ai500 init` writes an example."
        raise ConfigError(str(error), path=path, remedy=remedy) from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}", path=path) from error
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}", path=path) from error


def _with_section(error: SchemaError) -> str:
    """Suggest the section of a misplaced key: `epochs` is `train.epochs`."""
    name = (error.key or "").rpartition(".")[2]
    same_name = [
        key
        for key, _, _ in documented_keys()
        # A class of one's own repeats names of [train], which are meant more often.
        if key.endswith(f".{name}") and not key.startswith("custom_class.")
    ]
    if not same_name or not isinstance(error, UnknownKeyError):
        return str(error)
    return f"{error.key}: unknown key; did you mean {' or '.join(map(repr, same_name))}?"


def _resolve_paths(data: dict[str, Any], *, base: Path) -> None:
    """Make paths absolute: those of the file relative to it, others to the working folder."""
    for name, users in FOLDER_USERS.items():
        content = data.get(name)
        if isinstance(content, dict) and any(content.get(key) for key in users):
            content.setdefault("folder", ".")
    for name, keys in PATHS.items():
        section = data.get(name)
        if not isinstance(section, dict):
            continue
        for key in keys:
            path = section.get(key)
            # A leading variable is expanded on the node, and a program's name looked up there.
            if not isinstance(path, str) or path[:1] in ("", "$"):
                continue
            if key != "python" or "/" in path:
                section[key] = str((base / path).absolute())


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise ConfigError(f"{key}: {section!r} is not a section", key=key, value=value)
    data[last] = value


def _check_names(config: Config) -> None:
    for kind, key in PLUGIN_KEYS.items():
        section, _, last = key.rpartition(".")
        name = getattr(getattr(config, section) if section else config, last)
        if name is not None:
            plugins.check(kind, name, key=key)
    classes = plugins.load("workload", config.workload).problem_classes
    if not classes and config.custom_class.name is None:
        raise ConfigError(
            f"workload = {config.workload!r} has no registered class.",
            key="custom_class.name",
            remedy="Define one in [custom_class].",
        )
    if classes and config.problem_class not in classes:
        raise setting_error(
            "problem_class",
            config.problem_class,
            f"no such class of {config.workload};",
            nearest(config.problem_class, list(classes)),
        )
    if config.train.precision is not None:
        precision.check_name(config.train.precision)
