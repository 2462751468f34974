"""Aggregation where the data has little to judge by."""

from __future__ import annotations

import numpy as np
import pytest

from ai500.bagging.aggregate import MemberPredictions, aggregate
from ai500.core.errors import DataError
from ai500.workloads.extreme_weather import WORKLOAD


def test_out_of_bag_frames_without_a_box_are_not_judged() -> None:
    """The validation frames have an event, the few frames that nobody drew have none."""
    labels = np.full((3, 15, 5), -1.0, np.float32)
    labels[0, 0] = (10, 20, 40, 60, 1)
    found = np.full((3, 50, 6), -1.0, np.float32)
    found[0, 0] = (10, 20, 40, 60, 0.9, 1)
    member = MemberPredictions(0, found, found[1:], np.array([3, 0, 0], np.uint8))

    def judged(train_labels: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> object:
        result = aggregate(
            [member], workload=WORKLOAD, validation_labels=labels, train_labels=train_labels,
            ensemble_size=1, out_of_bag_limit=3,
        )  # fmt: skip
        assert result.ensemble_quality == pytest.approx(1.0)
        return result.out_of_bag_quality, result.out_of_bag_samples

    assert judged(labels) == (None, 2)
    assert judged(labels[[0, 0, 1]]) == (0.0, 2)
    with pytest.raises(DataError):
        WORKLOAD.quality(found[1:], labels[1:])
