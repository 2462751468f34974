"""The samples and augmentation draws of a step: the same for every P_degree and framework."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ai500.core.randomness import Stream, derive
from ai500.core.reference_random import ReferenceGenerator


def rank_indices(
    order: NDArray[np.int64], steps: range, *, rank: int, batch_size: int, world_size: int
) -> NDArray[np.int64]:
    """Return a rank's samples of consecutive steps of an epoch's order, a row per step."""
    size = batch_size * world_size
    whole = order[steps[0] * size : (steps[-1] + 1) * size]
    return whole.reshape(len(steps), size)[:, rank * batch_size : (rank + 1) * batch_size]


def augmentation_draws(
    seed: int, member: int, epoch: int, step: int, *, samples: int, draws_per_sample: int
) -> NDArray[np.float32]:
    """Draw the augmentation of a step's global batch, a row per image."""
    generator = ReferenceGenerator(derive(seed, Stream.AUGMENTATION, member, epoch, step))
    return generator.uniform(samples * draws_per_sample).reshape(samples, draws_per_sample)
