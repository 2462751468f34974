"""Seeds derived from the run's seed and their purpose; no global random state."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


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
