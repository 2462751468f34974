"""Randomness is passed, never ambient: every stream is derived from the run's seed and its use."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """What a derived stream is for, so that no two uses ever share one."""

    TRIAL = 1
    INITIAL_WEIGHTS = 2
    AUGMENTATION = 3
    STEP = 4
    SEARCH = 5


def derive(seed: int, stream: Stream, *keys: int) -> int:
    """A 63-bit seed, the same on every machine (NumPy guarantees SeedSequence's output)."""
    sequence = np.random.SeedSequence([seed, int(stream), *keys])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
