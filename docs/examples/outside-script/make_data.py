"""Write the example's data: three spirals with noise, and the labels of their points."""

import sys
from pathlib import Path

import numpy as np


def spirals(samples: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw points of three spirals."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, samples)
    radius = random.random(samples)
    angle = 4 * radius + labels * 2 * np.pi / 3 + random.normal(0, 0.45, samples)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype(np.float32), labels


folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for split, (samples, seed) in {"train": (1500, 1), "validation": (600, 2)}.items():
    inputs, labels = spirals(samples, seed=seed)
    np.save(folder / f"{split}_inputs.npy", inputs)
    np.save(folder / f"{split}_labels.npy", labels)
