"""Does input keep up? From files to a busy accelerator, against the same load without input.

    PYTHONPATH=src python benchmarks/gpu/feed.py [--folder DIR] [--images N] [--frames N]

Packed images (uint8, 256×256 stored, 224×224 trained, batch 512) and climate frames (16 channels
of 768×1152 float32 in HDF5, contiguous and gzip, batch 4 and 16; and a node's copy of such, which
is not compressed) are fed in a bootstrap's order.
The training step is a stand-in: matrix products and passes over memory that take as long as a step
at the stated rate. "Kept" is the rate with input over the rate without. Files were just written,
so they are in the page cache where it has room. Without an accelerator only the feeding itself is
measured, on fewer files. Every batch is checked to hold the samples that were asked for.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from ai500.data.climate.schema import CHANNELS, HEIGHT, WIDTH
from ai500.data.climate.store import FRAME_LAYOUT, ClimateStore
from ai500.data.image_store import ImageSplit
from ai500.data.resumable_work import available_cores
from ai500.data.store import Samples
from ai500.records import ProblemClass
from ai500.train.feed import Batch, Feed
from ai500.train.prefetch import prefetch
from ai500.workloads.climate.recipe import WORKSTATION
from ai500.workloads.extreme_weather import WORKLOAD as WEATHER
from ai500.workloads.image_classification import WORKLOAD as IMAGES
from ai500.workloads.protocol import Workload

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
GPU = DEVICE.type != "cpu"
SECONDS = 1.6
LEAST_STEPS, WARM_UP = (10, 4) if GPU else (4, 1)
IMAGE_RATE, FRAME_RATES = 10_000, (112, 150)
DISTINCT = 4
"""Climate frames that are generated; the others repeat them, each with its number in it."""
Step = Callable[[Batch | None], None]


@dataclass(frozen=True)
class Fed:
    """What is fed to what."""

    name: str
    samples: Samples
    batch_size: int
    workload: Workload
    problem_class: ProblemClass
    rates: tuple[int, ...]

    @property
    def image_bytes(self) -> int:
        return self.samples.rows(np.array([0]))[0].nbytes

    def batches(self, steps: int) -> Iterator[tuple[Batch, Tensor]]:
        """A bootstrap's batches through the feed, with the numbers that belong into each."""
        feed = Feed(
            samples=self.samples, seed=1, member=0, rank=0, world_size=1,
            batch_size=self.batch_size, draws_per_image=self.workload.draws_per_image,
            device=DEVICE,
        )  # fmt: skip
        random = np.random.default_rng(7)
        order = random.integers(0, self.samples.count, steps * self.batch_size)
        if GPU:
            arriving = feed.epoch(0, order, first_step=0)
        else:  # the feed itself reads ahead only where there is something to overlap with
            wanted = feed._steps(0, order, 0)
            arriving = (Batch(*one) for one in prefetch(wanted, samples=self.samples,
                                                          device=DEVICE))  # fmt: skip
        expected = torch.from_numpy(order).to(DEVICE).view(steps, -1)
        yield from zip(arriving, expected, strict=True)


def synchronize() -> None:
    if GPU:
        torch.accelerator.synchronize(DEVICE)


def rate(fed: Fed, step: Step, *, steps: int) -> float:
    """Images a second from files, after the first few batches."""
    return steps * fed.batch_size / spent(fed, step, steps=steps)[0]


def spent(fed: Fed, step: Step, *, steps: int) -> tuple[float, float]:
    """Seconds on the clock and of all cores together."""
    wrong = torch.zeros((), dtype=torch.int64, device=DEVICE)
    started = cores = 0.0
    for number, (batch, expected) in enumerate(fed.batches(steps + WARM_UP)):
        if number == WARM_UP:
            synchronize()
            started, cores = time.perf_counter(), time.process_time()
        wrong += (_numbers(batch.images) != expected).sum()
        step(batch)
    synchronize()
    clock, cores = time.perf_counter() - started, time.process_time() - cores
    assert int(wrong) == 0, f"{fed.name}: {int(wrong)} samples are not those asked for"
    return clock, cores


