"""Input throughput from files to a busy accelerator, against the same load without input.

    PYTHONPATH=src python benchmarks/gpu/feed.py [--folder DIR] [--images N] [--frames N]

Packed images (uint8, 256×256 stored, 224×224 trained, batch 512) and climate frames (16 channels of
768×1152 float32 in HDF5, contiguous and gzip, batch 4 and 16; and a node's staged copy, which is
not compressed) are read in a bootstrap's order. The training step is a stand-in: matrix products
and passes over memory that take as long as a step at the stated rate. "Kept" is the rate with input
over the rate without. Files were just written, so they are in the page cache where it has room.
Without an accelerator only the feed itself is measured, on fewer files. Every batch is checked to
hold the samples of its indices.
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

from ai500.data.climate.schema import CHANNELS, HEIGHT, WIDTH, frame_fields
from ai500.data.climate.store import ClimateStore
from ai500.data.packed_store import PackedSplit
from ai500.data.resumable_work import available_cores
from ai500.data.store import Samples
from ai500.records import ProblemClass
from ai500.records.fields import image_fields
from ai500.train.feed import Batch, Feed
from ai500.train.prefetch import prefetch
from ai500.workloads.climate.recipe import WORKSTATION
from ai500.workloads.extreme_weather import WORKLOAD as WEATHER
from ai500.workloads.image_classification import WORKLOAD as IMAGES
from ai500.workloads.protocol import Workload

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
GPU = DEVICE.type != "cpu"
SECONDS = 1.6
MIN_STEPS, WARM_UP = (10, 4) if GPU else (4, 1)
IMAGE_RATE, FRAME_RATES = 10_000, (112, 150)
# Climate frames that are generated; the others repeat them, each with its own number inside.
DISTINCT_FRAMES = 4
Step = Callable[[Batch | None], None]


@dataclass(frozen=True)
class FeedCase:
    """Samples, workload and target rates of one measurement."""

    name: str
    samples: Samples
    batch_size: int
    workload: Workload
    problem_class: ProblemClass
    rates: tuple[int, ...]

    @property
    def image_bytes(self) -> int:
        return self.samples.rows(np.array([0]))["images"].nbytes

    def batches(self, steps: int) -> Iterator[tuple[Batch, Tensor]]:
        """Yield a bootstrap's batches through the feed, with the sample numbers of each."""
        feed = Feed(
            samples=self.samples, seed=1, member=0, rank=0, world_size=1,
            batch_size=self.batch_size, draws_per_sample=self.workload.draws_per_sample,
            device=DEVICE,
        )  # fmt: skip
        random = np.random.default_rng(7)
        order = random.integers(0, self.samples.count, steps * self.batch_size)
        if GPU:
            arriving = feed.epoch(0, order, first_step=0)
        else:  # on a CPU the feed does not prefetch
            requests = (
                (feed.indices(order, range(step, step + 1))[0], feed.draws(0, step))
                for step in range(steps)
            )
            batches = prefetch(requests, samples=self.samples, device=DEVICE)
            arriving = (Batch(*batch) for batch in batches)
        expected = torch.from_numpy(order).to(DEVICE).view(steps, -1)
        yield from zip(arriving, expected, strict=True)


def synchronize() -> None:
    if GPU:
        torch.accelerator.synchronize(DEVICE)


def measure_rate(case: FeedCase, step: Step, *, steps: int) -> float:
    """Return images per second from files, after warm-up."""
    return steps * case.batch_size / time_feed(case, step, steps=steps)[0]


def time_feed(case: FeedCase, step: Step, *, steps: int) -> tuple[float, float]:
    """Return wall time and CPU time of all cores."""
    mismatches = torch.zeros((), dtype=torch.int64, device=DEVICE)
    start = cores = 0.0
    for number, (batch, expected) in enumerate(case.batches(steps + WARM_UP)):
        if number == WARM_UP:
            synchronize()
            start, cores = time.perf_counter(), time.process_time()
        mismatches += (_sample_numbers(batch.fields["images"]) != expected).sum()
        step(batch)
    synchronize()
    clock, cores = time.perf_counter() - start, time.process_time() - cores
    assert int(mismatches) == 0, f"{case.name}: {int(mismatches)} samples are not those asked for"
    return clock, cores


