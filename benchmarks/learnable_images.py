"""Speed of generating the learnable images, against NumPy's random bytes, and its growth.

Run: python benchmarks/learnable_images.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ai500.workloads.learnable_images import SMOKE, WORKSTATION, LearnableImages

REPEATS = 5


def time_call(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(name: str, generator: LearnableImages, *, counts: tuple[int, ...]) -> None:
    """Print the minimum time of several, ours and the reference alternating."""
    random = np.random.default_rng(0)
    shape = (generator.height, generator.width, 3)
    generator.draw("train", 0, counts[0])
    for count in counts:
        generated, random_bytes = [], []
        for _ in range(REPEATS):
            generated.append(time_call(lambda n=count: generator.draw("train", 0, n)))
            random_bytes.append(
                time_call(lambda n=count: random.integers(0, 256, (n, *shape), dtype=np.uint8))
            )
        least = min(generated)
        print(
            f"{name:<12} {count:>6} images {least:8.3f} s {count / least:9.0f} images/s  "
            f"{least / count * 1e6:8.1f} µs/image  {least / min(random_bytes):6.1f} × "
            "the time of random bytes"
        )


if __name__ == "__main__":
    compare("smoke", SMOKE, counts=(500, 1_000, 2_000, 4_000))
    compare("workstation", WORKSTATION, counts=(25, 50, 100, 200))
