"""From the events of a trial to its score: window, idle time, crashes, several hosts."""

from __future__ import annotations

from typing import Any

import pytest

from ai500.bagging.program import score_trial
from ai500.core.errors import JobError
from ai500.metrics.trials import mean_of_trials
from ai500.records import Plan
from tests.support.trial_events import (
    aggregate,
    event,
    trial_events,
    two_member_plan,
)


@pytest.fixture
def plan() -> Plan:
    return two_member_plan()


def test_official_flops_are_all_operations_over_first_start_to_last_end(plan: Plan) -> None:
    """[D6]; the sum of the members' own rates stands beside it."""
    score = score_trial(plan, trial_events(plan), trial=1)
    each = 200 * 30 + 8 * 5
    assert score.operations == 2 * each
    assert score.seconds == 23
    assert score.flops == pytest.approx(2 * each / 23)
    assert score.members_flops_sum == pytest.approx(2 * each / 20)
    assert score.start_skew_seconds == 3
    assert score.validation_operations == 2 * 100 * 10
    assert score.apc == 2 * plan.global_batch_size * 30
    assert score.vflops == pytest.approx(score.flops * score.penalty_coefficient)
    assert score.idle_seconds == 0
    assert (score.seed, score.clock) == (5, "monotonic")


def test_uncounted_operators_of_all_members_are_in_the_score(plan: Plan) -> None:
    missing = {0: {"aten::lstsq": 2}, 1: {"aten::lstsq": 3, "mine::scan": 1}}
    events = [
        e | ({"uncounted": missing[e["member"]]} if e["event"] == "operations" else {})
        for e in trial_events(plan)
    ]
    trial = score_trial(plan, events, trial=1)
    assert trial.uncounted == {"aten::lstsq": 3, "mine::scan": 1}
    other = score_trial(plan, trial_events(plan), trial=1)
    assert other.uncounted == {}
    assert mean_of_trials([other, trial], required_runs=1).uncounted == trial.uncounted


def test_time_to_target_is_when_the_members_mean_reached_it(plan: Plan) -> None:
    assert score_trial(plan, trial_events(plan), trial=1).time_to_target_seconds == 23


def test_target_not_reached_is_none(plan: Plan) -> None:
    recorded = [
        e | ({"quality": 0.1} if e["event"] == "quality" else {}) for e in trial_events(plan)
    ]
    assert score_trial(plan, recorded, trial=1).time_to_target_seconds is None


def test_a_repeated_epoch_counts_once_and_the_gap_is_idle(plan: Plan) -> None:
    """Member 0 was killed after its second epoch's event, before the checkpoint."""
    recorded = [e for e in trial_events(plan) if not (e["event"] == "end" and e.get("member") == 0)]
    recorded[-1:-1] = [
        event("resumed", 200, 0, attempt=2, epoch=1, step=0),
        event("epoch", 209, 0, attempt=2, epoch=2, samples=100, steps=4, loss=1.0),
        event("quality", 210, 0, attempt=2, epoch=2, quality=0.9, samples=50),
        event("end", 210, 0, attempt=2, epoch=2),
    ]
    score = score_trial(plan, recorded, trial=1)
    assert score.operations == 2 * (200 * 30 + 8 * 5)
    assert score.seconds == 110
    assert score.idle_seconds == 200 - 123


def test_several_hosts_have_only_wall_clocks(plan: Plan) -> None:
    recorded = [
        e | ({"host": "b", "monotonic": 7.0} if e.get("member") == 1 else {})
        for e in trial_events(plan)
    ]
    score = score_trial(plan, recorded, trial=1)
    assert score.clock == "wall"
    assert score.seconds == 23


def test_an_incomplete_ensemble_is_never_scored_as_complete(plan: Plan) -> None:
    recorded = [e for e in trial_events(plan)[:-1] if e.get("member") != 1] + [
        aggregate(members=(0,))
    ]
    score = score_trial(plan, recorded, trial=1)
    assert score.complete is False
    assert score.operations == 200 * 30 + 8 * 5


@pytest.mark.parametrize("kind", ["first_batch", "end", "epoch", "operations", "aggregate"])
def test_a_log_with_holes_is_no_score(plan: Plan, kind: str) -> None:
    recorded = [e for e in trial_events(plan) if e["event"] != kind]
    with pytest.raises(JobError) as error:
        score_trial(plan, recorded, trial=1)
    assert error.value.key == kind


def test_an_epoch_lost_by_the_log_is_an_error_not_a_smaller_count(plan: Plan) -> None:
    recorded = [e for e in trial_events(plan) if not (e["event"] == "epoch" and e["epoch"] == 1)]
    with pytest.raises(JobError) as error:
        score_trial(plan, recorded, trial=1)
    assert (error.value.key, error.value.value) == ("epoch", [2])


def test_epochs_to_target_are_those_of_the_members_mean(plan: Plan) -> None:
    score = score_trial(plan, trial_events(plan), trial=1)
    assert score.epochs_to_target == 2
    recorded = [
        e | ({"quality": 0.99} if e["event"] == "quality" else {}) for e in trial_events(plan)
    ]
    assert score_trial(plan, recorded, trial=1).epochs_to_target == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"members": [0, 1, 50], "member_qualities": [0.5] * 3},
        {"members": [0, 0], "member_qualities": [0.5] * 2},
        {"members": [0], "member_qualities": [0.5]},
        {"missing": [1]},
        {"complete": False},
        {"member_qualities": [0.5]},
    ],
)
def test_a_result_of_other_members_than_planned_is_no_score(
    plan: Plan, changes: dict[str, Any]
) -> None:
    recorded = [
        e | {"result": e["result"] | changes} if e["event"] == "aggregate" else e
        for e in trial_events(plan)
    ]
    with pytest.raises(JobError) as error:
        score_trial(plan, recorded, trial=1)
    assert error.value.key == "aggregate"