def measure_load(step: Step, *, batch_size: int, steps: int) -> float:
    """Return images per second of the stand-in alone."""
    for _ in range(2):
        step(None)
    synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step(None)
    synchronize()
    return steps * batch_size / (time.perf_counter() - start)


def _sample_numbers(images: Tensor) -> Tensor:
    """Return each sample's number, which is stored in its first values."""
    flat = images.flatten(1)
    if images.dtype == torch.uint8:
        return flat[:, :4].contiguous().view(torch.int32).flatten().long()
    return flat[:, 0].long()


class StandIn:
    """Work of a given duration: half matrix products, half passes over memory."""

    def __init__(self) -> None:
        self._a = torch.randn(4096, 4096, device=DEVICE, dtype=torch.bfloat16)
        self._wide = torch.zeros(1 << 27, device=DEVICE)
        self._multiply, self._pass = self._seconds(self._product), self._seconds(self._over_memory)

    def work_for(self, seconds: float) -> Callable[[], None]:
        products, passes = (
            max(1, round(seconds / 2 / unit_seconds))
            for unit_seconds in (self._multiply, self._pass)
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


def measure(case: FeedCase, load: StandIn | None) -> None:
    """Measure the feed alone, with input preparation, and beside a step of each rate."""

    def inputs(batch: Batch) -> None:
        case.workload.train_inputs(case.problem_class, batch.fields, batch.draws)

    steps = max(MIN_STEPS, int(SECONDS * case.rates[0] / case.batch_size)) if GPU else MIN_STEPS
    clock, cores = time_feed(case, lambda batch: None, steps=steps)
    images = steps * case.batch_size
    size = images * case.image_bytes / 1e9
    print(
        f"{case.name:<28} feed {images / clock:6.0f}/s, {size / clock:5.2f} GB/s, "
        f"{cores / size:.2f} s of CPU per GB",
        flush=True,
    )
    if load is None:
        return
    prepared = measure_rate(case, lambda batch: inputs(batch) if batch else None, steps=steps)
    print(f"{'':<28} with input preparation {prepared:6.0f}/s")
    for target_rate in case.rates:
        work = load.work_for(case.batch_size / target_rate)

        def step(batch: Batch | None, work: Callable[[], None] = work) -> None:
            if batch is not None:
                inputs(batch)
            work()

        steps = max(MIN_STEPS, int(SECONDS * target_rate / case.batch_size))
        without = measure_load(step, batch_size=case.batch_size, steps=steps)
        with_input = measure_rate(case, step, steps=steps)
        kept = with_input / without
        print(f"{'':<28} load {without:6.0f}/s, with input {with_input:6.0f}/s: kept {kept:.3f}")


def make_packed(folder: Path, *, count: int) -> FeedCase:
    """Write a split of `count` images: a block of random ones repeated, each with its number."""
    split = PackedSplit(folder, "train", count, image_fields(256, 256, classes=1000))
    images, labels, _ = split.columns
    block = np.random.default_rng(0).integers(0, 256, (256, images.row_bytes), dtype=np.uint8)
    with images.path.open("wb") as file:
        file.write(images.header())
        for first in range(0, count, len(block)):
            rows = block[: min(len(block), count - first)]
            numbers = np.arange(first, first + len(rows), dtype="<i4")
            rows[:, :4] = numbers[:, None].view(np.uint8)
            file.write(rows.data)
    labels.path.write_bytes(labels.header() + np.zeros(count, "<i8").tobytes())
    workstation = IMAGES.problem_classes["full"]
    return FeedCase("packed, batch 512", split, 512, IMAGES, workstation, (IMAGE_RATE,))


def make_climate(folder: Path, *, frames: int) -> Iterator[FeedCase]:
    """Yield one year of contiguous frames and one of gzip-compressed ones, in a folder each."""
    frames_drawn, _ = WORKSTATION.draw("train", 0, DISTINCT_FRAMES)
    normalization = (tuple([0.0] * len(CHANNELS)), tuple([1.0] * len(CHANNELS)))
    definition = replace(WEATHER.problem_classes["workstation"], normalization=normalization)
    copy = _staged(folder, frames, frames_drawn)
    yield FeedCase("climate staged, batch 4", copy, 4, WEATHER, definition, FRAME_RATES)
    copy.columns[0].path.unlink()
    count = frames + -(-frames // 4)  # the last fifth of a single year validates
    for layout in ("contiguous", "gzip"):
        (folder / layout).mkdir()
        with h5py.File(folder / layout / "climo_1979.h5", "w") as file:
            file["boxes"] = np.full((count, 15, 5), -1.0, np.float32)
            shape = (count, len(CHANNELS), HEIGHT, WIDTH)
            (_contiguous if layout == "contiguous" else _gzip)(file, shape, frames_drawn)
        samples = ClimateStore.open(folder / layout).splits["train"]
        for batch in (4, 16) if GPU else (4,):
            name = f"climate {layout}, batch {batch}"
            yield FeedCase(name, samples, batch, WEATHER, definition, FRAME_RATES)


def _staged(folder: Path, count: int, drawn: np.ndarray) -> PackedSplit:
    """Write frames as `data.stage` leaves them on a node."""
    split = PackedSplit(folder, "frames", count, frame_fields(HEIGHT, WIDTH))
    images, labels, _ = split.columns
    with images.path.open("wb") as file:
        file.write(images.header())
        for number in range(count):
            frame = drawn[number % DISTINCT_FRAMES]
            frame[0, 0, 0] = number
            file.write(frame.data)
    boxes = np.full(labels.shape, -1.0, labels.dtype)
    labels.path.write_bytes(labels.header() + boxes.tobytes())
    return split


def _contiguous(file: h5py.File, shape: tuple[int, ...], drawn: np.ndarray) -> None:
    images = file.create_dataset("images", shape, "<f4")
    for number in range(shape[0]):
        frame = drawn[number % DISTINCT_FRAMES]
        frame[0, 0, 0] = number
        images[number] = frame


def _gzip(file: h5py.File, shape: tuple[int, ...], drawn: np.ndarray) -> None:
    """Compress on all cores here: the library would take minutes."""
    images = file.create_dataset(
        "images", shape, "<f4", chunks=(1, 1, *shape[2:]), compression="gzip", compression_opts=1
    )
    with ThreadPoolExecutor(available_cores()) as pool:
        fields = [field for frame in drawn for field in frame]
        chunks = list(pool.map(lambda field: zlib.compress(field.tobytes(), 1), fields))
        first = []
        for number in range(shape[0]):
            field = drawn[number % DISTINCT_FRAMES][0].copy()
            field[0, 0] = number
            first.append(pool.submit(zlib.compress, field.tobytes(), 1))
        for number in range(shape[0]):
            for channel in range(shape[1]):
                chunk = chunks[number % DISTINCT_FRAMES * shape[1] + channel]
                own = first[number].result() if channel == 0 else chunk
                images.id.write_direct_chunk((number, channel, 0, 0), own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--images", type=int, default=20_000 if GPU else 2_000)
    parser.add_argument("--frames", type=int, default=64 if GPU else 8)
    options = parser.parse_args()
    name = torch.get_device_module(DEVICE).get_device_name() if GPU else "no accelerator"
    print(
        f"{name}; {available_cores()} cores; files in {options.folder}; torch {torch.__version__}"
    )
    start = time.perf_counter()
    load = StandIn() if GPU else None
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        case = make_packed(Path(scratch), count=options.images)
        measure(case, load)
        for column in case.samples.columns:  # type: ignore[attr-defined]
            column.path.unlink(missing_ok=True)
        for climate_case in make_climate(Path(scratch), frames=options.frames):
            measure(climate_case, load)
    print(f"{time.perf_counter() - start:.0f} s in all, {os.times().user:.0f} s of CPU")


if __name__ == "__main__":
    main()
