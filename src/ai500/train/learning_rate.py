"""Learning-rate policies: pure functions of the step (V2 §5.1.2, V3 Table 2, [D1]).

Linear scaling and warm-up come first (Goyal et al.): the peak is the base rate × global batch /
reference batch, reached linearly over the warm-up steps. Then the policy's own decay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

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


def scaled_peak(base: float, *, global_batch_size: int, reference_batch_size: int) -> float:
    """Scale the base rate linearly with the batch."""
    return base * global_batch_size / reference_batch_size


def cosine(
    step: int,
    *,
    peak: float,
    total_steps: int,
    warmup_steps: int,
    decay_steps: Sequence[int] = (),
    power: float = 0.0,
) -> float:
    """Decay by half a cosine from the peak to zero after warm-up."""
    del decay_steps, power
    if step < warmup_steps:
        return _warm_up(step, peak=peak, warmup_steps=warmup_steps)
    progress = _progress(step, first=warmup_steps, end=total_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))


def step_decay(
    step: int,
    *,
    peak: float,
    total_steps: int,
    warmup_steps: int,
    decay_steps: Sequence[int],
    power: float = 0.0,
) -> float:
    """Divide the rate by ten at each of `decay_steps`, after warm-up."""
    del total_steps, power
    if step < warmup_steps:
        return _warm_up(step, peak=peak, warmup_steps=warmup_steps)
    return float(peak * 0.1 ** sum(step >= at for at in decay_steps))


def polynomial(
    step: int,
    *,
    peak: float,
    total_steps: int,
    warmup_steps: int,
    decay_steps: Sequence[int] = (),
    power: float = 2.0,
) -> float:
    """Decay as (1 − progress)^power after warm-up; power 2 is LARS's published policy."""
    del decay_steps
    if step < warmup_steps:
        return _warm_up(step, peak=peak, warmup_steps=warmup_steps)
    progress = _progress(step, first=warmup_steps, end=total_steps)
    return float(peak * (1 - progress) ** power)


def inverse_time(
    step: int,
    *,
    peak: float,
    total_steps: int,
    warmup_steps: int,
    decay_steps: Sequence[int] = (),
    power: float = 0.1 / 60,
) -> float:
    """Decay as peak / (1 + power × steps) after warm-up: AIPerf's Keras "decay=0.1/60"."""
    del total_steps, decay_steps
    if step < warmup_steps:
        return _warm_up(step, peak=peak, warmup_steps=warmup_steps)
    return peak / (1 + power * (step - warmup_steps))


def _warm_up(step: int, *, peak: float, warmup_steps: int) -> float:
    """Rise linearly: the first step learns already, the last one is at the peak."""
    return peak * (step + 1) / warmup_steps


def _progress(step: int, *, first: int, end: int) -> float:
    """Return 0 at the first step after warm-up, 1 at the end of training."""
    return min(1.0, (step - first) / max(1, end - first))
