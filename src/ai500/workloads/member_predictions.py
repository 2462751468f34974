"""Members' predictions of the same samples, as `Workload.combine` reads them: block by block.

Only one member's block is in memory at a time, so that the peak of an aggregation does not depend
on the size of the ensemble.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

FINITE_BLOCK_VALUES = 1 << 22
"""Values that are checked for NaN at a time."""
Voters = slice | NDArray[np.bool_]
"""Samples of a block on which a member's prediction counts."""


class MemberPredictions(Protocol):
    """Predictions of all members on the same samples."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one member's predictions: samples first."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the members' predictions."""

    def __len__(self) -> int:
        """Return the number of members."""

    def block(self, samples: slice) -> Iterator[tuple[Voters, NDArray[Any]]]:
        """Yield for each member, in order, which samples of the block it predicts, and its rows
        for those samples."""


@dataclass(frozen=True)
class ArrayPredictions:
    """Predictions in memory."""

    members: Sequence[NDArray[Any]]
    voters: NDArray[np.bool_] | None = None
    """[M, samples], False where a prediction does not count; None: all count."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one member's predictions."""
        return self.members[0].shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the members' predictions."""
        return self.members[0].dtype

    def __len__(self) -> int:
        return len(self.members)

    def block(self, samples: slice) -> Iterator[tuple[Voters, NDArray[Any]]]:
        """Yield each member's part of a block."""
        for number, predictions in enumerate(self.members):
            rows = predictions[samples]
            if self.voters is None:
                yield slice(None), rows
            else:
                counting = self.voters[number, samples]
                yield counting, rows[counting]


def sample_blocks(members: MemberPredictions, *, values: int) -> Iterator[slice]:
    """Yield blocks of samples with at most `values` predicted numbers per member, or one sample."""
    samples, *row = members.shape
    step = max(1, values // max(1, math.prod(row)))
    for first in range(0, samples, step):
        yield slice(first, min(samples, first + step))


def all_finite(predictions: NDArray[Any]) -> bool:
    """Return True if no number is NaN or infinite, in constant memory."""
    if predictions.dtype.kind != "f":
        return True
    step = max(1, FINITE_BLOCK_VALUES // max(1, math.prod(predictions.shape[1:])))
    blocks = (predictions[first : first + step] for first in range(0, len(predictions), step))
    return all(bool(np.isfinite(block).all()) for block in blocks)