def without_input(step: Step, *, batch_size: int, steps: int) -> float:
    """Images a second of the stand-in alone."""
    for _ in range(2):
        step(None)
    synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        step(None)
    synchronize()
    return steps * batch_size / (time.perf_counter() - started)


def _numbers(images: Tensor) -> Tensor:
    """Each sample's own number, which was written over its first values."""
    flat = images.flatten(1)
    if images.dtype == torch.uint8:
        return flat[:, :4].contiguous().view(torch.int32).flatten().long()
    return flat[:, 0].long()


class StandIn:
    """Work of a stated length: half of it matrix products, half passes over memory."""

    def __init__(self) -> None:
        self._a = torch.randn(4096, 4096, device=DEVICE, dtype=torch.bfloat16)
        self._wide = torch.zeros(1 << 27, device=DEVICE)
        self._multiply, self._pass = self._seconds(self._product), self._seconds(self._over_memory)

    def lasting(self, seconds: float) -> Callable[[], None]:
        products, passes = (
            max(1, round(seconds / 2 / one)) for one in (self._multiply, self._pass)
        )

        def work() -> None:
            for number in range(products):
                self._product()
                if number * passes // products != (number + 1) * passes // products:
                    self._over_memory()

        return work

    def _product(self) -> None:
        torch.mm(self._a, self._a)

    def _over_memory(self) -> None:
        self._wide.add_(1.0)

    def _seconds(self, work: Callable[[], None]) -> float:
        for _ in range(50):
            work()
        synchronize()
        started = time.perf_counter()
        for _ in range(200):
            work()
        synchronize()
        return (time.perf_counter() - started) / 200


def measure(fed: Fed, load: StandIn | None) -> None:
    """Feeding alone, with the inputs made, and beside a training step of each rate."""

    def inputs(batch: Batch) -> None:
        fed.workload.train_inputs(fed.problem_class, batch.images, batch.labels, batch.draws)

    steps = max(LEAST_STEPS, int(SECONDS * fed.rates[0] / fed.batch_size)) if GPU else LEAST_STEPS
    clock, cores = spent(fed, lambda batch: None, steps=steps)
    images = steps * fed.batch_size
    size = images * fed.image_bytes / 1e9
    print(
        f"{fed.name:<28} fed {images / clock:6.0f}/s, {size / clock:5.2f} GB/s, "
        f"{cores / size:.2f} s of CPU a GB",
        flush=True,
    )
    if load is None:
        return
    made = rate(fed, lambda batch: inputs(batch) if batch else None, steps=steps)
    print(f"{'':<28} and made into inputs {made:6.0f}/s")
    for wanted in fed.rates:
        work = load.lasting(fed.batch_size / wanted)

        def step(batch: Batch | None, work: Callable[[], None] = work) -> None:
            if batch is not None:
                inputs(batch)
            work()

        steps = max(LEAST_STEPS, int(SECONDS * wanted / fed.batch_size))
        bare = without_input(step, batch_size=fed.batch_size, steps=steps)
        full = rate(fed, step, steps=steps)
        print(f"{'':<28} load {bare:6.0f}/s, with input {full:6.0f}/s: kept {full / bare:.3f}")


def packed(folder: Path, *, count: int) -> Fed:
    """A split of so many images: a block of random ones over and over, each with its number."""
    split = ImageSplit(folder, "train", count, (256, 256, 3))
    images, labels, _ = split.columns
    block = np.random.default_rng(0).integers(0, 256, (256, images.row_bytes), dtype=np.uint8)
    with images.path.open("wb") as file:
        file.write(images.header())
        for first in range(0, count, len(block)):
            some = block[: min(len(block), count - first)]
            numbers = np.arange(first, first + len(some), dtype="<i4")
            some[:, :4] = numbers[:, None].view(np.uint8)
            file.write(some.data)
    labels.path.write_bytes(labels.header() + np.zeros(count, "<i8").tobytes())
    workstation = IMAGES.problem_classes["full"]
    return Fed("packed, batch 512", split, 512, IMAGES, workstation, (IMAGE_RATE,))


