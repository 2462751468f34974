"""AIPerf's rules: each has an example that keeps it and one that breaks it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ai500.automl.history import EXHAUSTED, Candidate, Presence, Unreadable
from ai500.automl.rules import SEARCH_RULES, SearchEvidence
from ai500.pipeline import scoring
from ai500.records import InitialNetwork
from ai500.records.findings import Judgement
from ai500.rules.evidence import Evidence, TrialEvidence
from ai500.rules.judgement import judge as judge_by
from ai500.workloads.automl import CLASSES
from ai500.workloads.models.architecture import initial_architecture
from tests.support.synthetic_search import SearchShape, write_synthetic_search

Change = Callable[[Evidence], Evidence]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A search of the real class that no rule objects to."""
    shape = SearchShape(workers=2, trials=3, epoch_seconds=4.0)
    run = write_synthetic_search(tmp_path_factory.mktemp("search") / "run", shape)
    return scoring.run_evidence(run)


@pytest.fixture
def clean(recorded: Evidence) -> Evidence:
    """A copy to change at will."""
    return copy.deepcopy(recorded)


def judge(evidence: Evidence) -> Judgement:
    return judge_by(evidence, rules=SEARCH_RULES)


def searched(trial: TrialEvidence) -> SearchEvidence:
    assert isinstance(trial.program_evidence, SearchEvidence)
    return trial.program_evidence


def on_trials(**changes: Any) -> Change:
    def change(evidence: Evidence) -> Evidence:
        trials = tuple(replace(trial, **changes) for trial in evidence.score.trials)
        return replace(evidence, score=replace(evidence.score, trials=trials))

    return change


def on_searches(**changes: Any) -> Change:
    def change(evidence: Evidence) -> Evidence:
        trials = tuple(
            replace(trial, search=trial.search and replace(trial.search, **changes))
            for trial in evidence.score.trials
        )
        return replace(evidence, score=replace(evidence.score, trials=trials))

    return change


def candidates(edit: Callable[[Candidate], Candidate], *, model: str) -> Change:
    """One model of the first trial, recorded otherwise."""

    def change(evidence: Evidence) -> Evidence:
        history = searched(evidence.trials[0]).history
        history.models[model].candidate = edit(history.models[model].candidate)
        return evidence

    return change


def with_recorded(*path: str, value: Any) -> Change:
    def change(evidence: Evidence) -> Evidence:
        for member in evidence.members:
            place = member.effective
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
        return evidence

    return change


def terms(**changes: Any) -> Change:
    def change(evidence: Evidence) -> Evidence:
        assert evidence.plan.search is not None
        search = replace(evidence.plan.search, **changes)
        return replace(evidence, plan=replace(evidence.plan, search=search))

    return change


def lines_swapped(evidence: Evidence) -> Evidence:
    search = searched(evidence.trials[0])
    search.lines[3], search.lines[4] = search.lines[4], search.lines[3]
    return evidence


def a_line_is_spoiled(evidence: Evidence) -> Evidence:
    history = searched(evidence.trials[0]).history
    next(iter(history._readers.values())).unreadable.append(Unreadable(0, 7, "no JSON"))
    return evidence


@dataclass(frozen=True)
class Violation:
    """For each rule: a violation, the message, and the other rules that it breaks too."""

    change: Change
    says: str
    also: frozenset[str] = field(default_factory=frozenset)


OTHER_START = initial_architecture(InitialNetwork("basic", (2, 1), 8), classes=10)
SMOKE_START = CLASSES["smoke"].search_settings.initial
UNCOUNTED = "operations of the architectures"
V = Violation
VIOLATIONS: dict[str, Violation] = {
    "least time": V(on_trials(seconds=60.0), "searched for 60.0 s, the least time of the class"),
    "largest error": V(
        on_trials(ensemble_quality=0.6), "error is 0.6000, the largest of the class is 0.4"
    ),
    "at least fp16": V(
        with_recorded("numerics", "precision", value="fp8"), "trained in fp8",
        frozenset({"chosen precision"}),
    ),
    "initial architecture": V(
        candidates(lambda c: replace(c, digest=OTHER_START.digest), model="000-0001"),
        "the class's architecture is", frozenset({UNCOUNTED}),
    ),
    "network morphism": V(
        candidates(lambda c: replace(c, parent="009-0001"), model="001-0003"),
        "parent 009-0001 of 001-0003 is in no history",
    ),
    "tuned from the fifth round": V(
        candidates(lambda c: replace(c, tuned=False), model="000-0005"),
        "000-0005 of round 5 was not tuned",
    ),
    "fixed search space": V(terms(kernel_sizes=(3,)), "kernel sizes: 3, the class has 3, 5"),
    "changed defaults": V(
        with_recorded("hyperparameters", "momentum", value=0.8),
        "momentum: 0.8, the reference has 0.9",
    ),
    UNCOUNTED: V(
        candidates(
            lambda c: replace(c, operations=replace(c.operations, forward_per_sample=10**12)),
            model="000-0002",
        ),
        "000-0002 is counted with 1e+12", frozenset({"fixed search space"}),
    ),
    "work in order": V(lines_swapped, "not in the order they were written"),
    "readable histories": V(a_line_is_spoiled, "line 7 of history.jsonl is skipped"),
    "lost models": V(on_searches(lost=2), "2 model(s) were lost"),
}  # fmt: skip


