"""The ensemble's prediction as the mean of its members'."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_VALUES = 1 << 22
"""Values of one block: a mean is formed in blocks of samples, so that its FP64 copies are small."""


def average(members: NDArray[Any], *, voters: NDArray[np.bool_]) -> NDArray[Any]:
    """Average predictions [M, samples, …] over the members whose vote counts, in FP64.

    The mean of integers, such as quantized probabilities, is rounded and keeps their type.
    """
    flat = members.reshape(*members.shape[:2], -1)
    integers = np.issubdtype(members.dtype, np.integer)
    averaged = np.empty(flat.shape[1:], members.dtype if integers else np.float64)
    step = max(1, BLOCK_VALUES // max(1, len(members) * flat.shape[2]))
    for first in range(0, len(averaged), step):
        block = slice(first, first + step)
        votes = voters[:, block].astype(np.float64)
        total = np.einsum("msc,ms->sc", flat[:, block].astype(np.float64), votes)
        mean = total / votes.sum(axis=0)[:, None]
        averaged[block] = np.rint(mean) if integers else mean
    return averaged.reshape(members.shape[1:])
