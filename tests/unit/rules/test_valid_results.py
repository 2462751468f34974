"""Runs as the class prescribes them are valid, whatever the number of their trials."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ai500.core import plugins
from ai500.inventory.description import Processors
from ai500.inventory.peaks import known_instructions
from ai500.pipeline import scoring
from ai500.pipeline.programs import program_of
from ai500.records.run_folder import RunFolder
from ai500.rules.evidence import Evidence
from ai500.workloads.protocol import load_workload
from tests.support.synthetic_run import official_shape, write_synthetic_run
from tests.support.synthetic_search import SearchShape, write_synthetic_search

CLASSES = [
    # The rules of a search count every architecture of every trial again: seconds for each number.
    pytest.param(workload, name, marks=pytest.mark.long if workload == "automl" else ())
    for workload in plugins.BUILT_IN["workload"]
    for name in load_workload(workload).problem_classes
]
TRIALS = range(3, 16)


def official_run(path: Path, workload: str, name: str) -> RunFolder:
    """A run of a registered class with the largest number of trials."""
    definition = load_workload(workload).problem_classes[name]
    if definition.search is None:
        shape = official_shape(workload, name, trials=TRIALS[-1])
        return write_synthetic_run(path, shape)
    search = definition.search
    rounds = [
        search.epochs_of(number, epochs=definition.reference.epochs) for number in range(1, 7)
    ]
    # Seven models of a worker, whatever the class's time and epochs: enough for its target.
    seconds = 60 * search.minutes / sum(rounds)
    return write_synthetic_search(
        path,
        SearchShape(
            name=name,
            workers=1,
            trials=TRIALS[-1],
            minutes=search.minutes,
            epoch_seconds=seconds,
        ),
    )


def on_a_large_node(evidence: Evidence) -> Evidence:
    """The same run on nodes whose processors can reach the rate of its synthetic search."""
    processors = Processors(cores=10_000, threads=10_000, instructions=known_instructions())
    trials = [
        dataclasses.replace(
            trial,
            nodes=[
                (member, dataclasses.replace(node, processors=processors))
                for member, node in trial.nodes
            ],
        )
        for trial in evidence.trials
    ]
    return dataclasses.replace(evidence, trials=trials)


def of_trials(evidence: Evidence, count: int) -> Evidence:
    """The same run, had it ended after so many trials."""
    plan = dataclasses.replace(evidence.plan, trials=count)
    return dataclasses.replace(
        evidence,
        plan=plan,
        score=program_of(plan).score_run(
            evidence.score.trials[:count], required_runs=evidence.reference.required_runs
        ),
        trials=evidence.trials[:count],
        events=[event for event in evidence.events if event["trial"] <= count],
    )


@pytest.mark.parametrize(("workload", "name"), CLASSES)
def test_a_run_as_prescribed_is_valid_with_any_number_of_trials(
    tmp_path: Path, workload: str, name: str
) -> None:
    whole = scoring.run_evidence(official_run(tmp_path / "run", workload, name))
    if whole.reference.search is not None:
        whole = on_a_large_node(whole)
    reference = whole.reference
    expected: dict[int, set[str]] = {}
    broken: dict[int, set[str]] = {}
    for count in TRIALS:
        judgement = scoring.judge_evidence(of_trials(whole, count))
        broken[count] = {finding.rule for finding in judgement.violations}
        expected[count] = {
            *(["measured target"] if reference.provisional_target else []),
            *(["enough trials"] if count < reference.required_runs else []),
        }
    assert broken == expected
