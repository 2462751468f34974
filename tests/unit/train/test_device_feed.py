"""Batches of typed fields: prefetched, resident on the device, or refused where they are ragged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ai500.core.errors import DataError
from ai500.data.generated import generate
from ai500.data.packed_store import PackedSplit
from ai500.records.fields import Field
from ai500.train.device_feed import ResidentFeed, fits, load
from ai500.train.feed import Feed, tensors
from ai500.train.graphed_step import require_fixed_shapes
from ai500.train.prefetch import prefetch
from tests.support.mixed_fields import RAGGED_FIELDS, Mixed, fixed_fields

CPU = torch.device("cpu")
COUNT = 60


def split_of(path: Path, fields: tuple[Field, ...]) -> PackedSplit:
    store = generate(path, Mixed(fields), name="mixed", splits={"train": COUNT}, workers=1)
    return store.splits["train"]


def feed_of(split: PackedSplit) -> Feed:
    return Feed(samples=split, seed=3, member=1, rank=0, world_size=1, batch_size=8,
                draws_per_sample=2, device=CPU)  # fmt: skip


def test_every_type_stays_on_the_device(tmp_path: Path) -> None:
    split = split_of(tmp_path / "s", fixed_fields())
    counts = [(np.arange(COUNT) % 3).astype(np.uint8)]
    assert fits(split, counts, device=CPU)
    feed, resident = feed_of(split), load(split, counts, device=CPU)
    order = np.random.default_rng(1).permutation(np.flatnonzero(counts[0]))
    plain = list(feed.epoch(0, order, first_step=1))
    selected = list(
        ResidentFeed(**feed.settings(), load=lambda: resident).epoch(0, order, first_step=1)
    )
    assert len(plain) == len(selected) == 4
    for batch, other in zip(plain, selected, strict=True):
        assert list(batch.fields) == [field.name for field in fixed_fields()]
        for name, values in batch.fields.items():
            assert values.dtype == other.fields[name].dtype
            assert values.numpy().tobytes() == other.fields[name].numpy().tobytes()


def test_ragged_samples_are_prefetched_but_not_resident(tmp_path: Path) -> None:
    split = split_of(tmp_path / "s", RAGGED_FIELDS)
    assert not fits(split, [np.ones(COUNT, np.uint8)], device=CPU)
    batches = [np.random.default_rng(n).integers(0, COUNT, 5 + n % 3) for n in range(9)]
    requests = ((indices, torch.from_numpy(indices)) for indices in batches)
    arrived = list(prefetch(requests, samples=split, device=CPU))
    for (fields, _), indices in zip(arrived, batches, strict=True):
        right = tensors(split.rows(indices))
        assert list(fields) == list(right)
        for name, values in right.items():
            assert values.numpy().tobytes() == fields[name].numpy().tobytes()


def test_a_step_on_ragged_samples_is_not_captured(tmp_path: Path) -> None:
    split = split_of(tmp_path / "s", RAGGED_FIELDS)
    (batch, *_) = feed_of(split).epoch(0, np.arange(8), first_step=0)
    with pytest.raises(DataError) as raised:
        require_fixed_shapes(batch)
    assert raised.value.key == "tokens"
