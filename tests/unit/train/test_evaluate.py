"""Batch size of evaluations."""

from __future__ import annotations

import pytest
import torch

from ai500.train.device_feed import free_bytes
from ai500.train.evaluation_batch import evaluation_batch_size

PHOTOGRAPH, FRAME, SMALL = (3, 224, 224), (16, 768, 1152), (3, 32, 32)
GIB = 2**30


@pytest.mark.parametrize(
    "batch_size, input_shape, free, expected",
    [
        (128, PHOTOGRAPH, 100 * GIB, 512),
        (512, PHOTOGRAPH, 100 * GIB, 512),
        (1024, PHOTOGRAPH, 100 * GIB, 1024),
        (16, PHOTOGRAPH, 100 * GIB, 128),
        (4, FRAME, 100 * GIB, 4),
        (8, (64, 1024, 1024), 100 * GIB, 8),
        (32, SMALL, 2 * GIB, 128),
        (64, SMALL, 2 * GIB, 256),
        (128, PHOTOGRAPH, 8 * GIB, 128),  # a small GPU, whose memory training needs
        (128, SMALL, 0, 128),  # a CPU
    ],
)
def test_an_evaluation_takes_more_at_once_than_a_step_where_memory_is_free(
    batch_size: int, input_shape: tuple[int, ...], free: int, expected: int
) -> None:
    assert evaluation_batch_size(batch_size, input_shape, free=free) == expected


def test_a_cpus_memory_counts_as_none() -> None:
    assert free_bytes(torch.device("cpu")) == 0
