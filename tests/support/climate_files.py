"""Small HDF5 years in every layout that is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

Frames = np.ndarray[Any, np.dtype[np.float32]]


FRAMES, HEIGHT, WIDTH = 7, 12, 20


LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "a chunk a frame": {"chunks": (1, 16, HEIGHT, WIDTH)},
    "gzip": {"chunks": (1, 1, HEIGHT, WIDTH), "compression": "gzip"},
    "gzip, shuffled, frames together": {
        "chunks": (3, 5, 8, 7), "compression": "gzip", "shuffle": True,
    },
    "lzf": {"chunks": (2, 16, HEIGHT, WIDTH), "compression": "lzf"},
    "checksummed": {"chunks": (2, 16, HEIGHT, WIDTH), "fletcher32": True},
}  # fmt: skip


# Mean and deviation of each channel, in the schema's order and in SI units.
CLIMATE = (
    (5e-5, 5e-6), (9.7e4, 2e3), (1.01e5, 1e3), (0.01, 1e-3), (220, 4), (255, 5), (60, 5), (280, 10),
    (281, 10), (2, 9), (1, 6), (0, 6), (0, 4), (80, 80), (1.2e4, 300), (60, 5),
)  # fmt: skip


def frames_of(seed: int, count: int = FRAMES) -> Frames:
    """Noise with the mean and the deviation of each channel."""
    mean, deviation = np.array(CLIMATE).T[..., None, None]
    values = np.random.default_rng(seed).normal(size=(count, 16, HEIGHT, WIDTH))
    return (mean + deviation * values).astype(np.float32)


def boxes_of(count: int = FRAMES) -> np.ndarray[Any, np.dtype[np.int64]]:
    boxes = np.full((count, 15, 5), -1)
    boxes[0, 0] = (1, 2, 5, 9, 3)
    boxes[2, :2] = [(0, 0, HEIGHT, WIDTH, 0), (3, 3, 4, 4, 2)]
    return boxes


def write_year(
    folder: Path, year: int, *, frames: Frames | None = None, boxes: Any = None, **layout: Any
) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"climo_{year}.h5"
    frames = frames_of(year) if frames is None else frames
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=frames, **layout)
        file.create_dataset("boxes", data=boxes_of(len(frames)) if boxes is None else boxes)
    return path


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
