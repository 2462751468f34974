"""Cost of `ai500 data pack`: processor seconds per 10,000 images, speed-up, memory at two sizes.

    python benchmarks/packing.py [--images 1000] [--small-images 2000] [--rows 4000] [--workers 2]
        [--repeats 3]

Images are JPEGs of 500×375 pixels, packed at 256×256 as ImageNet is. The baseline is a bare loop in
the same run: Pillow opens, converts and resizes the same files and keeps nothing. Each packing runs
in a process of its own, whose workers' time counts. The speed-up is wall time of one process over
that of `workers`, measured in turn `repeats` times, medians of both; start-up counts. Beside it
stands that of the bare loop, its files divided among as many processes: what the machine and its
load leave to be gained. Memory is the peak of one process that packs, for every reader: at
`small-images` PNGs of 28×28 pixels and at ten times as many, at `rows` of 16 KiB and at ten times
as many. The memory of a bare import is subtracted.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import h5py
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from ai500.data.pack import pack
from ai500.data.readers.open_source import Options

WIDTH, HEIGHT, SIZE = 500, 375, 256
CLASSES = 10
ROW_SHAPE = (64, 64)  # 16 KiB of float32
GROWTH = 10
SMALL = 28
"""Side of a small image, in pixels, as of Fashion-MNIST."""
PER_IMAGES = 10_000


def cost(work: Callable[[], object]) -> dict[str, float]:
    """Run work; return its processor and wall seconds, and this process's peak memory."""
    start, cpu = time.perf_counter(), _cpu_seconds()
    work()
    return {
        "cpu": _cpu_seconds() - cpu,
        "wall": time.perf_counter() - start,
        "bytes": peak_bytes(),
    }


def peak_bytes() -> int:
    """Return the peak of resident memory; `ru_maxrss` would contain the parent's before exec."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def images(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield JPEGs with the noise and the smooth areas that photographs have."""
    generator = np.random.default_rng(0)
    for number in range(count):
        coarse = generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        noise = generator.integers(0, 24, (HEIGHT, WIDTH, 1), dtype=np.uint8)
        pixels = np.asarray(smooth) // 2 + noise
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
        yield f"n{number % CLASSES:08}/{number}.JPEG", buffer.getvalue()


def write_images(folder: Path, count: int) -> None:
    """Write the images as a folder of classes, and as ImageNet's tar of tars."""
    for name, data in images(count):
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with tarfile.open(folder / "photos.tar", "w") as archive:
        for place in sorted((folder / "photos").iterdir()):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as classes:
                for path in sorted(place.iterdir()):
                    classes.add(path, path.name)
            member = tarfile.TarInfo(f"{place.name}.tar")
            member.size = inner.tell()
            inner.seek(0)
            archive.addfile(member, inner)


def bare_loop(folder: Path, *, processes: int = 1) -> None:
    """Decode and scale the same images, and keep nothing; divide them among processes."""
    paths = sorted((folder / "photos").rglob("*.JPEG"))
    if processes == 1:
        scale(paths)
        return
    spawn = multiprocessing.get_context("spawn")  # as packing starts its own
    parts = [
        spawn.Process(target=scale, args=(paths[first::processes],)) for first in range(processes)
    ]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
        assert part.exitcode == 0


def scale(paths: Sequence[Path]) -> None:
    """Decode the files and scale the square in the middle of each."""
    for path in paths:
        with Image.open(path) as opened:
            image = opened.convert("RGB")
        short = min(image.size)
        left, top = (image.width - short) / 2, (image.height - short) / 2
        box = (left, top, left + short, top + short)
        np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box))


def rows(count: int) -> tuple[Any, Any]:
    """Return inputs of 16 KiB that compress, and float targets."""
    inputs = np.zeros((count, *ROW_SHAPE), np.float32)
    inputs[:, 0] = np.random.default_rng(0).normal(size=(count, ROW_SHAPE[1]))
    return inputs, np.arange(count) / 8


def write_rows(folder: Path, kind: str, count: int) -> str:
    """Write the rows in a format; return the source's name."""
    if kind == "generator":
        return f"packing:stream_{count}"
    inputs, targets = rows(count)
    file = folder / f"{kind.replace(' ', '-')}-{count}"
    if kind == "npz":
        np.savez(f"{file}.npz", inputs=inputs, targets=targets)
        return f"{file}.npz"
    if kind == "compressed npz":
        np.savez_compressed(f"{file}.npz", inputs=inputs, targets=targets)
        return f"{file}.npz"
    if kind == "HDF5":
        with h5py.File(f"{file}.h5", "w") as opened:
            opened.create_dataset("inputs", data=inputs, chunks=(16, *ROW_SHAPE))
            opened["targets"] = targets
        return f"{file}.h5"
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.FixedSizeListArray.from_arrays(pa.array(inputs.reshape(-1)), inputs[0].size)
    table = pa.table({"inputs": flat, "targets": targets})
    pq.write_table(table, f"{file}.parquet", row_group_size=500)
    return f"{file}.parquet"


