"""Aggregation where the data has little to judge by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from ai500.bagging.aggregate import MemberPredictions, aggregate
from ai500.core.errors import DataError
from ai500.data.climate.schema import Boxes, frame_fields
from ai500.data.gather import Empty
from ai500.data.store import Arrays, Indices
from ai500.workloads.extreme_weather import WORKLOAD


@dataclass
class Frames:
    """Boxes alone: aggregation reads targets."""

    boxes: Boxes
    fields = frame_fields(48, 72)

    @property
    def count(self) -> int:
        return len(self.boxes)

    def rows(
        self, indices: Indices, *, names: Sequence[str] | None = None, empty: Empty = np.empty
    ) -> Arrays:
        assert names == ("boxes",)
        return {"boxes": self.boxes[indices]}


def test_out_of_bag_frames_without_a_box_are_not_judged() -> None:
    """The validation frames have an event, the few frames that no member drew have none."""
    labels = np.full((3, 15, 5), -1.0, np.float32)
    labels[0, 0] = (10, 20, 40, 60, 1)
    predicted = np.full((3, 50, 6), -1.0, np.float32)
    predicted[0, 0] = (10, 20, 40, 60, 0.9, 1)
    member = MemberPredictions(0, predicted, predicted[1:], np.array([3, 0, 0], np.uint8))

    def judged(train_boxes: Boxes) -> object:
        result = aggregate(
            [member], workload=WORKLOAD, validation=Frames(labels), train=Frames(train_boxes),
            ensemble_size=1, out_of_bag_limit=3,
        )  # fmt: skip
        assert result.ensemble_quality == pytest.approx(1.0)
        return result.out_of_bag_quality, result.out_of_bag_samples

    assert judged(labels) == (None, 2)
    assert judged(labels[[0, 0, 1]]) == (0.0, 2)
    with pytest.raises(DataError):
        WORKLOAD.quality(predicted[1:], {"boxes": labels[1:]})


def test_blocks_of_samples_combine_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions may exceed the memory: climate_segmentation has 27 GB a member at `full`."""
    generator = np.random.default_rng(1)
    labels = np.full((5, 15, 5), -1.0, np.float32)
    labels[:, 0] = (10, 20, 40, 60, 1)
    members = []
    for number in range(2):
        predicted = np.full((5, 50, 6), -1.0, np.float32)
        predicted[:, 0] = (10, 20, 40, 60, 0.9, 1)
        predicted[:, 0, 2] += generator.integers(0, 60, 5)
        members.append(MemberPredictions(number, predicted, predicted[:0], np.ones(5, np.uint8)))

    def quality() -> float:
        result = aggregate(
            members, workload=WORKLOAD, validation=Frames(labels), train=Frames(labels),
            ensemble_size=2, out_of_bag_limit=5,
        )  # fmt: skip
        return result.ensemble_quality

    whole = quality()
    assert 0 < whole < 1
    monkeypatch.setattr("ai500.bagging.aggregate.BLOCK_BYTES", 2 * 2 * 50 * 6 * 4)
    assert quality() == whole
