"""What a rerun takes from a submission, and where this system is another one."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from ai500 import config as configuration
from ai500.config import Config, TrainConfig
from ai500.core.errors import ConfigError
from ai500.records import Hyperparameters, Plan, System, run_folder
from ai500.records.run_folder import RunFolder
from ai500.rules.evidence import reference_class
from ai500.submission.manifest import MANIFEST, Submission, SubmissionError

TAKEN = ("run", "ensemble", "parallel", "communication", "system", "automl")
"""Sections of a stranger's configuration that a rerun takes; hyper-parameters are the plan's, which
the rules hold against what trained."""
OWN = ("data", "scheduler", "slurm", "container")
"""Sections that name files and programs of this system, or hand lines to its shell: never a
stranger's."""


def rerun_config(
    submission: Submission, *, local: Path | None, runs: int | None, own: dict[str, Any]
) -> Config:
    """The submission's configuration, with this system's own way to its data and nodes."""
    plan = run_folder.read(Plan, submission.run.plan)
    wanted: dict[str, Any] = {"workload": plan.workload, "problem_class": plan.problem_class}
    wanted |= dict(_taken(submission.run.config))
    wanted |= dict(_trained(plan))
    # What was left out there followed from that system; here it must not follow from this one.
    wanted |= {
        "ensemble.size": plan.ensemble_size,
        "parallel.degree": plan.parallel_degree,
        "system.scale": plan.system_scale,
        "run.trials": runs or _least_runs(plan),
        "run.seed": _seed(submission),
    }
    for key in own:
        _refuse_foreign(key, "--set")
    for key in _keys(local) if local is not None else ():
        _refuse_foreign(key, str(local))
    return configuration.load(local, overrides=wanted | own)


def differences_between(claimed: RunFolder, repeated: RunFolder) -> Iterator[str]:
    """What of the two systems is not the same, as far as both tell."""
    first, second = (run_folder.read(System, run.system) for run in (claimed, repeated))
    for name in ("cpu", "cores", "memory_bytes", "accelerators", "operating_system", "kernel"):
        ours, theirs = getattr(second, name), getattr(first, name)
        if ours != theirs:
            yield f"{name.replace('_', ' ')}: {_shown(theirs)} there, {_shown(ours)} here"
    for name in sorted({*first.libraries, *second.libraries}):
        ours, theirs = second.libraries.get(name), first.libraries.get(name)
        if ours != theirs:
            yield f"{name}: {_shown(theirs)} there, {_shown(ours)} here"
    there, here = (len(run_folder.read(Plan, run.plan).nodes) for run in (claimed, repeated))
    if there != here:
        yield f"nodes: {there} there, {here} here"


def _taken(path: Path) -> Iterator[tuple[str, Any]]:
    for section, content in tomllib.loads(path.read_text(encoding="utf-8")).items():
        if section not in TAKEN:
            continue
        if not isinstance(content, dict):
            raise SubmissionError(f"{path.name}: {section} is not a section.")
        yield from ((f"{section}.{key}", value) for key, value in content.items())


def _trained(plan: Plan) -> Iterator[tuple[str, Any]]:
    """The plan's hyper-parameters; what the class has is left out, as nobody can set it all."""
    reference = reference_class(plan).reference_at(plan.parallel_degree)
    settable = {field.name for field in fields(TrainConfig)}
    for field in fields(Hyperparameters):
        value = getattr(plan.hyperparameters, field.name)
        if value == getattr(reference, field.name):
            continue
        if field.name not in settable:
            raise SubmissionError(f"plan.json: {field.name} = {value} can't be set for a rerun.")
        yield f"train.{field.name}", value


def _keys(path: Path) -> Iterator[str]:
    try:
        yield from tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # `configuration.load` says it better


def _refuse_foreign(key: str, where: str) -> None:
    if key.partition(".")[0] not in OWN:
        raise ConfigError(
            f"{where}: {key} of a rerun is the submission's own, or it would repeat something "
            f"else. Of this system are only {', '.join(OWN)}."
        )


def _least_runs(plan: Plan) -> int:
    return reference_class(plan).least_runs


def _seed(submission: Submission) -> int:
    """Trials of its own, or quality would repeat by construction; and not for anyone to choose."""
    digest = hashlib.sha256((submission.run.path / MANIFEST).read_bytes())
    return int.from_bytes(digest.digest()[:4], "big")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "not known" if value is None else str(value)