KINDS = ("npz", "compressed npz", "HDF5", "Parquet", "generator")


def write_small_images(folder: Path, count: int) -> str:
    """Write a folder of classes of small greyscale PNGs; return the source's name."""
    source = folder / f"small-{count}"
    generator = np.random.default_rng(0)
    for number in range(CLASSES):
        (source / f"class{number}").mkdir(parents=True)
    for number in range(count):
        pixels = generator.integers(0, 256, (SMALL, SMALL), dtype=np.uint8)
        Image.fromarray(pixels).save(source / f"class{number % CLASSES}" / f"{number}.png")
    return str(source)


def _stream(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"inputs": np.full(ROW_SHAPE, number, np.float32), "targets": number / 8}


def __getattr__(name: str) -> Callable[[], Iterator[dict[str, Any]]]:
    """Make `packing:stream_N` a source of N samples."""
    if name.startswith("stream_"):
        return lambda: _stream(int(name.removeprefix("stream_")))
    raise AttributeError(name)


def measured(folder: Path, work: str, *, source: str = "", workers: int = 1) -> dict[str, float]:
    """Run this file again in a process of its own; return its cost."""
    command = [sys.executable, __file__, "--work", work, "--folder", str(folder)]
    command += ["--source", source, "--workers", str(workers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def run_work(work: str, folder: Path, *, source: str, workers: int) -> None:
    """Do what `measured` asks for."""
    size = SMALL if Path(source).name.startswith("small-") else SIZE
    with tempfile.TemporaryDirectory(dir=folder) as out:
        store = Path(out) / "store"
        works: dict[str, Callable[[], object]] = {
            "import": lambda: None,
            "bare loop": lambda: bare_loop(folder, processes=workers),
            "pack": lambda: pack(source, store, options=Options(size=size), workers=workers),
        }
        print(json.dumps(cost(works[work])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--small-images", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--source", default="")
    options = parser.parse_args()
    if options.work:
        run_work(options.work, options.folder, source=options.source, workers=options.workers)
        return
    console = Console(width=100)
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    console.print(f"{cores} cores, load {load:.1f} before")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder, options.images)
        console.print(image_table(folder, options))
        console.print(memory_table(folder, rows=options.rows, images=options.small_images))


def image_table(folder: Path, options: argparse.Namespace) -> Table:
    """Measure the bare loop and packing on the same files, one process and several in turn."""
    count = options.images
    table = Table(title=f"{count} JPEGs of {WIDTH}×{HEIGHT}, packed at {SIZE}×{SIZE}")
    columns = (f"CPU s per {PER_IMAGES:,} images", "CPU / bare loop", "wall s", "speed-up")
    for column in ("", *columns):
        table.add_column(column, justify="right" if column else "left")
    works = [
        ("bare loop", "bare loop", ""),
        ("folder", "pack", str(folder / "photos")),
        ("tar of tars", "pack", str(folder / "photos.tar")),
    ]
    idle = measured(folder, "import")
    base = None
    for title, work, source in works:
        costs: dict[int, list[dict[str, float]]] = {1: [], options.workers: []}
        for _ in range(options.repeats):
            for processes, taken in costs.items():
                taken.append(measured(folder, work, source=source, workers=processes))
        walls = {number: median(cost["wall"] for cost in taken) for number, taken in costs.items()}
        for processes, taken in costs.items():
            cpu = (median(cost["cpu"] for cost in taken) - idle["cpu"]) * PER_IMAGES / count
            base = base or cpu
            table.add_row(
                f"{title}, {processes} {'process' if processes == 1 else 'processes'}",
                f"{cpu:.1f}",
                f"{cpu / base:.2f}",
                f"{walls[processes]:.1f}",
                f"{walls[1] / walls[processes]:.2f}" if processes > 1 else "",
            )
    return table


def memory_table(folder: Path, *, rows: int, images: int) -> Table:
    """Measure the peak memory of each reader at two sizes of its data."""
    table = Table(title="Peak memory of a process above a bare import")
    for column in ("", "samples", "data, MB", "peak, MB", "samples", "data, MB", "peak, MB"):
        table.add_column(column, justify="right" if column else "left")
    idle = measured(folder, "import")["bytes"]
    for kind in ("small images", *KINDS):
        cells = []
        for growth in (1, GROWTH):
            count = growth * (images if kind == "small images" else rows)
            if kind == "small images":
                source, row_bytes = write_small_images(folder, count), 3 * SMALL**2
            else:
                source, row_bytes = write_rows(folder, kind, count), 4 * int(np.prod(ROW_SHAPE))
            peak = measured(folder, "pack", source=source)["bytes"] - idle
            cells += [f"{count:,}", f"{count * row_bytes / 1e6:.0f}", f"{peak / 1e6:.0f}"]
            if Path(source).is_dir():
                shutil.rmtree(source)
            else:
                Path(source).unlink(missing_ok=True)
        table.add_row(kind, *cells)
    return table


if __name__ == "__main__":
    main()
