"""Which qualities are better, by how much, and whether they reach the target."""

from __future__ import annotations

import math

import pytest

from ai500.metrics.equations import Direction
from ai500.metrics.quality import Target, improvement, is_better, quality_ratio, target_of
from tests.support.trial_events import two_member_plan

DIRECTIONS: tuple[Direction, Direction] = ("higher", "lower")


@pytest.mark.parametrize(("direction", "sign"), [("higher", 1), ("lower", -1)])
def test_better_worse_and_equal(direction: Direction, sign: int) -> None:
    better = 0.5 + sign * 0.125
    assert is_better(better, 0.5, direction=direction)
    assert not is_better(0.5, better, direction=direction)
    assert not is_better(0.5, 0.5, direction=direction)
    assert improvement(better, over=0.5, direction=direction) == 0.125
    assert improvement(0.5, over=better, direction=direction) == -0.125


@pytest.mark.parametrize(("direction", "ratio"), [("higher", 0.5), ("lower", 2.0)])
def test_more_is_better_in_every_ratio(direction: Direction, ratio: float) -> None:
    assert quality_ratio(0.25, target=0.5, direction=direction) == ratio


@pytest.mark.parametrize(
    ("quality", "target", "direction"), [(0.5, 0, "higher"), (0, 0.5, "lower")]
)
def test_a_ratio_to_zero_is_zero(quality: float, target: float, direction: Direction) -> None:
    assert quality_ratio(quality, target=target, direction=direction) == 0.0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_target_is_reached_at_its_very_value(direction: Direction) -> None:
    target = Target(0.5, 2.0, direction)
    below, above = (math.nextafter(0.5, end) for end in (0.0, 1.0))
    assert target.reached(0.5)
    assert [target.reached(below), target.reached(above)] == (
        [False, True] if direction == "higher" else [True, False]
    )
    assert target.penalty(0.5) == 1.0
    assert target.penalty(0.25) == (0.25 if direction == "higher" else 4.0)


def test_the_target_of_a_plan_is_its_class() -> None:
    plan = two_member_plan()
    assert target_of(plan) == Target(
        plan.definition.target_quality, plan.definition.penalty_exponent, "higher"
    )
