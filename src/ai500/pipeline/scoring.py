"""Score, findings and report of a run folder, from its records at any time. Needs no torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from ai500.core import events, schema
from ai500.core.errors import JobError, RunFolderError
from ai500.core.events import Event
from ai500.core.schema import SchemaError
from ai500.core.shell import quoted
from ai500.operations.shipped import shipped_model, shipped_operations
from ai500.pipeline.programs import program_of, program_of_class
from ai500.records import (
    EnsembleResult,
    Operations,
    Plan,
    Score,
    TrainRecord,
    TrialScore,
    run_folder,
)
from ai500.records.findings import Judgement
from ai500.records.run_folder import RunFolder
from ai500.report import run_report
from ai500.report.run_data import RunData
from ai500.report.run_report import ProgramReport
from ai500.rules.evidence import Evidence, evidence_of, reference_class
from ai500.rules.judgement import judge
from ai500.rules.layers import Level


def score_run(run: RunFolder) -> Score:
    """Recompute the run's score and findings from its events, and write them."""
    return scored_evidence(run).score


def scored_evidence(run: RunFolder) -> Evidence:
    """Score the run and judge it, write both, and return the evidence that was read for it."""
    evidence = run_evidence(run)
    _require_recorded_results(run, evidence.events)
    score = evidence.score
    for trial in score.trials:
        run_folder.write(run.trial(trial.trial).score, trial)
    run_folder.write(run.score, score)
    judgement = judge_evidence(evidence)
    run_folder.write(run.findings, judgement.findings)
    run_folder.write(run.judgement, judgement)
    return evidence


def _require_recorded_results(run: RunFolder, recorded: Sequence[Event]) -> None:
    """Refuse results of the log that differ from the sealed records that aggregation wrote."""
    results = {e["trial"]: e["result"] for e in recorded if e["event"] == "aggregate"}
    for number, result in results.items():
        file = run.trial(number).ensemble
        if file.exists() and schema.encode(run_folder.read(EnsembleResult, file)) != result:
            raise RunFolderError(
                f"{run.events}: the result of trial {number} differs from {file}.",
                key="aggregate",
                value=result,
                path=run.events,
                remedy=f"To aggregate again: rm {quoted(file)} && ai500 resume {quoted(run.path)}",
            )


def score_by_convention(run: RunFolder, convention: str) -> Score:
    """Recompute the score with operations counted by another convention [D20]; write nothing.

    The official score is by the convention of the events, and is not changed.
    """
    plan = run_folder.read(Plan, run.plan)
    if program_of(plan).name != "ensemble":
        raise _not_counted(run, convention, "a search counts each model as AIPerf does")
    recorded = _recorded(run)
    for event in recorded:
        if event["event"] == "operations" and event.get("convention") != convention:
            event.update(schema.encode(_counted(run, plan, event, convention)))
    return _score(run, plan, recorded)


def _counted(run: RunFolder, plan: Plan, event: Event, convention: str) -> Operations:
    """Return a member's operations by a convention: recorded by its worker, or shipped with the
    package for the model that it recorded."""
    member = run.trial(event["trial"]).member(event["member"])
    record = run_folder.read(TrainRecord, member.record)
    for operations in record.other_conventions:
        if operations.convention == convention:
            return operations
    shipped = shipped_model(plan.workload, plan.problem_class)
    graph = record.effective.get("model", {}).get("graph_sha256")
    same_model = shipped is not None and shipped.graph_sha256 == graph
    counted = shipped_operations(plan.workload, plan.problem_class, convention)
    if same_model and counted is not None:
        return counted
    raise _not_counted(run, convention, f"{member.record} has no such count")


def _not_counted(run: RunFolder, convention: str, reason: str) -> JobError:
    return JobError(
        f"{run.path} was not counted by convention {convention}: {reason}.",
        key="convention",
        value=convention,
        path=run.path,
        remedy="Leave --convention out for the official score.",
    )


def judge_run(
    run: RunFolder, *, level: Level = "hardware", rules: str | None = None
) -> tuple[Score, Judgement]:
    """Recompute the score and judge the run by a version of the rule set; write nothing."""
    evidence = run_evidence(run)
    return evidence.score, judge_evidence(evidence, level=level, version=rules)


def judge_evidence(
    evidence: Evidence, *, level: Level = "hardware", version: str | None = None
) -> Judgement:
    """Judge a run by the rules of its program."""
    rules = program_of_class(evidence.reference).rules
    return judge(evidence, rules=rules, level=level, version=version)


def run_evidence(run: RunFolder) -> Evidence:
    """Read the evidence of a run, with the score recomputed from its events."""
    plan, recorded, score = score_from_events(run)
    program = program_of(plan)
    return evidence_of(
        run,
        plan=plan,
        score=score,
        events=recorded,
        read_facts=program.facts,
        read_program_evidence=program.evidence,
    )


def score_from_events(run: RunFolder) -> tuple[Plan, list[Event], Score]:
    """Compute the run's score from its events; write nothing."""
    plan = run_folder.read(Plan, run.plan)
    recorded = _recorded(run)
    return plan, recorded, _score(run, plan, recorded)


def _recorded(run: RunFolder) -> list[Event]:
    """Read the run's events; raise JobError before its first trial has a result."""
    recorded = list(events.read_checked(run.events))
    if not any(event["event"] == "aggregate" for event in recorded):
        raise JobError(
            f"{run.path} has no finished trial yet.",
            path=run.path,
            remedy=f"Run `ai500 resume {quoted(run.path)}`.",
        )
    return recorded


def _score(run: RunFolder, plan: Plan, recorded: list[Event]) -> Score:
    """Compute the score of the trials that have a result."""
    results = [event.get("trial") for event in recorded if event["event"] == "aggregate"]
    program = program_of(plan)
    try:
        trials = [
            program.score_trial(run, plan, number, events=recorded)
            for number in _numbers(results, planned=plan.trials)
        ]
        _check_finite(trials)
        score = program.score_run(trials, required_runs=reference_class(plan).required_runs)
    except SchemaError as error:
        raise RunFolderError(
            f"{run.events}: {error}",
            key=error.key,
            value=error.value,
            path=run.events,
            remedy=events.remedy(run.events),
        ) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise JobError(
            f"{run.events} is damaged: {error!r}.",
            path=run.events,
            remedy=events.remedy(run.events),
        ) from error
    return score


def _numbers(results: Sequence[Any], *, planned: int) -> list[int]:
    """Return the numbers of the trials that have a result, in order."""
    for number in results:
        if type(number) is not int or not 1 <= number <= planned:
            raise ValueError(f"a result of trial {number!r}; planned are {planned}")
    return sorted(set(results))


def _check_finite(trials: Sequence[TrialScore]) -> None:
    for trial in trials:
        for field in dataclasses.fields(TrialScore):
            value = getattr(trial, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{field.name} of trial {trial.trial} would be {value}")


def write_report(run: RunFolder, evidence: Evidence | None = None) -> None:
    """Write `report.html` from the run's records; those of the evidence are not read again."""
    run_report.write_report(run, program_report, evidence=evidence)


def program_report(run: RunData) -> ProgramReport:
    """Return the part of the report that depends on the program."""
    return program_of(run.plan).report(run)
