"""Climate files of the real size and with chunks of many frames: no more is held than must be."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ai500.data.climate import index as indexing
from ai500.data.climate.check import check_years
from ai500.data.climate.schema import CHANNELS
from ai500.data.climate.store import ClimateStore
from ai500.data.climate.years import Chunk, Chunked, Year
from ai500.parallel import data_duplicator
from ai500.parallel.data_duplicator import duplicate
from tests.support.climate_files import HEIGHT, WIDTH, frames_of, write_year


@contextmanager
def peak_bytes() -> Iterator[list[int]]:
    """The most that was allocated inside, numpy's arrays included."""
    tracemalloc.start()
    peak = [0]
    try:
        yield peak
        peak[0] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("chunks", [(1, 1, 768, 1152), True], ids=["a field", "h5py's own"])
def test_the_real_size_is_opened_and_checked_without_being_loaded(
    chunks: Any, tmp_path: Path
) -> None:
    corner = np.arange(48 * 72, dtype=np.float32).reshape(48, 72)
    for year, count in ((1979, 1460), (1980, 4)):
        with h5py.File(tmp_path / f"climo_{year}.h5", "w") as file:
            images = file.create_dataset(
                "images", (count, 16, 768, 1152), "f4", chunks=chunks, compression="gzip"
            )
            boxes = file.create_dataset("boxes", (count, 15, 5), "i8", fillvalue=-1)
            images[min(count - 1, 700), 6, -48:, -72:] = corner + (year - 1979)
            boxes[min(count - 1, 700), 0] = (100, 200, 160, 270, 1)
    store = ClimateStore.open(tmp_path)
    train = store.splits["train"]
    assert (train.count, train.fields[0].shape) == (1460, (16, 768, 1152))
    frames, labels = train.rows(np.array([700, 3])).values()
    assert (frames[0, 6, -48:, -72:] == corner).all()
    assert not frames[1].any() and not frames[0, 5].any() and not frames[0, 6, :-48].any()
    assert labels[0, 0].tolist() == [100, 200, 160, 270, 1]
    checked = check_years(tmp_path)
    # All but a corner of one channel was never written: the check names that, and nothing else.
    assert {problem.text.split(":")[0] for problem in checked.problems} == set(CHANNELS)
    assert all("constant (0)" in each.text or "TMQ: values" in each.text
               for each in checked.problems)  # fmt: skip
    assert checked.facts["boxes"] == 2
    assert [f"h5repack -l images:CHUNK=1x1x768x1152 {year.path.name}" in note
            for year, note in zip(store.years, checked.notes, strict=False)] == (
        [True] if chunks is True else [])  # fmt: skip
    _, first, last = next(indexing.blocks(store.years))
    with peak_bytes() as peak:
        _, slab = next(indexing.slabs(store.years[0], first, last))
    assert slab.nbytes <= peak[0] < 200e6
    assert indexing.threads_for(store.years) * slab.nbytes <= max(indexing.FLIGHT_BYTES, peak[0])


def test_a_pass_over_deep_chunks_holds_little_and_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = np.random.default_rng(3).normal(size=(30, 16, 48, 72)).astype(np.float32)
    stores = []
    for name, layout in {
        "flat": {}, "deep": {"chunks": (15, 1, 48, 72)},
        "packed": {"chunks": (15, 5, 20, 30), "compression": "gzip", "compression_opts": 1},
    }.items():  # fmt: skip
        write_year(tmp_path / name, 1979, frames=frames, **layout)
        stores.append(ClimateStore.open(tmp_path / name))
    monkeypatch.setattr(indexing, "PASS_BYTES", 1 << 17)
    monkeypatch.setattr(indexing, "FLIGHT_BYTES", 1 << 18)
    monkeypatch.setattr(indexing, "available_cores", lambda: 8)
    held = []
    for store in stores:
        with peak_bytes() as peak:
            store.prepare()
        held += peak
    assert len({(store.sha256, store.statistics) for store in stores}) == 1
    assert [indexing.threads_for(store.years) for store in stores] == [8, 8, 1]
    assert held[1] < 1e6  # one channel of fifteen frames is 0.2 MB, all of them are 3.3 MB
    assert held[2] < 2e6  # five channels, and one chunk


def test_staging_unpacks_each_chunk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for year in (1979, 1980):
        write_year(tmp_path / "years", year, chunks=(3, 16, HEIGHT, WIDTH), compression="gzip")
    store = ClimateStore.open(tmp_path / "years")
    store.prepare()
    unpacked: list[tuple[str, tuple[int, ...]]] = []
    real = Year.unpacked

    def counting(self: Year, layout: Chunked, chunk: Chunk) -> Any:
        unpacked.append((self.path.name, chunk.corner))
        return real(self, layout, chunk)

    monkeypatch.setattr(Year, "unpacked", counting)
    monkeypatch.setattr(data_duplicator, "BLOCK_BYTES", 1)
    counts = np.array([1, 1, 0, 1, 1, 0, 1], np.uint8)
    staged = duplicate(store, counts=[counts], folder=tmp_path / "scratch", workers=2)
    assert sorted(unpacked) == [
        (f"climo_{year}.h5", (first, 0, 0, 0)) for year in (1979, 1980) for first in (0, 3, 6)
    ]
    indices = np.flatnonzero(counts)
    assert (
        staged.splits["train"].rows(indices)["images"].tobytes()
        == frames_of(1979)[indices].tobytes()
    )
    # Groups that would not fit are cut: here, into frames.
    monkeypatch.setattr(data_duplicator, "FLIGHT_BYTES", 1)
    again = duplicate(store, counts=[counts], folder=tmp_path / "other", workers=2)
    assert (
        again.splits["train"].rows(indices)["images"].tobytes()
        == frames_of(1979)[indices].tobytes()
    )
