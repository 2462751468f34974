"""From events to the score: windows, idle time, crashes, several hosts, several trials."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ai500.bagging.score import score_trial
from ai500.config import load
from ai500.core.errors import JobError
from ai500.core.schema import encode
from ai500.metrics.trials import mean_of_trials, variation
from ai500.pipeline.planning import make_plan
from ai500.records import EnsembleResult, Plan, System, TrialScore

MACHINE = System(
    hostname="here", operating_system="", kernel="", python="", cpu="", cores=2, memory_bytes=None,
    accelerator=None, accelerators=(), libraries={},
)  # fmt: skip
COUNT = {
    "convention": "aiperf",
    "forward_per_image": 10,
    "backward_per_image": 20,
    "update_per_step": 5,
    "parameters": 3,
}


@pytest.fixture
def plan() -> Plan:
    overrides = {
        "ensemble.size": 2,
        "train.epochs": 2,
        "parallel.degree": 1,
        "system.accelerators_per_node": 2,
        "system.cores_per_slot": 1,
    }
    return make_plan(load(overrides=overrides), MACHINE)


def event(kind: str, at: float, member: int | None = None, **fields: Any) -> dict[str, Any]:
    record = {
        "event": kind, "monotonic": at, "wall": at + 1000, "host": "a", "boot": "b",
        "trial": 1, "attempt": 1,
    }  # fmt: skip
    if member is not None:
        record["member"] = member
    return record | fields


def member_events(member: int, start: float, *, qualities: tuple[float, float]) -> list[Any]:
    """Two epochs of ten seconds: 100 images in 4 steps each, then an evaluation."""
    told = [event("first_batch", start, member)]
    for epoch, quality in enumerate(qualities, 1):
        at = start + 10 * epoch
        told.append(event("epoch", at - 1, member, epoch=epoch, images=100, steps=4, loss=1.0))
        told.append(event("quality", at, member, epoch=epoch, quality=quality, images=50))
    told.append(event("end", start + 20, member, epoch=2))
    told.append(event("operations", start + 25, member, **COUNT))
    return told


def aggregate(quality: float = 0.9, members: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    result = EnsembleResult(
        complete=members == (0, 1),
        members=members,
        missing=tuple({0, 1} - set(members)),
        member_qualities=tuple(0.8 for _ in members),
        members_mean_quality=0.8,
        ensemble_quality=quality,
        out_of_bag_quality=0.7,
        out_of_bag_samples=10,
    )
    return event("aggregate", 99, result=encode(result))


def whole(plan: Plan) -> list[Any]:
    target = plan.definition.target_quality
    return [
        event("trial_start", 0, seed=5),
        *member_events(0, 100, qualities=(0.1, target)),
        *member_events(1, 103, qualities=(0.1, target)),
        aggregate(),
    ]


def test_official_flops_are_all_operations_over_first_start_to_last_end(plan: Plan) -> None:
    """[D6]; the sum of the members' own rates stands beside it."""
    score = score_trial(plan, whole(plan), trial=1)
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


def test_time_to_target_is_when_the_members_mean_reached_it(plan: Plan) -> None:
    assert score_trial(plan, whole(plan), trial=1).time_to_target_seconds == 23


def test_target_not_reached_is_none(plan: Plan) -> None:
    told = [e | ({"quality": 0.1} if e["event"] == "quality" else {}) for e in whole(plan)]
    assert score_trial(plan, told, trial=1).time_to_target_seconds is None


def test_a_repeated_epoch_counts_once_and_the_gap_is_idle(plan: Plan) -> None:
    """Member 0 was killed after its second epoch's event, before the checkpoint."""
    told = [e for e in whole(plan) if not (e["event"] == "end" and e.get("member") == 0)]
    told[-1:-1] = [
        event("resumed", 200, 0, attempt=2, epoch=1, step=0),
        event("epoch", 209, 0, attempt=2, epoch=2, images=100, steps=4, loss=1.0),
        event("quality", 210, 0, attempt=2, epoch=2, quality=0.9, images=50),
        event("end", 210, 0, attempt=2, epoch=2),
    ]
    score = score_trial(plan, told, trial=1)
    assert score.operations == 2 * (200 * 30 + 8 * 5)
    assert score.seconds == 110
    assert score.idle_seconds == 200 - 123


def test_several_hosts_have_only_wall_clocks(plan: Plan) -> None:
    told = [
        e | ({"host": "b", "monotonic": 7.0} if e.get("member") == 1 else {}) for e in whole(plan)
    ]
    score = score_trial(plan, told, trial=1)
    assert score.clock == "wall"
    assert score.seconds == 23


