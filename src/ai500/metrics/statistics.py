"""Student's t distribution, and the two tests that compare a repeated result.

- Welch's test: do two sets of runs have different means? It does not need equal variances.
- TOST (two one-sided tests, Schuirmann 1987): is the difference of the means within a margin? To
  find no difference in few runs does not show that there is none; TOST does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

# Lentz's method replaces zero denominators by this.
_TINY = 1e-300
# Relative change at which the continued fraction has converged to double precision.
_CONVERGED = 1e-15


@dataclass(frozen=True, slots=True)
class Welch:
    """The difference of two means, its standard error, and its degrees of freedom."""

    difference: float
    """Mean of the second − mean of the first."""
    standard_error: float
    degrees: float
    """Degrees of freedom, by Welch and Satterthwaite."""
    p_value: float
    """Two-sided probability of a difference at least this large if the means were equal."""


def welch(first: Sequence[float], second: Sequence[float]) -> Welch:
    """Compute Welch's t-test of two sets, each of at least two values."""
    a, b = variance(first) / len(first), variance(second) / len(second)
    difference = fmean(second) - fmean(first)
    spread = a**2 / (len(first) - 1) + b**2 / (len(second) - 1)
    if spread == 0:
        # The values of each set are the same: the difference is known exactly.
        degrees = float(len(first) + len(second) - 2)
        return Welch(difference, 0.0, degrees, 1.0 if difference == 0 else 0.0)
    degrees = (a + b) ** 2 / spread
    error = math.sqrt(a + b)
    p_value = 2 * student_cdf(-abs(difference) / error, degrees=degrees)
    return Welch(difference, error, degrees, p_value)


def equivalence_p_value(test: Welch, *, margin: float) -> float:
    """Compute TOST: the larger p-value of "difference ≤ −margin" and "difference ≥ margin"."""
    if test.standard_error == 0:
        return 0.0 if abs(test.difference) < margin else 1.0
    t = (abs(test.difference) - margin) / test.standard_error
    return student_cdf(t, degrees=test.degrees)


def student_cdf(t: float, *, degrees: float) -> float:
    """Compute P(T ≤ t) of Student's t."""
    square = t * t
    if square < degrees:  # near the middle the tail's argument would round to 1
        half = 0.5 * incomplete_beta(square / (degrees + square), a=0.5, b=degrees / 2)
        return 0.5 + math.copysign(half, t)
    tail = 0.5 * incomplete_beta(degrees / (degrees + square), a=degrees / 2, b=0.5)
    return tail if t <= 0 else 1 - tail


def student_quantile(probability: float, *, degrees: float) -> float:
    """Find the t with P(T ≤ t) = probability, by bisection."""
    low, high = -1.0, 1.0
    while student_cdf(low, degrees=degrees) > probability:
        low *= 2
    while student_cdf(high, degrees=degrees) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if student_cdf(middle, degrees=degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def incomplete_beta(x: float, *, a: float, b: float) -> float:
    """Compute the regularized incomplete beta function I_x(a, b), by its continued fraction.

    NIST DLMF 8.17.22, evaluated by Lentz's method on the side where it converges quickly.
    """
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, a=b, b=a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) / (a * _beta_fraction(x, a=a, b=b))


def _beta_fraction(x: float, *, a: float, b: float) -> float:
    """Evaluate 1 + d₁/(1 + d₂/(1 + …)) with the coefficients of DLMF 8.17.23."""
    value, c, d = 1.0, 1.0, 0.0
    for n in range(1, 10_000):
        m = n // 2
        if n % 2:
            coefficient = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            coefficient = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 + coefficient * d
        c = 1 + coefficient / c
        d = 1 / (d if abs(d) > _TINY else _TINY)
        c = c if abs(c) > _TINY else _TINY
        value *= c * d
        if abs(c * d - 1) < _CONVERGED:
            break
    return value
