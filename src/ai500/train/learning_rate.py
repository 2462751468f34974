"""Learning-rate policies: pure functions of the step (V2 §4.3.2, V3 Table 2, [D1]).

Linear scaling and warm-up come first (Goyal et al.): the peak is the base rate × global batch /
reference batch, reached linearly over the warm-up steps. Then the policy's own decay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol


class LearningRate(Protocol):
    """The rate of one step; `step` counts from 0 over the whole training."""

    def __call__(
        self,
        step: int,
        *,
        peak: float,
        total_steps: int,
        warmup_steps: int,
        decay_steps: Sequence[int],
    ) -> float: ...


def scaled_peak(base: float, *, global_batch_size: int, reference_batch_size: int) -> float:
    """Linear scaling: the rate grows with the batch."""
    return base * global_batch_size / reference_batch_size


def cosine(
    step: int, *, peak: float, total_steps: int, warmup_steps: int, decay_steps: Sequence[int] = ()
) -> float:
    """Half a cosine from the peak to zero after warm-up."""
    del decay_steps
    if step < warmup_steps:
        return _warm_up(step, peak=peak, warmup_steps=warmup_steps)
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))


def step_decay(
    step: int, *, peak: float, total_steps: int, warmup_steps: int, decay_steps: Sequence[int]
) -> float:
    """A tenth of the rate at each of `decay_steps`, after warm-up."""
    del total_steps
    if step < warmup_steps:
        return _warm_up(step, peak=peak, warmup_steps=warmup_steps)
    return float(peak * 0.1 ** sum(step >= at for at in decay_steps))


def _warm_up(step: int, *, peak: float, warmup_steps: int) -> float:
    return peak * (step + 1) / warmup_steps
