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
    """The rate of one step; `step` counts optimizer steps from 0 over the whole training."""

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
    """The rate over the steps of a whole training."""
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
    """Linear scaling: the rate grows with the batch."""
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
    """Half a cosine from the peak to zero after warm-up."""
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
    """A tenth of the rate at each of `decay_steps`, after warm-up."""
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
    """(1 − progress)^power after warm-up: with power 2 what LARS was published with."""
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
    """peak / (1 + power × steps) after warm-up: AIPerf's "decay=0.1/60", as Keras meant it."""
    del total_steps, decay_steps
    if step < warmup_steps:
        return _warm_up(step, peak=peak, warmup_steps=warmup_steps)
    return peak / (1 + power * (step - warmup_steps))


def _warm_up(step: int, *, peak: float, warmup_steps: int) -> float:
    """The first step already learns, the last one of warm-up is at the peak."""
    return peak * (step + 1) / warmup_steps


def _progress(step: int, *, first: int, end: int) -> float:
    """0 at the first step after warm-up, 1 where training has ended."""
    return min(1.0, (step - first) / max(1, end - first))
