"""Climate data: frames generated per second and by part; reading against h5py's own `dataset[i]`.

Run: python benchmarks/climate.py [--frames 24] [--folder DIR]
Reading is measured on one set of files in one run, ours and h5py's alternating; the files are in
the page cache, so the software is measured, not the disk.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from ai500.data.climate.index import digest_of, moments_of
from ai500.data.climate.schema import CHANNELS
from ai500.data.climate.store import ClimateSplit, ClimateStore
from ai500.workloads.climate.background import background
from ai500.workloads.climate.generator import add_grain, draw, draw_events
from ai500.workloads.climate.noise import Draws, magnified
from ai500.workloads.climate.patterns import Canvas
from ai500.workloads.climate.recipe import SMOKE, WORKSTATION, ClimateRecipe, generate_years

REPEATS = 3
BATCH = 4
LAYOUTS = {
    "contiguous": {},
    "chunk a frame": {"chunks": (1, len(CHANNELS), 768, 1152)},
    "gzip, chunk a channel": {"chunks": (1, 1, 768, 1152), "compression": "gzip"},
}


def time_call(call: Callable[[], object]) -> tuple[float, float]:
    """Return wall time and CPU time of all cores."""
    start, cores = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - cores


class PartTimer:
    """CPU seconds of one thread, by part."""

    def __init__(self) -> None:
        self.seconds_by_part: dict[str, float] = {}
        self._last = time.thread_time()

    def lap(self, part: str) -> None:
        now = time.thread_time()
        self.seconds_by_part[part] = self.seconds_by_part.get(part, 0.0) + now - self._last
        self._last = now


def time_parts(name: str, recipe: ClimateRecipe, *, frames: int) -> None:
    """Print CPU milliseconds per frame of one thread, by part."""
    device = torch.device("cpu")
    size = {"height": recipe.height, "width": recipe.width}
    torch.set_num_threads(1)
    draw(recipe, "train", 0, 1, device="cpu")
    timer = PartTimer()
    for number in range(frames):
        key = (recipe.seed, 0, number)
        coarse, texture = background(Draws(*key, 2), summer=0.5, device=device)
        timer.lap("background")
        fields = torch.stack([magnified(field, **size) for field in coarse])
        canvas = Canvas(fields, magnified(texture, **size))
        timer.lap("interpolation")
        draw_events(canvas, Draws(*key, 1), recipe, summer=0.5)
        timer.lap("events")
        add_grain(fields, Draws(*key, 3), amount=1.0)
        timer.lap("noise")
        frame = fields.numpy()
        digest_of(frame, np.zeros((15, 5), np.float32))
        timer.lap("digest")
        moments_of(frame[None])
        timer.lap("statistics")
    total = sum(timer.seconds_by_part.values()) / frames
    parts = ", ".join(
        f"{part} {1000 * value / frames:.1f}" for part, value in timer.seconds_by_part.items()
    )
    print(f"{name:<12} {1000 * total:7.1f} ms of CPU per frame: {parts}")


def time_generation(
    name: str, recipe: ClimateRecipe, *, folder: Path, workers: tuple[int, ...]
) -> None:
    """Print frames per second, with files written, hashed and synced."""
    count = recipe.train + recipe.validation
    for number in workers:
        path = folder / f"{name}-{number}"
        elapsed, _ = time_call(partial(generate_years, path, recipe, workers=number))
        shutil.rmtree(path)
        print(f"{name:<12} {number} processes: {count / elapsed:7.2f} frames/s, start-up included")


def time_reading(folder: Path, *, frames: int) -> None:
    """Print MB/s of random batches, against `dataset[i]` one by one."""
    recipe = replace(WORKSTATION, train=frames, validation=1)
    source = generate_years(folder / "source", recipe)
    values, boxes = source.splits["train"].rows(np.arange(frames)).values()
    order = np.random.default_rng(0).permutation(frames)
    batches = [order[first : first + BATCH] for first in range(0, frames, BATCH)]
    for name, layout in LAYOUTS.items():
        path = folder / name.replace(" ", "-").replace(",", "")
        path.mkdir()
        for year, count in ((1979, frames), (1980, 1)):
            with h5py.File(path / f"climo_{year}.h5", "w") as file:
                file.create_dataset("images", data=values[:count], **layout)
                file.create_dataset("boxes", data=boxes[:count])
        split = ClimateStore.open(path).splits["train"]
        split_times, h5py_times = [], []
        for _ in range(REPEATS):
            split_times.append(time_call(partial(_read_split, split, batches)))
            h5py_times.append(time_call(partial(_read_h5py, path / "climo_1979.h5", batches)))
        size = values.nbytes / 1e6
        split_wall, split_cpu = np.min(split_times, axis=0)
        h5py_wall, h5py_cpu = np.min(h5py_times, axis=0)
        print(
            f"{name:<22} {size / split_wall:6.0f} MB/s, h5py {size / h5py_wall:6.0f}: "
            f"{h5py_wall / split_wall:.2f} ×; "
            f"CPU {1e3 * split_cpu / size:.2f} and {1e3 * h5py_cpu / size:.2f} s/GB"
        )
        shutil.rmtree(path)


def _read_split(split: ClimateSplit, batches: list[NDArray[np.int64]]) -> None:
    for batch in batches:
        split.rows(batch)


def _read_h5py(path: Path, batches: list[NDArray[np.int64]]) -> None:
    with h5py.File(path) as file:
        images = file["images"]
        for batch in batches:
            np.stack([images[number] for number in batch])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=24, help="of 768×1152 in the reading part")
    parser.add_argument("--folder", type=Path, default=None, help="where files are made")
    options = parser.parse_args()
    with torch.inference_mode():
        time_parts("smoke", SMOKE, frames=10)
        time_parts("workstation", WORKSTATION, frames=4)
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        time_generation(
            "smoke", replace(SMOKE, train=96, validation=32), folder=Path(scratch), workers=(1, 2)
        )
        few = replace(WORKSTATION, train=12, validation=4)
        time_generation("workstation", few, folder=Path(scratch), workers=(1, 2))
        time_reading(Path(scratch), frames=options.frames)
