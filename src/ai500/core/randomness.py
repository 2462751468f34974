"""Seeds derived from the run's seed and their purpose, and hashes; no global random state."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class Stream(IntEnum):
    """Purpose of a derived seed; different purposes never share a random stream."""

    TRIAL = 1
    INITIAL_WEIGHTS = 2
    AUGMENTATION = 3
    STEP = 4
    SEARCH = 5


def derive(seed: int, stream: Stream, *keys: int) -> int:
    """Derive a 63-bit seed, the same on every machine (NumPy guarantees SeedSequence's output)."""
    sequence = np.random.SeedSequence([seed, int(stream), *keys])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def mix(words: Words) -> Words:
    """Apply the finalizer of splitmix64; arithmetic on arrays of uint64 wraps."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def hashes(keys: Words, slots: Words) -> Words:
    """Hash each key (a row) with each slot (a column), the same on every machine."""
    return mix(keys[:, None] + (slots[None, :] + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
