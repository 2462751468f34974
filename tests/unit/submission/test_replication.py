"""Replication's verdicts on both sides of each threshold (V2 §3.3)."""

from __future__ import annotations

import pytest

from ai500.core.errors import InputError
from ai500.submission.replication import ALPHA, check_margin, compare, overall

CLAIMED = (99.0, 100.0, 101.0)  # mean 100, standard deviation 1


def shifted(percent: float) -> list[float]:
    return [value + percent for value in CLAIMED]


def test_just_within_and_just_outside_the_margin() -> None:
    """Values without variation: the difference is exact, and the margin itself is outside."""
    for claimed in (100.0, -100.0):
        within = compare("x", [claimed] * 2, [claimed * 1.0499] * 2, margin=0.05)
        outside = compare("x", [claimed] * 2, [claimed * 1.0501] * 2, margin=0.05)
        assert (within.verdict, outside.verdict) == ("replicated", "differs")
        assert within.difference == pytest.approx(0.0499)


def test_equivalence_changes_at_alpha() -> None:
    """t(4, 95 %) = 2.1318: the limit is 5 − 2.1318 · √(2/3) = 3.2594 %."""
    near, far = (compare("x", CLAIMED, shifted(by), margin=0.05) for by in (3.25, 3.27))
    assert near.equivalence_p is not None and far.equivalence_p is not None
    assert near.equivalence_p < ALPHA < far.equivalence_p
    assert near.verdict == "replicated" and far.verdict != "replicated"
    for comparison in (near, far):
        assert comparison.interval is not None
        inside = comparison.interval[0] > -0.05 and comparison.interval[1] < 0.05
        assert inside == (comparison.verdict == "replicated")


def test_difference_changes_at_half_of_alpha() -> None:
    """t(4, 98.75 %) = 3.4954: the limit is 3.4954 · √(2/3) = 2.8540 %; the margin is out of it."""
    near, far = (compare("x", CLAIMED, shifted(by), margin=0.001) for by in (2.84, 2.87))
    assert near.difference_p is not None and far.difference_p is not None
    assert far.difference_p < ALPHA / 2 < near.difference_p
    assert near.verdict == "too few runs to tell" and far.verdict == "differs"


def test_a_test_needs_two_runs_on_each_side() -> None:
    assert compare("x", [1.0, 1.0], [1.0], margin=0.05).verdict == "too few runs to tell"
    assert compare("x", [1.0], [1.0, 1.0], margin=0.05).verdict == "too few runs to tell"
    assert compare("x", [1.0, 1.0], [1.0, 1.0], margin=0.05).verdict == "replicated"
    empty = compare("x", [], [1.0, 1.0], margin=0.05)
    assert (empty.claimed_mean, empty.difference, empty.interval) == (None, None, None)


def test_a_difference_from_zero_has_no_share() -> None:
    from_zero = compare("x", [0.0, 0.0], [1.0, 1.0], margin=0.05)
    assert (from_zero.verdict, from_zero.difference) == ("too few runs to tell", None)
    assert (from_zero.claimed_mean, from_zero.interval) == (0.0, None)
    to_zero = compare("x", [1.0, 1.0], [0.0, 0.0], margin=0.05)
    assert (to_zero.verdict, to_zero.difference) == ("differs", -1.0)


def test_every_figure_has_to_be_replicated() -> None:
    assert overall(["replicated", "replicated"]) == "replicated"
    assert overall(["replicated", "too few runs to tell"]) == "too few runs to tell"
    assert overall(["too few runs to tell", "differs"]) == "differs"


@pytest.mark.parametrize(
    ("margin", "good"), [(0.0, False), (1e-9, True), (0.999, True), (1.0, False)]
)
def test_a_margin_is_a_share(margin: float, good: bool) -> None:
    if good:
        check_margin(margin)
    else:
        with pytest.raises(InputError):
            check_margin(margin)
