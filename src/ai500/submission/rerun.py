"""Configuration of a rerun, from a submission and from this system; differences of systems."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ai500 import config as configuration
from ai500.config import Config, TrainConfig
from ai500.core.errors import ConfigError, InputError
from ai500.core.reading import parse_toml, read_text
from ai500.records import Hyperparameters, Plan, System, run_folder
from ai500.records.run_folder import RunFolder
from ai500.rules.evidence import reference_class
from ai500.submission.manifest import MANIFEST, Submission, SubmissionError

# Sections taken from the submission's configuration. Hyper-parameters are taken from the plan,
# which the rules compare with the records.
SUBMITTED_SECTIONS = ("run", "ensemble", "parallel", "communication", "system", "automl")
# Sections that name files and programs of this system, or contain lines for its shell: never taken
# from a submission, which is untrusted.
LOCAL_SECTIONS = ("data", "free_level", "scheduler", "slurm", "grid_engine", "container")
# The submission names its framework, this system the interpreter of it.
LOCAL_KEYS = ("framework.python",)


def rerun_config(
    submission: Submission, *, local: Path | None, runs: int | None, overrides: dict[str, Any]
) -> Config:
    """Return the submission's configuration with the local sections of this system."""
    plan = run_folder.read(Plan, submission.run.plan)
    settings: dict[str, Any] = {"workload": plan.workload, "problem_class": plan.problem_class}
    settings |= dict(_submitted_settings(submission.run.config))
    settings |= dict(_hyperparameters(plan))
    # Defaults follow from the system: those of the submission's system are set explicitly here.
    settings |= {
        "ensemble.size": plan.ensemble_size,
        "parallel.degree": plan.parallel_degree,
        "system.scale": plan.system_scale,
        "framework.kind": plan.framework.kind,
        "run.trials": runs or _required_runs(plan),
        "run.seed": _seed(submission),
    }
    for key in overrides:
        _require_local(key, "--set")
    for key in _sections(local) if local is not None else ():
        _require_local(key, str(local))
    config = configuration.load(local, overrides=settings | overrides)
    for part in plan.own_code.parts:
        # Code named by a submission is never imported: who repeats the run names a reviewed copy.
        if getattr(config.free_level, part) is None:
            raise ConfigError(
                f"the run trained with its submitter's own {part}, {getattr(plan.own_code, part)}.",
                key=f"free_level.{part}",
                remedy="Review the source in a member's record.json (effective.own_code), save it, "
                f"and name it: --set free_level.{part}=module:function",
            )
    return config


def members_config(
    submission: Submission, *, local: Path | None, overrides: dict[str, Any]
) -> Config:
    """Return the configuration of a rerun of members: the submission's own seed and trials.

    A member is repeated with its bootstrap, its order of samples and its initial weights.
    """
    plan = run_folder.read(Plan, submission.run.plan)
    config = rerun_config(submission, local=local, runs=plan.trials, overrides=overrides)
    return replace(config, run=replace(config.run, seed=plan.seed, trials=plan.trials))


def system_differences(claimed: RunFolder, repeated: RunFolder) -> Iterator[str]:
    """Yield the recorded values in which the systems of two runs differ."""
    systems = [run_folder.read(System, run.system) for run in (claimed, repeated)]
    values = {
        name.replace("_", " "): [getattr(system, name) for system in systems]
        for name in ("cpu", "cores", "memory_bytes", "accelerators", "operating_system", "kernel")
    }
    for name in sorted({name for system in systems for name in system.libraries}):
        values[name] = [system.libraries.get(name) for system in systems]
    values["nodes"] = [len(run_folder.read(Plan, run.plan).nodes) for run in (claimed, repeated)]
    for name, (submitted, local) in values.items():
        if submitted != local:
            yield f"{name}: {_format(submitted)} there, {_format(local)} here"


def _submitted_settings(path: Path) -> Iterator[tuple[str, Any]]:
    for section, content in parse_toml(read_text(path)).items():
        if section not in SUBMITTED_SECTIONS:
            continue
        if not isinstance(content, dict):
            raise SubmissionError(f"{path.name}: {section} is not a section.")
        yield from ((f"{section}.{key}", value) for key, value in content.items())


def _hyperparameters(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yield the plan's hyper-parameters that differ from the class's; not all can be set."""
    reference = reference_class(plan).reference_at(plan.parallel_degree)
    settable = {field.name for field in fields(TrainConfig)}
    for field in fields(Hyperparameters):
        value = getattr(plan.hyperparameters, field.name)
        if value == getattr(reference, field.name):
            continue
        if field.name not in settable:
            raise SubmissionError(f"plan.json: {field.name} = {value} can't be set for a rerun.")
        yield f"train.{field.name}", value


def _sections(path: Path) -> Iterator[str]:
    try:
        yield from parse_toml(read_text(path))
    except (OSError, ValueError, InputError):
        return  # `configuration.load` reports the error


def _require_local(key: str, source: str) -> None:
    if key not in LOCAL_KEYS and key.partition(".")[0] not in LOCAL_SECTIONS:
        raise ConfigError(
            f"{source}: {key} of a rerun is taken from the submission.",
            key=key,
            remedy=f"Set only {', '.join(LOCAL_KEYS)} and keys of {', '.join(LOCAL_SECTIONS)}.",
        )


def _required_runs(plan: Plan) -> int:
    return reference_class(plan).required_runs


def _seed(submission: Submission) -> int:
    """Derive a seed from the manifest: other trials than the claimed ones, and not selectable."""
    digest = hashlib.sha256((submission.run.path / MANIFEST).read_bytes())
    return int.from_bytes(digest.digest()[:4], "big")


def _format(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "not known" if value is None else str(value)
