"""Reading ahead: the same samples in the same order, errors where they are waited for, no thread
left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data import gather as reading
from ai500.data.climate.store import ClimateStore
from ai500.data.generated import generate
from ai500.data.packed_store import PackedSplit
from ai500.train.feed import Feed
from ai500.train.prefetch import QUEUED_BATCHES, BatchRequest, prefetch
from ai500.train.read_ahead import THREAD_NAME
from ai500.workloads.learnable_images import SMOKE
from tests.support.climate_files import write_year

COUNT, BATCH = 96, 7
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> PackedSplit:
    path = tmp_path_factory.mktemp("store") / "store"
    classes = [str(number) for number in range(SMOKE.classes)]
    store = generate(path, SMOKE, name="t", classes=classes, splits={"train": COUNT})
    return store.splits["train"]


def orders(count: int, *, batches: int) -> list[NDArray[np.int64]]:
    """Draw batches with repetitions, as a bootstrap has them."""
    random = np.random.default_rng(5)
    return [random.integers(0, count, BATCH) for _ in range(batches)]


def requests(batches: list[NDArray[np.int64]]) -> Iterator[BatchRequest]:
    return ((indices, torch.from_numpy(indices * 0.5)) for indices in batches)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def test_many_threads_gather_what_one_would(
    split: PackedSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    indices = np.random.default_rng(1).integers(0, COUNT, 500)
    for rows in (0.3, 1, 64, 10_000):
        monkeypatch.setattr(reading, "PIECE_BYTES", int(rows * split.fields[0].row_bytes))
        for name, values in split.rows(indices).items():
            assert values.tobytes() == split.array(name)[indices].tobytes()
    shapes = [values.shape for values in split.rows(indices[:0]).values()]
    assert shapes == [(0, *split.fields[0].shape), (0,)]


@pytest.mark.parametrize("layout", [
    {},
    {"chunks": (2, 3, 8, 7), "compression": "gzip", "shuffle": True},
], ids=["contiguous", "packed"])  # fmt: skip
def test_batches_read_ahead_are_the_stores(layout: dict[str, Any], tmp_path: Path) -> None:
    """Buffers are used again and again, and the last batch is smaller."""
    write_year(tmp_path, 1979, **layout)
    frames = ClimateStore.open(tmp_path).splits["train"]
    batches = [*orders(frames.count, batches=9), np.array([3, 3])]
    arrived = list(prefetch(requests(batches), samples=frames, device=CPU))
    assert len(arrived) == len(batches)
    for (fields, extra), indices in zip(arrived, batches, strict=True):
        for row, number in enumerate(indices):
            frame = frames.rows(np.array([number]), names=["images"])["images"][0]
            assert (fields["images"][row].numpy() == frame).all()
        assert (fields["boxes"].numpy() == frames.boxes[indices]).all()
        assert (extra.numpy() == indices * 0.5).all()
    assert readers() == []


def test_an_epoch_read_ahead_is_the_epoch(
    split: PackedSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the feed: order and draws too, from a step in the middle on."""
    feed = Feed(samples=split, seed=3, member=1, rank=1, world_size=2, batch_size=8,
                draws_per_sample=5, device=CPU)  # fmt: skip
    order = np.random.default_rng(2).integers(0, COUNT, 160)
    plain = list(feed.epoch(4, order, first_step=3))
    monkeypatch.setattr("ai500.train.feed.batches_on_device", prefetch)
    ahead = list(feed.epoch(4, order, first_step=3))
    assert len(plain) == len(ahead) == 7
    for batch, expected in zip(plain, ahead, strict=True):
        for name, values in batch.fields.items():
            assert torch.equal(values, expected.fields[name])
        assert torch.equal(batch.draws, expected.draws)
    assert (plain[0].fields["labels"].numpy() == split.array("labels")[order[56:64]]).all()


def test_an_error_of_reading_is_raised_after_what_was_read(split: PackedSplit) -> None:
    batches = [*orders(COUNT, batches=2), np.array([0, COUNT])]
    arriving = prefetch(requests(batches), samples=split, device=CPU)
    next(arriving)
    next(arriving)
    with pytest.raises(DataError) as raised:
        next(arriving)
    assert raised.value.value == COUNT
    assert readers() == []


def test_reading_ahead_is_bounded_and_ends_when_training_does(split: PackedSplit) -> None:
    asked = 0

    def endless() -> Iterator[BatchRequest]:
        nonlocal asked
        while True:
            asked += 1
            yield next(requests(orders(COUNT, batches=1)))

    arriving = prefetch(endless(), samples=split, device=CPU)
    for _ in range(5):
        next(arriving)
    assert asked <= 5 + QUEUED_BATCHES + 1
    assert len(readers()) == 1
    arriving.close()  # type: ignore[attr-defined]
    assert readers() == []


def test_an_error_waits_for_the_threads_that_still_write() -> None:
    started, go_on, done = threading.Event(), threading.Event(), []

    def slow() -> None:
        started.set()
        go_on.wait(10)
        done.append("slow")

    def broken() -> None:
        started.wait(10)
        threading.Timer(0.1, go_on.set).start()
        raise DataError("unreadable")

    many = [lambda: done.append("never")] * 1000
    with pytest.raises(DataError, match="unreadable"):
        reading.run_in_threads([slow, broken, *many])
    assert done[-1] == "slow"
