"""How fast the learnable images are made, against NumPy's random bytes, and how the cost grows.

Run: python benchmarks/learnable_images.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ai500.workloads.learnable_images import SMOKE, WORKSTATION, LearnableImages

REPEATS = 5


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(name: str, generator: LearnableImages, *, counts: tuple[int, ...]) -> None:
    """Least time of several turns, ours and the reference in alternation."""
    random = np.random.default_rng(0)
    shape = (generator.height, generator.width, 3)
    generator.draw("train", 0, counts[0])
    for count in counts:
        ours, reference = [], []
        for _ in range(REPEATS):
            ours.append(seconds(lambda n=count: generator.draw("train", 0, n)))
            reference.append(
                seconds(lambda n=count: random.integers(0, 256, (n, *shape), dtype=np.uint8))
            )
        print(
            f"{name:<12} {count:>6} images {min(ours):8.3f} s {count / min(ours):9.0f} images/s  "
            f"{min(ours) / count * 1e6:8.1f} µs/image  {min(ours) / min(reference):6.1f} × "
            "the time of random bytes"
        )


if __name__ == "__main__":
    compare("smoke", SMOKE, counts=(500, 1_000, 2_000, 4_000))
    compare("workstation", WORKSTATION, counts=(25, 50, 100, 200))
