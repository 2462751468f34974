"""Means over trials: kept trials, variations, energy, clocks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ai500.bagging.program import score_trial
from ai500.metrics.trials import mean_of_trials, variation
from ai500.records import Plan, TrialScore
from tests.support.trial_events import (
    trial_events,
    two_member_plan,
)


@pytest.fixture
def plan() -> Plan:
    return two_member_plan()


def test_the_run_is_the_mean_of_its_trials_with_them_in_it(plan: Plan) -> None:
    scored = score_trial(plan, trial_events(plan), trial=1)
    two = dataclasses.replace(scored, trial=2, flops=3 * scored.flops, time_to_target_seconds=None)
    run = mean_of_trials([scored, two], required_runs=3)
    assert run.flops == pytest.approx(2 * scored.flops)
    assert run.trials == (scored, two)
    assert run.kept_trials == (1, 2)
    assert run.time_to_target_seconds is None  # one of them never got there


def test_without_predictions_the_members_mean_stands_for_the_ensemble(plan: Plan) -> None:
    *events, result = trial_events(plan)
    penalties = []
    for ensemble, mean in ((0.75, 0.5), (None, 0.5), (None, 0.75), (0.5, 0.75)):
        changed = result["result"] | {"ensemble_quality": ensemble, "members_mean_quality": mean}
        scored = score_trial(plan, [*events, result | {"result": changed}], trial=1)
        assert scored.ensemble_quality == ensemble
        penalties.append(scored.penalty_coefficient)
    assert penalties[0] == penalties[2] > penalties[1] == penalties[3]


def trials_of(plan: Plan, vflops: list[float], **changes: Any) -> list[TrialScore]:
    """Complete trials that differ in VFLOPS, and in their time by ten times the trial's number."""
    scored = score_trial(plan, trial_events(plan), trial=1)
    return [
        dataclasses.replace(scored, trial=number, vflops=value, seconds=10.0 * number, **changes)
        for number, value in enumerate(vflops, 1)
    ]


def test_the_highest_and_the_lowest_by_vflops_are_dropped(plan: Plan) -> None:
    """V2 §5.3.2; every figure is the mean of the same trials."""
    trials = trials_of(plan, [5.0, 1.0, 9.0, 3.0])
    run = mean_of_trials(trials, required_runs=3)
    assert run.kept_trials == (1, 4)
    assert run.vflops == 4.0
    assert run.seconds == 25.0
    assert [trial.trial for trial in run.trials] == [1, 2, 3, 4]


def test_fewer_than_the_least_runs_are_the_plain_mean_of_all(plan: Plan) -> None:
    """[D3]: shown, and marked as not valid by the rule `enough trials`."""
    run = mean_of_trials(trials_of(plan, [5.0, 1.0, 9.0, 3.0]), required_runs=5)
    assert (run.kept_trials, run.vflops) == ((1, 2, 3, 4), 4.5)


@pytest.mark.parametrize("count", [1, 2])
def test_of_one_or_two_trials_none_is_dropped(plan: Plan, count: int) -> None:
    """A class of another package may ask for as few."""
    run = mean_of_trials(trials_of(plan, [2.0, 4.0][:count]), required_runs=1)
    assert len(run.kept_trials) == count
    assert run.vflops == 1.0 + count


def test_of_equal_trials_exactly_two_are_dropped(plan: Plan) -> None:
    assert mean_of_trials(trials_of(plan, [2.0] * 5), required_runs=3).kept_trials == (2, 3, 4)


def test_an_incomplete_trial_is_never_in_a_valid_mean(plan: Plan) -> None:
    trials = trials_of(plan, [5.0, 1.0, 9.0, 3.0])
    trials.append(dataclasses.replace(trials[0], trial=5, complete=False, vflops=4.0))
    run = mean_of_trials(trials, required_runs=3)
    assert run.kept_trials == (1, 4)
    assert not run.complete


def test_variations_are_sample_deviation_over_mean_of_all_trials(plan: Plan) -> None:
    """Dropped trials vary too: V2 Table 2 is over all runs."""
    trials = trials_of(plan, [2.0, 4.0, 6.0])
    trials = [
        dataclasses.replace(t, epochs_to_target=e) for t, e in zip(trials, (9, 10, 11), strict=True)
    ]
    run = mean_of_trials(trials, required_runs=3)
    assert run.score_variation == pytest.approx(2 / 4)
    assert run.epochs_to_target_variation == pytest.approx(1 / 10)


def test_a_trial_that_did_not_reach_the_target_leaves_no_variation_of_epochs(plan: Plan) -> None:
    trials = trials_of(plan, [2.0, 4.0, 6.0])
    trials[1] = dataclasses.replace(trials[1], epochs_to_target=None)
    run = mean_of_trials(trials, required_runs=3)
    assert run.epochs_to_target_variation is None
    assert run.score_variation is not None


def test_a_single_trial_has_no_variation(plan: Plan) -> None:
    assert mean_of_trials(trials_of(plan, [2.0]), required_runs=3).score_variation is None
    assert variation([0.0, 0.0]) is None


@pytest.mark.parametrize(
    ("coverage", "watts"),
    [
        (("accelerators",) * 3, 20.0),
        (("whole nodes", "accelerators", "accelerators"), None),
        ((None, "accelerators", "accelerators"), None),
    ],
)
def test_watts_of_different_parts_have_no_mean(
    plan: Plan, coverage: tuple[str | None, ...], watts: float | None
) -> None:
    trials = [
        dataclasses.replace(
            trial, power_coverage=part, watts=20.0, energy_joules=1.0, vflops_per_watt=1.0,
            flops_per_watt=1.0,
        )
        for trial, part in zip(trials_of(plan, [2.0, 3.0, 4.0]), coverage, strict=True)
    ]  # fmt: skip
    run = mean_of_trials(trials, required_runs=4)
    assert run.watts == watts
    assert run.power_coverage == (coverage[1] if watts else None)
    assert (run.energy_joules, run.vflops_per_watt) == ((1.0, 1.0) if watts else (None, None))


def test_a_mean_of_trials_on_other_clocks_says_the_less_certain_one(plan: Plan) -> None:
    first, two = trials_of(plan, [2.0, 3.0])
    run = mean_of_trials([first, dataclasses.replace(two, clock="wall")], required_runs=3)
    assert run.clock == "wall"


@pytest.mark.parametrize("target", [0.7, 0.86, 0.35, 0.4, 0.124])
@pytest.mark.parametrize("count", range(1, 16))
def test_a_figure_that_all_trials_share_is_not_rounded(
    plan: Plan, target: float, count: int
) -> None:
    """The sum of three times 0.7, divided by three, is not 0.7."""
    vflops = [float(number) for number in range(count)]
    run = mean_of_trials(trials_of(plan, vflops, target_quality=target), required_runs=1)
    assert run.target_quality == target
    assert run.vflops == pytest.approx(sum(vflops) / count)
