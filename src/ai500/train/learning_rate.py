"""Learning-rate policies: pure functions of the step (V2 §5.1.2, V3 Table 2, [D1]).

Linear scaling and warm-up come first (Goyal et al.): the peak is the base rate × global batch /
reference batch, reached linearly over the warm-up steps. Then the policy's own decay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import NamedTuple, Protocol

from ai500.core import plugins
from ai500.records import Hyperparameters


class LearningRate(Protocol):
    """Rate of one step; `step` counts optimizer steps from 0 over the whole training."""

    def __call__(
        self,
        step: int,
        *,
        peak: float,
        total_steps: int,
        warmup_steps: int,
        decay_steps: Sequence[int],
        power: float,
    ) -> float: ...


def learning_rate_of(
    hyperparameters: Hyperparameters, *, peak: float, steps_per_epoch: int
) -> Callable[[int], float]:
    """Return the policy of these hyper-parameters as a function of the step."""
    policy: LearningRate = plugins.load("learning_rate", hyperparameters.schedule)

    def rate(step: int) -> float:
        return policy(
            step,
            peak=peak,
            total_steps=hyperparameters.epochs * steps_per_epoch,
            warmup_steps=round(hyperparameters.warmup_epochs * steps_per_epoch),
            decay_steps=[epoch * steps_per_epoch for epoch in hyperparameters.decay_epochs],
            power=hyperparameters.decay_power,
        )

    return rate


def scaled_peak(hyperparameters: Hyperparameters, *, global_batch_size: int) -> float:
    """Scale the base rate linearly with the batch."""
    base = hyperparameters.base_learning_rate
    return base * global_batch_size / hyperparameters.reference_batch_size


class _Point(NamedTuple):
    """A step after the warm-up, as decays see it."""

    step: int
    peak: float
    since_warm_up: int
    """Number of steps since the warm-up."""
    progress: float
    """0 at the first step after the warm-up, 1 at the end of training."""
    decay_steps: Sequence[int]
    power: float


def _after_warm_up(decay: Callable[[_Point], float]) -> LearningRate:
    """Make the policy that rises linearly and then follows `decay`.

    The first step learns already, the last one of the warm-up is at the peak.
    """

    @wraps(decay)
    def policy(
        step: int,
        *,
        peak: float,
        total_steps: int,
        warmup_steps: int,
        decay_steps: Sequence[int] = (),
        power: float = 0.0,
    ) -> float:
        if step < warmup_steps:
            return peak * (step + 1) / warmup_steps
        since = step - warmup_steps
        progress = min(1.0, since / max(1, total_steps - warmup_steps))
        return decay(_Point(step, peak, since, progress, decay_steps, power))

    return policy


@_after_warm_up
def cosine(at: _Point) -> float:
    """Decay by half a cosine from the peak to zero after warm-up."""
    return at.peak * 0.5 * (1 + math.cos(math.pi * at.progress))


@_after_warm_up
def step_decay(at: _Point) -> float:
    """Divide the rate by ten at each of `decay_steps`, after warm-up."""
    return float(at.peak * 0.1 ** sum(at.step >= decay_step for decay_step in at.decay_steps))


@_after_warm_up
def polynomial(at: _Point) -> float:
    """Decay as (1 − progress)^power after warm-up; power 2 is LARS's published policy."""
    return float(at.peak * (1 - at.progress) ** at.power)


@_after_warm_up
def inverse_time(at: _Point) -> float:
    """Decay as peak / (1 + power × steps) after warm-up: AIPerf's Keras "decay=0.1/60"."""
    return at.peak / (1 + at.power * at.since_warm_up)
