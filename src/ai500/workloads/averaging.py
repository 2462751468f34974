"""The ensemble's prediction as the mean of its members'."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.workloads.member_predictions import MemberPredictions, sample_blocks

BLOCK_VALUES = 1 << 24
"""Values of one block of running sums: 128 MiB in FP64."""


def average(members: MemberPredictions) -> NDArray[Any]:
    """Average predictions over the members whose vote counts, by running sums in FP64.

    The sums are formed in the order of the members. The mean of integers, such as quantized
    probabilities, is rounded and keeps their type.
    """
    integers = np.issubdtype(members.dtype, np.integer)
    averaged = np.empty(members.shape, members.dtype if integers else np.float64)
    for block in sample_blocks(members, values=BLOCK_VALUES):
        mean = np.zeros(averaged[block].shape)
        votes = np.zeros(len(mean))
        for voters, rows in members.block(block):
            mean[voters] += rows
            votes[voters] += 1
        mean /= votes.reshape(-1, *[1] * (mean.ndim - 1))
        averaged[block] = np.rint(mean, out=mean) if integers else mean
    return averaged
