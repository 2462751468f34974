"""How many images an evaluation takes at once."""

from __future__ import annotations

import pytest

from ai500.train.evaluate import images_at_once

PHOTOGRAPH, FRAME, SMALL = (3, 224, 224), (16, 768, 1152), (3, 32, 32)


@pytest.mark.parametrize(
    "batch_size, input_shape, expected",
    [
        (128, PHOTOGRAPH, 512),
        (512, PHOTOGRAPH, 512),
        (1024, PHOTOGRAPH, 1024),
        (16, PHOTOGRAPH, 128),
        (4, FRAME, 4),
        (1, FRAME, 4),
        (8, (64, 1024, 1024), 8),
        (32, SMALL, 128),
        (64, SMALL, 256),
    ],
)
def test_an_evaluation_takes_more_at_once_than_a_step_where_that_is_little(
    batch_size: int, input_shape: tuple[int, ...], expected: int
) -> None:
    assert images_at_once(batch_size, input_shape) == expected
