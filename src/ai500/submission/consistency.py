"""Contradictions between the records of a run: plan, trial, placement, jobs, tasks and members.

Every record is valid by itself when these compare them. The controller writes each from the ones
before it, so that a value that differs was changed afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from ai500.core.randomness import Stream, derive
from ai500.core.reading import parse_toml, read_text
from ai500.frameworks.protocol import OTHER_FRAMEWORKS
from ai500.metrics import equations
from ai500.pipeline.programs import program_of
from ai500.records import (
    OFFICIAL_CONVENTION,
    BootstrapRecord,
    JobRecord,
    Placement,
    Plan,
    Task,
    TrainRecord,
    TrialRecord,
    run_folder,
)
from ai500.records.run_folder import RunFolder
from ai500.rules.evidence import effective
from ai500.submission.archive import printable
from ai500.train.learning_rate import scaled_peak

FRAMEWORKS = ("pytorch", *OTHER_FRAMEWORKS)
LoggedJob = tuple[str, str, str]
"""Trial, member and id of a job."""
# Fields that a task has from the plan, under the same name.
PLANNED = (
    "workload", "definition", "hyperparameters", "parallel", "communication", "parallel_degree",
    "search", "framework", "own_code",
)  # fmt: skip


def contradicting_records(
    run: RunFolder, plan: Plan, trial: int, *, logged: Set[LoggedJob]
) -> Iterator[str]:
    """Yield the records of a trial that differ from the plan, or from each other.

    `logged` are the jobs that the controller's events name.
    """
    if trial == 1:
        yield from _configured(run, plan)
    folder = run.trial(trial)
    record = run_folder.read(TrialRecord, folder.trial)
    name = _name(run, folder.trial)
    yield from _differences(
        name, {"trial": record.trial, "seed": record.seed},
        {"trial": trial, "seed": derive(plan.seed, Stream.TRIAL, trial)},
    )  # fmt: skip
    yield from _placements(run, plan, trial, record)
    yield from _jobs(run, plan, trial, logged)
    bootstraps = {b.member: b for b in run_folder.read_all(BootstrapRecord, folder.bootstraps)}
    for member in range(plan.ensemble_size):
        files = folder.member(member)
        task = run_folder.read(Task, files.task)
        expected = _expected_task(plan, trial, record.seed, member, bootstraps.get(member), task)
        actual = {key: getattr(task, key) for key in expected}
        yield from _differences(_name(run, files.task), actual, expected)
        trained = run_folder.read(TrainRecord, files.record)
        yield from _differences(
            _name(run, files.record),
            {"member": trained.member, "on a CPU": "cpu" in trained.device.lower()},
            {"member": member, "on a CPU": plan.device == "cpu"},
        )
        # Without it `ai500 verify --predictions` could compare nothing.
        predicts = program_of(plan).trains_class_model and plan.framework.kind != "script"
        if predicts and not trained.validation_sha256:
            yield f"{_name(run, files.record)}: it has no SHA-256 of the member's predictions"
        framework = effective(trained, "framework", "name")
        if plan.framework.kind in FRAMEWORKS and framework is not None:
            yield from _differences(
                _name(run, files.record),
                {"framework": framework}, {"framework": plan.framework.kind},
            )  # fmt: skip


def _configured(run: RunFolder, plan: Plan) -> Iterator[str]:
    """Compare the plan with the configuration that run.sh repeats, and with its own settings."""
    # One that can't be read was reported when the submission was opened.
    config = parse_toml(read_text(run.config)) if run.config.exists() else {}
    expected = {"workload": plan.workload, "problem_class": plan.definition.name}
    if plan.definition.custom is None:
        given = {key: config.get(key, value) for key, value in expected.items()}
        yield from _differences(_name(run, run.config), given, expected)
    hyper, batch = plan.hyperparameters, plan.global_batch_size
    derived = {
        "learning_rate": scaled_peak(hyper, global_batch_size=batch),
        "steps_per_epoch": plan.definition.train_samples // batch,
    }
    if plan.operations is not None and program_of(plan).trains_class_model:
        derived["apc"] = equations.apc(
            plan.operations.per_sample, batch_size=batch, ensemble_size=plan.ensemble_size
        )
    for key, value in derived.items():
        planned = getattr(plan, key)
        if planned is not None and not math.isclose(planned, value, rel_tol=1e-9):
            yield from _differences(_name(run, run.plan), {key: planned}, {key: value})


def _expected_task(
    plan: Plan, trial: int, seed: int, member: int, bootstrap: BootstrapRecord | None, task: Task
) -> dict[str, Any]:
    expected = {name: getattr(plan, name) for name in PLANNED}
    expected |= {"trial": trial, "member": member, "seed": seed, "convention": OFFICIAL_CONVENTION}
    expected["entry_point"] = program_of(plan).entry_point
    if bootstrap is not None:
        expected["steps_per_epoch"] = bootstrap.drawn // plan.global_batch_size
        if task.bootstrap_sha256 is not None:  # older versions did not record it
            expected["bootstrap_sha256"] = bootstrap.sha256
    mapped = sum(len(share.slots) for share in plan.mapping[member].shares)
    if plan.cluster is None:  # a job of a cluster sees its own slots, numbered from 0
        slots = {(node.name, slot.index): slot for node in plan.nodes for slot in node.slots}
        shares = plan.mapping[member].shares
        expected["slots"] = tuple(
            slots[share.node, index] for share in shares for index in share.slots
        )
    elif len(task.slots) > mapped and plan.members_per_accelerator == 1:
        expected["slots"] = task.slots[:mapped]
    return expected


def _placements(run: RunFolder, plan: Plan, trial: int, record: TrialRecord) -> Iterator[str]:
    path = run.trial(trial).placement
    placements = run_folder.read_all(Placement, path)
    nodes = [placement.node for placement in placements]
    used = {share.node for mapping in plan.mapping for share in mapping.shares}
    known = {node.name for node in plan.nodes}
    if len(set(nodes)) < len(nodes) or not used <= set(nodes) <= known | used:
        yield f"{_name(run, path)}: its nodes are not those of plan.json, each once"
    for placement in placements:
        if placement.store_sha256 != record.store_sha256:
            yield (
                f"{_name(run, path)}: node {printable(placement.node)} has other data than "
                f"{_name(run, run.trial(trial).trial)}"
            )


def _jobs(run: RunFolder, plan: Plan, trial: int, logged: Set[LoggedJob]) -> Iterator[str]:
    """Compare jobs.json with the log of the controller, which submitted the jobs."""
    path = run.trial(trial).jobs
    jobs = run_folder.read_all(JobRecord, path)
    if sorted(job.member for job in jobs) != list(range(plan.ensemble_size)):
        yield f"{_name(run, path)}: not one job of each of {plan.ensemble_size} members"
    for job in jobs:
        if (str(trial), str(job.member), job.id) not in logged:
            yield (
                f"{_name(run, path)}: events.jsonl has no job {printable(job.id)} of member "
                f"{job.member}"
            )


def _differences(
    name: str, actual: Mapping[str, Any], expected: Mapping[str, Any]
) -> Iterator[str]:
    for key, value in expected.items():
        if actual[key] != value:
            yield (
                f"{name}: {key} is {printable(str(actual[key]))}, the other records give "
                f"{printable(str(value))}"
            )


def _name(run: RunFolder, path: Path) -> str:
    return path.relative_to(run.path).as_posix()
