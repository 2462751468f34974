"""The run folder's scores and findings, recomputed from its events at any time. Needs no torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

from ai500.automl.history import History
from ai500.automl.rules import SEARCH_RULES, read_search_evidence, search_facts
from ai500.automl.search_score import mean_of_searches
from ai500.automl.trial_score import score_search
from ai500.bagging.score import score_trial
from ai500.core import events
from ai500.core.errors import JobError
from ai500.core.events import Event
from ai500.meters.log import read_meters
from ai500.metrics.trials import kept_trials, mean_of_trials, variation
from ai500.records import Plan, Score, TrialScore, run_folder
from ai500.records.findings import Judgement
from ai500.records.run_folder import RunFolder
from ai500.rules.evidence import Evidence, evidence_of, reference_class
from ai500.rules.facts import ensemble_facts
from ai500.rules.judgement import judge
from ai500.rules.layers import Level
from ai500.rules.registry import ENSEMBLE_RULES


def score_run(run: RunFolder) -> Score:
    """The run's score and findings, recomputed from the events and written down."""
    plan, told, score = computed(run)
    for one in score.trials:
        run_folder.write(run.trial(one.trial).score, one)
    run_folder.write(run.score, score)
    judgement = judge_evidence(_evidence(run, plan, told, score))
    run_folder.write(run.findings, judgement.findings)
    run_folder.write(run.judgement, judgement)
    return score


def judge_run(
    run: RunFolder, *, level: Level = "hardware", rules: str | None = None
) -> tuple[Score, Judgement]:
    """Recompute the score and judge the run by a version of the rule set; write nothing."""
    evidence = run_evidence(run)
    return evidence.score, judge_evidence(evidence, level=level, version=rules)


def run_evidence(run: RunFolder) -> Evidence:
    """Read the evidence of a run, with the score recomputed from its events."""
    return _evidence(run, *computed(run))


def judge_evidence(
    evidence: Evidence, *, level: Level = "hardware", version: str | None = None
) -> Judgement:
    """Judge a run by the rules of its program."""
    rules = ENSEMBLE_RULES if evidence.reference.search is None else SEARCH_RULES
    return judge(evidence, rules=rules, level=level, version=version)


def _evidence(run: RunFolder, plan: Plan, told: Sequence[Event], score: Score) -> Evidence:
    if reference_class(plan).search is None:
        return evidence_of(run, plan=plan, score=score, events=told, read_facts=ensemble_facts)
    return evidence_of(
        run,
        plan=plan,
        score=score,
        events=told,
        read_facts=search_facts,
        read_program_evidence=read_search_evidence,
    )


def computed(run: RunFolder) -> tuple[Plan, list[Event], Score]:
    """The run's score from its events; nothing is written."""
    plan = run_folder.read(Plan, run.plan)
    told = list(events.read(run.events))
    results = [event.get("trial") for event in told if event["event"] == "aggregate"]
    if not results:
        raise JobError(f"{run.path} has no finished trial yet: `ai500 resume {run.path}`.")
    try:
        numbers = _numbers(results, planned=plan.trials)
        trials = [score_of_trial(run, plan, told, number) for number in numbers]
        _check_finite(trials)
        return plan, told, _of_run(plan, trials, least_runs=reference_class(plan).least_runs)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise JobError(f"{run.events} is damaged: {error!r}. Is there a backup?") from error


def score_of_trial(run: RunFolder, plan: Plan, told: Sequence[Event], number: int) -> TrialScore:
    """One trial's score: of an ensemble from its events, of a search also from its histories."""
    trial = run.trial(number)
    meters = read_meters(trial.meters)
    if plan.search is None:
        return score_trial(plan, told, trial=number, meters=meters)
    history = History(trial.members)
    return score_search(plan, told, history=history, trial=number, meters=meters)


def _of_run(plan: Plan, trials: Sequence[TrialScore], *, least_runs: int) -> Score:
    """The mean of the kept trials, and of a search's own figures."""
    score = mean_of_trials(trials, least_runs=least_runs)
    if plan.search is None:
        return score
    kept = [one.search for one in kept_trials(trials, least_runs=least_runs) if one.search]
    all_of_them = [one.search.operations_to_target for one in trials if one.search]
    return dataclasses.replace(
        score, search=mean_of_searches(kept, variation=variation(all_of_them))
    )


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
