"""A sampler: half of the samples, each once, instead of a bootstrap (subagging)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Halves:
    """How often each sample is in a member's share: here 0 or 1."""

    name = "halves"

    def draw(self, samples: int, *, seed: int, member: int) -> NDArray[np.uint8]:
        """Raw words and a stable sort: the same on every machine and every NumPy."""
        words = np.random.Philox(key=[seed % 2**64, member]).random_raw(samples)
        counts = np.zeros(samples, np.uint8)
        counts[np.argsort(words, kind="stable")[: samples // 2]] = 1
        return counts


HALVES = Halves()
