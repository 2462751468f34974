"""The reference framework's random numbers in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ai500.core.reference_random import ReferenceGenerator


@given(seed=st.integers(0, 2**63 - 1), counts=st.lists(st.integers(0, 700), max_size=4))
@settings(max_examples=40)
def test_uniform_numbers_are_torchs_bit_for_bit(seed: int, counts: list[int]) -> None:
    torch_generator, own_generator = torch.Generator().manual_seed(seed), ReferenceGenerator(seed)
    for count in counts:
        expected = torch.rand(count, generator=torch_generator).numpy()
        assert np.array_equal(own_generator.uniform(count), expected)


@pytest.mark.parametrize("count", [16, 17, 31, 432, 650])
def test_normal_numbers_are_torchs_to_rounding(count: int) -> None:
    torch_generator, own_generator = torch.Generator().manual_seed(3), ReferenceGenerator(3)
    expected = torch.empty(count).normal_(0.0, 0.25, generator=torch_generator).numpy()
    assert np.allclose(own_generator.normal(count, deviation=0.25), expected, rtol=0, atol=2e-7)
    # Both have drawn equally many words.
    assert np.array_equal(
        own_generator.uniform(5), torch.rand(5, generator=torch_generator).numpy()
    )


def test_few_normal_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="15"):
        ReferenceGenerator(1).normal(15, deviation=1.0)


def test_skipped_numbers_are_drawn() -> None:
    skipping, drawing = ReferenceGenerator(9), ReferenceGenerator(9)
    skipping.skip(100)
    drawing.uniform(100)
    assert np.array_equal(skipping.uniform(3), drawing.uniform(3))