def test_an_incomplete_ensemble_is_never_scored_as_complete(plan: Plan) -> None:
    told = [e for e in whole(plan)[:-1] if e.get("member") != 1] + [aggregate(members=(0,))]
    score = score_trial(plan, told, trial=1)
    assert score.complete is False
    assert score.operations == 200 * 30 + 8 * 5


@pytest.mark.parametrize("kind", ["first_batch", "end", "epoch", "operations", "aggregate"])
def test_a_log_with_holes_is_no_score(plan: Plan, kind: str) -> None:
    told = [e for e in whole(plan) if e["event"] != kind]
    with pytest.raises(JobError) as error:
        score_trial(plan, told, trial=1)
    assert error.value.key == kind


def test_an_epoch_lost_by_the_log_is_an_error_not_a_smaller_count(plan: Plan) -> None:
    told = [e for e in whole(plan) if not (e["event"] == "epoch" and e["epoch"] == 1)]
    with pytest.raises(JobError) as error:
        score_trial(plan, told, trial=1)
    assert (error.value.key, error.value.value) == ("epoch", [2])


def test_the_run_is_the_mean_of_its_trials_with_them_in_it(plan: Plan) -> None:
    one = score_trial(plan, whole(plan), trial=1)
    two = dataclasses.replace(one, trial=2, flops=3 * one.flops, time_to_target_seconds=None)
    run = mean_of_trials([one, two], required_runs=3)
    assert run.flops == pytest.approx(2 * one.flops)
    assert run.trials == (one, two)
    assert run.kept_trials == (1, 2)
    assert run.time_to_target_seconds is None  # one of them never got there


def trials_of(plan: Plan, vflops: list[float], **changes: Any) -> list[TrialScore]:
    """Complete trials that differ in VFLOPS, and in their time by ten times the trial's number."""
    one = score_trial(plan, whole(plan), trial=1)
    return [
        dataclasses.replace(one, trial=number, vflops=value, seconds=10.0 * number, **changes)
        for number, value in enumerate(vflops, 1)
    ]


def test_the_highest_and_the_lowest_by_vflops_are_dropped(plan: Plan) -> None:
    """V2 §5.3.2; every figure is the mean of the same trials."""
    trials = trials_of(plan, [5.0, 1.0, 9.0, 3.0])
    run = mean_of_trials(trials, required_runs=3)
    assert run.kept_trials == (1, 4)
    assert run.vflops == 4.0
    assert run.seconds == 25.0
    assert [one.trial for one in run.trials] == [1, 2, 3, 4]


def test_fewer_than_the_least_runs_are_the_plain_mean_of_all(plan: Plan) -> None:
    """[D3]: shown, and marked as not valid by the rule `enough trials`."""
    run = mean_of_trials(trials_of(plan, [5.0, 1.0, 9.0, 3.0]), required_runs=5)
    assert (run.kept_trials, run.vflops) == ((1, 2, 3, 4), 4.5)


@pytest.mark.parametrize("count", [1, 2])
def test_of_one_or_two_trials_none_is_dropped(plan: Plan, count: int) -> None:
    """A class of somebody else's may ask for as few."""
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


def test_epochs_to_target_are_those_of_the_members_mean(plan: Plan) -> None:
    score = score_trial(plan, whole(plan), trial=1)
    assert score.epochs_to_target == 2
    told = [e | ({"quality": 0.99} if e["event"] == "quality" else {}) for e in whole(plan)]
    assert score_trial(plan, told, trial=1).epochs_to_target == 1


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
            one, power_coverage=part, watts=20.0, energy_joules=1.0, vflops_per_watt=1.0,
            flops_per_watt=1.0,
        )
        for one, part in zip(trials_of(plan, [2.0, 3.0, 4.0]), coverage, strict=True)
    ]  # fmt: skip
    run = mean_of_trials(trials, required_runs=4)
    assert run.watts == watts
    assert run.power_coverage == (coverage[1] if watts else None)
    assert (run.energy_joules, run.vflops_per_watt) == ((1.0, 1.0) if watts else (None, None))


def test_a_mean_of_trials_on_other_clocks_says_the_less_certain_one(plan: Plan) -> None:
    one, two = trials_of(plan, [2.0, 3.0])
    run = mean_of_trials([one, dataclasses.replace(two, clock="wall")], required_runs=3)
    assert run.clock == "wall"


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
    told = [
        e | {"result": e["result"] | changes} if e["event"] == "aggregate" else e
        for e in whole(plan)
    ]
    with pytest.raises(JobError) as error:
        score_trial(plan, told, trial=1)
    assert error.value.key == "aggregate"
