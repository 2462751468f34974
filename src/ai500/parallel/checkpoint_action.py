"""Action after a training step, on which the ranks of a member agree."""

from __future__ import annotations

from enum import IntEnum


class CheckpointAction(IntEnum):
    """Action after a training step; rank 0 decides."""

    CONTINUE = 0
    SAVE = 1
    STOP = 2
    """Save, then end the training."""
