"""Student's t and the two tests, against published tables and worked examples."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.metrics.statistics import (
    equivalence_p_value,
    incomplete_beta,
    student_cdf,
    student_quantile,
    welch,
)

# NIST/SEMATECH e-Handbook of Statistical Methods, §1.3.6.7.2: critical values of t.
PUBLISHED = {
    (0.90, 1): 3.078, (0.95, 1): 6.314, (0.975, 1): 12.706,
    (0.95, 2): 2.920, (0.975, 3): 3.182, (0.99, 5): 3.365, (0.995, 4): 4.604,
    (0.95, 10): 1.812, (0.975, 20): 2.086, (0.90, 30): 1.310, (0.975, 100): 1.984,
}  # fmt: skip


@pytest.mark.parametrize(("probability", "degrees"), PUBLISHED)
def test_quantiles_are_the_published_ones(probability: float, degrees: int) -> None:
    quantile = student_quantile(probability, degrees=degrees)
    assert quantile == pytest.approx(PUBLISHED[probability, degrees], abs=6e-4)


@given(st.floats(-50, 50))
def test_one_and_two_degrees_have_closed_forms(t: float) -> None:
    cauchy = 0.5 + math.atan(t) / math.pi
    assert student_cdf(t, degrees=1) == pytest.approx(cauchy, abs=1e-12)
    two = 0.5 + t / (2 * math.sqrt(2 + t * t))
    assert student_cdf(t, degrees=2) == pytest.approx(two, abs=1e-12)


@given(st.floats(0, 1), st.integers(1, 12), st.integers(1, 12))
def test_beta_of_whole_numbers_is_a_binomial_tail(x: float, a: int, b: int) -> None:
    n = a + b - 1
    tail = sum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))
    assert incomplete_beta(x, a=a, b=b) == pytest.approx(tail, abs=1e-10)


def test_many_degrees_are_the_normal_distribution() -> None:
    assert student_cdf(1.959964, degrees=1e7) == pytest.approx(0.975, abs=1e-6)


def test_welch_by_hand() -> None:
    """s² = 2.5 and 10 of five values each: t = −3 / √2.5, ν = 2.5² / ((0.5² + 2²) / 4)."""
    test = welch([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    assert test.difference == pytest.approx(3)
    assert test.standard_error == pytest.approx(math.sqrt(2.5))
    assert test.degrees == pytest.approx(6.25 / (4.25 / 4))
    inside = integral_of_density(3 / math.sqrt(2.5), degrees=test.degrees)
    assert test.p_value == pytest.approx(1 - inside, abs=1e-9)


def integral_of_density(t: float, *, degrees: float) -> float:
    """P(−t ≤ T ≤ t) by Simpson's rule over the density: no beta function in it."""
    scale = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)
    steps = 4000
    values = [
        (1 + (t * i / steps) ** 2 / degrees) ** (-(degrees + 1) / 2) for i in range(steps + 1)
    ]
    total = values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2])
    return 2 * scale * total * t / steps / 3


def test_equivalence_is_shown_only_inside_the_margin() -> None:
    near = welch([100, 101, 99, 100, 100], [100.5, 101, 100, 100, 101])
    assert equivalence_p_value(near, margin=5) < 0.001
    assert equivalence_p_value(near, margin=0.4) > 0.5
    # Few and scattered runs: no difference is found, and no equality is shown either.
    scattered = welch([80, 120], [85, 125])
    assert scattered.p_value > 0.5
    assert equivalence_p_value(scattered, margin=5) > 0.05


def test_sets_without_any_spread() -> None:
    same, other = welch([2.0, 2.0], [2.0, 2.0]), welch([2.0, 2.0], [2.5, 2.5])
    assert (same.p_value, other.p_value) == (1.0, 0.0)
    assert equivalence_p_value(same, margin=0.1) == 0.0
    assert equivalence_p_value(other, margin=0.1) == 1.0


def test_false_alarms_are_as_rare_as_stated() -> None:
    """5 % of sets with one mean and unequal spreads are called different at p < 0.05."""
    import random

    draw = random.Random(20261115)
    called = sum(
        welch(
            [draw.gauss(0, 1) for _ in range(5)], [draw.gauss(0, 4) for _ in range(8)]
        ).p_value < 0.05
        for _ in range(2000)
    )  # fmt: skip
    assert 0.035 < called / 2000 < 0.065
