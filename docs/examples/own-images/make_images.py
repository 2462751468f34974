"""Write a folder of greyscale PNGs of 28×28 pixels in ten classes, as Fashion-MNIST unpacked is.

    python make_images.py FOLDER

A class is a smooth pattern; its images are shifted and noisy copies.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = ("bag", "boot", "coat", "dress", "hat", "pullover", "sandal", "shirt", "sneaker", "top")
SIDE = 28
COUNTS = {"train": 60, "val": 20}
"""Images of each class by split."""

folder, generator = Path(sys.argv[1]), np.random.default_rng(0)
for name in NAMES:
    coarse = Image.fromarray(generator.integers(0, 256, (4, 4), np.uint8))
    pattern = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float64)
    for split, count in COUNTS.items():
        (folder / split / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            shifted = np.roll(pattern, generator.integers(-3, 4, 2), axis=(0, 1))
            noisy = shifted + generator.normal(0, 30, (SIDE, SIDE))
            image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
            image.save(folder / split / name / f"{number:03}.png")
