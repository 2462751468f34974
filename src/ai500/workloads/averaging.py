"""The ensemble's prediction as the mean of its members'."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def average(members: NDArray[np.floating], *, voters: NDArray[np.bool_]) -> NDArray[np.floating]:
    """Average predictions [M, samples, …] over the members whose vote counts, in FP64."""
    flat = members.reshape(*members.shape[:2], -1).astype(np.float64)
    total = np.einsum("msc,ms->sc", flat, voters.astype(np.float64))
    averaged: NDArray[np.floating] = total / voters.sum(axis=0)[:, None]
    return averaged.reshape(members.shape[1:])
