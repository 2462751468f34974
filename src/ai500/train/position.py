"""The position of a training: what its next step depends on, besides the weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Position:
    """Position of the training, with the running sums of the current epoch."""

    seed: int
    epoch: int = 0
    step: int = 0
    samples: int = 0
    loss_sum: float = 0.0
