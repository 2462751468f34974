"""The run folder's scores and findings, recomputed from its events at any time. Needs no torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

from ai500.core import events
from ai500.core.errors import JobError
from ai500.core.events import Event
from ai500.pipeline.programs import program_of
from ai500.records import Plan, Score, TrialScore, run_folder
from ai500.records.findings import Judgement
from ai500.records.run_folder import RunFolder
from ai500.rules import checks as checks  # registers the rules
from ai500.rules.evidence import evidence_of, reference_class
from ai500.rules.layers import Level, judge


def score_run(run: RunFolder) -> Score:
    """The run's score and findings, recomputed from the events and written down."""
    plan, told, score = computed(run)
    for one in score.trials:
        run_folder.write(run.trial(one.trial).score, one)
    run_folder.write(run.score, score)
    judgement = judge(evidence_of(run, plan=plan, score=score, events=told))
    run_folder.write(run.findings, judgement.findings)
    run_folder.write(run.judgement, judgement)
    return score


def judge_run(
    run: RunFolder, *, level: Level = "hardware", rules: str | None = None
) -> tuple[Score, Judgement]:
    """The score recomputed, and what a rule set says at a level; nothing is written."""
    plan, told, score = computed(run)
    evidence = evidence_of(run, plan=plan, score=score, events=told)
    return score, judge(evidence, level=level, rules=rules)


def computed(run: RunFolder) -> tuple[Plan, list[Event], Score]:
    """The run's score from its events; nothing is written."""
    plan = run_folder.read(Plan, run.plan)
    told = list(events.read(run.events))
    results = [event.get("trial") for event in told if event["event"] == "aggregate"]
    if not results:
        raise JobError(f"{run.path} has no finished trial yet: `ai500 resume {run.path}`.")
    try:
        numbers = _numbers(results, planned=plan.trials)
        program = program_of(plan)
        trials = [
            program.score_trial(plan, told, run.trial(number), number=number) for number in numbers
        ]
        _check_finite(trials)
        return plan, told, program.score_run(trials, least_runs=reference_class(plan).least_runs)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise JobError(f"{run.events} is damaged: {error!r}. Is there a backup?") from error


def _numbers(results: Sequence[Any], *, planned: int) -> list[int]:
    """The trials that have a result, in order."""
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


def state_of(run: RunFolder, plan: Plan) -> Literal["running", "finished", "stopped"]:
    """Finished is a run whose every planned trial is scored, with all its members."""
    if run.holder() is not None:
        return "running"
    files = [run.trial(number).score for number in range(1, plan.trials + 1)]
    whole = all(file.exists() and run_folder.read(TrialScore, file).complete for file in files)
    return "finished" if whole and run.score.exists() else "stopped"
