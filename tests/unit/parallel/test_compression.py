"""FP16 messages next to powers of two: nothing overflows, and the scale is the largest."""

from __future__ import annotations

import math

import pytest
import torch

from ai500.parallel.compression import SCALE_BYTES, ScaledHalf


@pytest.mark.parametrize("exponent", [-30, -1, 0, 1, 15, 16, 40])
@pytest.mark.parametrize("side", ["below", "at", "above"])
def test_the_largest_value_is_below_two_to_the_15(exponent: int, side: str) -> None:
    power = torch.tensor(2.0**exponent)
    towards = {"below": -math.inf, "at": float(power), "above": math.inf}[side]
    largest = torch.nextafter(power, torch.tensor(towards))
    values = torch.stack([largest, -largest / 2])
    payload = ScaledHalf().encode(values)
    # `frexp` gives 2^(e−1) ≤ x < 2^e: a power of two itself needs one more.
    expected = 2.0 ** (exponent + (side != "below") - 15)
    assert payload[:SCALE_BYTES].view(torch.float32).item() == expected
    decoded = ScaledHalf().decode(payload, dtype=torch.float32)
    torch.testing.assert_close(decoded, values, rtol=2**-11, atol=0)