def climate(folder: Path, *, frames: int) -> Iterator[Fed]:
    """One year of contiguous frames and one of gzip's, a chunk a field, in a folder each."""
    drawn, _ = WORKSTATION.draw("train", 0, DISTINCT)
    normalization = (tuple([0.0] * len(CHANNELS)), tuple([1.0] * len(CHANNELS)))
    known = replace(WEATHER.problem_classes["workstation"], normalization=normalization)
    copy = _staged(folder, frames, drawn)
    yield Fed("climate staged, batch 4", copy, 4, WEATHER, known, FRAME_RATES)
    copy.columns[0].path.unlink()
    count = frames + -(-frames // 4)  # the last fifth of a single year validates
    for layout in ("contiguous", "gzip"):
        (folder / layout).mkdir()
        with h5py.File(folder / layout / "climo_1979.h5", "w") as file:
            file["boxes"] = np.full((count, 15, 5), -1.0, np.float32)
            shape = (count, len(CHANNELS), HEIGHT, WIDTH)
            (_contiguous if layout == "contiguous" else _gzip)(file, shape, drawn)
        samples = ClimateStore.open(folder / layout).splits["train"]
        for batch in (4, 16) if GPU else (4,):
            name = f"climate {layout}, batch {batch}"
            yield Fed(name, samples, batch, WEATHER, known, FRAME_RATES)


def _staged(folder: Path, count: int, drawn: np.ndarray) -> ImageSplit:
    """Frames as `data.stage` leaves them on a node."""
    split = ImageSplit(folder, "frames", count, (HEIGHT, WIDTH, len(CHANNELS)), FRAME_LAYOUT)
    images, labels, _ = split.columns
    with images.path.open("wb") as file:
        file.write(images.header())
        for number in range(count):
            frame = drawn[number % DISTINCT]
            frame[0, 0, 0] = number
            file.write(frame.data)
    boxes = np.full(labels.shape, -1.0, labels.dtype)
    labels.path.write_bytes(labels.header() + boxes.tobytes())
    return split


def _contiguous(file: h5py.File, shape: tuple[int, ...], drawn: np.ndarray) -> None:
    images = file.create_dataset("images", shape, "<f4")
    for number in range(shape[0]):
        frame = drawn[number % DISTINCT]
        frame[0, 0, 0] = number
        images[number] = frame


def _gzip(file: h5py.File, shape: tuple[int, ...], drawn: np.ndarray) -> None:
    """Compressed here, by all cores: the library would take minutes."""
    images = file.create_dataset(
        "images", shape, "<f4", chunks=(1, 1, *shape[2:]), compression="gzip", compression_opts=1
    )
    with ThreadPoolExecutor(available_cores()) as pool:
        fields = [field for frame in drawn for field in frame]
        chunks = list(pool.map(lambda field: zlib.compress(field.tobytes(), 1), fields))
        first = []
        for number in range(shape[0]):
            field = drawn[number % DISTINCT][0].copy()
            field[0, 0] = number
            first.append(pool.submit(zlib.compress, field.tobytes(), 1))
        for number in range(shape[0]):
            for channel in range(shape[1]):
                chunk = chunks[number % DISTINCT * shape[1] + channel]
                own = first[number].result() if channel == 0 else chunk
                images.id.write_direct_chunk((number, channel, 0, 0), own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--images", type=int, default=20_000 if GPU else 2_000)
    parser.add_argument("--frames", type=int, default=64 if GPU else 8)
    chosen = parser.parse_args()
    name = torch.get_device_module(DEVICE).get_device_name() if GPU else "no accelerator"
    print(f"{name}; {available_cores()} cores; files in {chosen.folder}; torch {torch.__version__}")
    began = time.perf_counter()
    load = StandIn() if GPU else None
    with tempfile.TemporaryDirectory(dir=chosen.folder) as made:
        fed = packed(Path(made), count=chosen.images)
        measure(fed, load)
        for column in fed.samples.columns:  # type: ignore[attr-defined]
            column.path.unlink(missing_ok=True)
        for one in climate(Path(made), frames=chosen.frames):
            measure(one, load)
    print(f"{time.perf_counter() - began:.0f} s in all, {os.times().user:.0f} s of CPU")


if __name__ == "__main__":
    main()