def test_a_clean_search_has_no_findings(clean: Evidence) -> None:
    judgement = judge(clean)
    assert judgement.findings == ()
    assert not judgement.broken


@pytest.mark.parametrize("name", [rule.name for rule in SEARCH_RULES if rule.program])
def test_each_rule_finds_its_violation_and_no_other_does(clean: Evidence, name: str) -> None:
    assert name in VIOLATIONS, f"rule {name!r} has no violating example in this file"
    violation = VIOLATIONS[name]
    judgement = judge(violation.change(clean))
    assert {finding.rule for finding in judgement.findings} == {name} | violation.also
    violations = [finding for finding in judgement.findings if finding.rule == name]
    assert violation.says in violations[0].message


def test_a_search_that_had_nothing_left_to_try_says_what_to_change(clean: Evidence) -> None:
    lines = searched(clean.trials[0]).lines
    lines.append(replace(lines[-1], entry=Presence("end", EXHAUSTED)))
    ended = on_trials(seconds=60.0)(clean)
    advice = [finding.message for finding in judge(ended).findings if finding.rule == "least time"]
    assert "automl.max_growth" in advice[0]
    assert all("automl.minutes" in message for message in advice[1:])


SAME_AS_PARENT = "001-0004"


@pytest.mark.parametrize(
    ("change", "rule", "says"),
    [
        (candidates(lambda c: replace(c, steps_per_epoch=10**6), model="000-0001"), UNCOUNTED,
         "has epochs of"),
        (candidates(lambda c: replace(c, validation_samples=10**6), model="000-0001"), UNCOUNTED,
         "is validated on 1000000 samples"),
        (candidates(lambda c: replace(c, architecture=c.architecture[3:]), model="000-0001"),
         UNCOUNTED, "no architecture that can be counted"),
        (candidates(lambda c: replace(c, tuned=True), model="000-0002"),
         "tuned from the fifth round", "was tuned"),
        (candidates(lambda c: replace(c, moves=()), model="000-0003"), "network morphism",
         "is no morphism of its parent"),
        (candidates(lambda c: replace(c, parent=SAME_AS_PARENT), model=SAME_AS_PARENT),
         "network morphism", "is no morphism of its parent"),
        (terms(patience=99), "changed defaults", "patience: 99, the class has 3"),
        (candidates(lambda c: replace(c, trial=3), model="000-0005"),
         "tuned from the fifth round", "is trial 3 of its architecture, of 2"),
        (candidates(lambda c: replace(c, trial=2), model="000-0003"),
         "tuned from the fifth round", "is trial 2 of its architecture, of 1"),
        (candidates(
            lambda c: replace(c, operations=replace(c.operations, convention="own")),
            model="000-0002"),
         UNCOUNTED, "no architecture that can be counted"),
        (terms(max_growth=9.0), "fixed search space", "max growth: 9, the class has 3"),
        (terms(hyperparameter_trials=1), "fixed search space", "hyperparameter trials: 1"),
        (terms(initial=replace(SMOKE_START, version="v1")), "fixed search space", "v1"),
        (candidates(
            lambda c: replace(c, operations=replace(c.operations, forward_per_sample=10**9)),
            model="000-0002"),
         "fixed search space", "the class allows 3"),
    ],
)  # fmt: skip
def test_what_a_submitter_might_try(clean: Evidence, change: Change, rule: str, says: str) -> None:
    violations = [finding for finding in judge(change(clean)).findings if finding.rule == rule]
    assert any(says in finding.message for finding in violations)


def test_rules_of_ensembles_are_not_asked_about_a_search(clean: Evidence) -> None:
    asked = {search_rule.name for search_rule in SEARCH_RULES}
    assert {"same model", "own bootstraps", "same epochs", "whole epochs"}.isdisjoint(asked)
    layers = {layer.layer: layer for layer in judge(clean).layers}
    assert ("initial architecture", *2 * [layers[7].facts[0][1]]) == layers[7].facts[0]
    assert {fact for fact, _, _ in layers[8].facts} >= {"optimizer", "momentum", "most epochs"}
