"""Distribution of step times, fitted to the steps that a run measured, and its slowest of many.

Accelerators that average gradients wait for the slowest of them in every step: of n, a step takes
the expected maximum of n step times. Times of different accelerators are taken to be independent.
The measured quantiles are joined in the plane of normal score and logarithm, in which a log-normal
distribution is a line; beyond the slowest measured step the line of the tail is continued.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, stdev

import numpy as np

from ai500.records.step_times import PROBABILITIES, StepTimes

KNOTS = 60
"""Quantiles of the fitted distribution."""
MOST_VALUES = 2000
"""Values of the epochs' quantiles at which their mean distribution is computed."""
TAIL = 0.9
"""Probability from which quantiles are the tail."""
INTERVALS = 1000
"""Intervals of the integral of an expected maximum."""
MOST_SPREAD = 1.0
"""Standard deviation of logarithms beyond which a tail is not continued: a step that is e times as
slow for each standard deviation is no property of an accelerator."""


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Distribution of a member's step times, relative to no particular unit."""

    scores: tuple[float, ...]
    """Normal scores of the quantiles, ascending."""
    logarithms: tuple[float, ...]
    """Logarithm of the step time at each score."""
    tail_spread: float
    """Standard deviation of the logarithm, in the tail."""
    devices: int
    """Accelerators whose slowest each of these times is: replicas of the run's member."""
    steps: int | None
    """Single steps that were measured; None: fitted to the means of epochs."""
    member_spread: float
    """Standard deviation of the logarithm of the members' mean step times."""

    def slowest(self, devices: int) -> float:
        """Return the mean of the slowest of so many accelerators' times, over one step's mean.

        One step is one of the run: its mean is what was measured as the step's time.
        """
        return _expected_maximum(self, devices / self.devices) / _expected_maximum(self, 1.0)

    def logarithm_at(self, score: float) -> float:
        """Return the logarithm of the step time at a normal score."""
        beyond = score - self.scores[-1]
        if beyond > 0:
            return self.logarithms[-1] + beyond * self.tail_spread
        return float(np.interp(score, self.scores, self.logarithms))


@cache
def _expected_maximum(distribution: Stragglers, draws: float) -> float:
    """Integrate the quantile function of the maximum, Q(u^(1 / draws)), over u from 0 to 1."""
    total = 0.0
    for index in range(INTERVALS):
        exponent = math.log((index + 0.5) / INTERVALS) / draws
        # The smaller of both tails: 1 − 1e-12 has no digits left for the larger.
        below, above = math.exp(exponent), -math.expm1(exponent)
        normal = NormalDist()
        smallest = 1e-300
        score = (
            normal.inv_cdf(max(below, smallest))
            if below < 0.5
            else -normal.inv_cdf(max(above, smallest))
        )
        total += math.exp(distribution.logarithm_at(score))
    return total / INTERVALS


def fit_steps(
    epochs: Sequence[StepTimes], *, devices: int, member_means: Sequence[float]
) -> Stragglers:
    """Fit to the quantiles of all epochs, each weighted by its steps."""
    steps = sum(epoch.count for epoch in epochs)
    values, probabilities = _mean_distribution(epochs)
    if values[0] == values[-1]:
        return Stragglers((-1.0, 1.0), (values[0], values[0]), 0.0, devices, steps,
                          log_spread(member_means))  # fmt: skip
    # The slowest of n steps is near the quantile (n − 3/8) / (n + 1/4) (Blom).
    end = (steps - 0.375) / (steps + 0.25)
    scores = [NormalDist().inv_cdf(p) for p in np.clip(probabilities, 1 - end, end)]
    knots = np.linspace(scores[0], scores[-1], KNOTS)
    logarithms = np.interp(knots, scores, values)
    tail = knots >= NormalDist().inv_cdf(TAIL)
    spread = 0.0
    if tail.sum() > 1:
        spread = min(MOST_SPREAD, max(0.0, float(np.polyfit(knots[tail], logarithms[tail], 1)[0])))
    return Stragglers(
        tuple(map(float, knots)), tuple(map(float, logarithms)), spread, devices, steps,
        log_spread(member_means),
    )  # fmt: skip


def fit_epochs(seconds_per_step: Sequence[float], *, member_means: Sequence[float]) -> Stragglers:
    """Fit a log-normal distribution to epochs' mean step times: single steps were not measured."""
    spread = log_spread(seconds_per_step)
    return Stragglers((-1.0, 1.0), (-spread, spread), spread, 1, None, log_spread(member_means))


def _mean_distribution(epochs: Sequence[StepTimes]) -> tuple[list[float], list[float]]:
    """Return logarithms of step times, ascending, and the share of all steps up to each."""
    curves = [np.log(epoch.quantiles) for epoch in epochs]
    values = np.unique(np.concatenate(curves))
    if len(values) > MOST_VALUES:
        # All of the slowest tenth's last values, and an even sample of the rest.
        last = MOST_VALUES // 10
        places = np.linspace(0, len(values) - last - 1, MOST_VALUES - last).round().astype(int)
        values = np.concatenate([values[places], values[-last:]])
    total = np.zeros(len(values))
    probabilities = list(PROBABILITIES.values())
    for epoch, curve in zip(epochs, curves, strict=True):
        total += epoch.count * np.interp(values, curve, probabilities, left=0.0, right=1.0)
    total /= sum(epoch.count for epoch in epochs)
    return [float(value) for value in values], [float(share) for share in total]


def log_spread(values: Sequence[float]) -> float:
    """Return the standard deviation of the logarithms; 0 with fewer than three values."""
    return stdev([math.log(value) for value in values]) if len(values) > 2 else 0.0


def slowest_member(members: int, *, spread: float) -> float:
    """Return the slowest of so many log-normal members relative to the median one."""
    if members < 2 or spread == 0:
        return 1.0
    # Blom: the expected maximum of n normals is near the quantile (n − 3/8) / (n + 1/4).
    quantile = (members - 0.375) / (members + 0.25)
    return math.exp(spread * NormalDist().inv_cdf(quantile))
