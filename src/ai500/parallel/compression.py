"""What a gradient looks like on the wire: codecs from values to bytes and back.

    fp32   the values as they are, in the tensor's own type: nothing is lost
    bf16   rounded to bfloat16
    fp16   rounded to half precision, after a division by one power of two per message that
           brings its largest value below 2¹⁵: no value overflows, and small ones stay normal
    int8   rounded to 8 bits, with a scale for each block of 1,024 values

A value that is not finite shows after decoding: in `int8` as NaN in its whole block, else where
it stood.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

SCALE_BYTES = 4
HALF_EXPONENT = 15
INT8_BLOCK = 1024
INT8_LARGEST = 127


class Codec(Protocol):
    """Messages are the last dimension; the others are so many messages."""

    multiple: int
    """Lengths must be a multiple of it."""
    feeds_back: bool
    """Whether what rounding lost is added to the next step's values (error feedback)."""

    def encode(self, values: Tensor) -> Tensor:
        """Bytes of each message."""

    def decode(self, payload: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Values of each message."""


class Cast:
    """Another floating-point type, or the tensor's own: then bytes are the values' own."""

    multiple = 1
    feeds_back = False

    def __init__(self, wire: torch.dtype) -> None:
        self._wire = wire

    def encode(self, values: Tensor) -> Tensor:
        """Rounded to the nearest."""
        return values.to(self._wire).view(torch.uint8)

    def decode(self, payload: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Exact."""
        return payload.view(self._wire).to(dtype)


class ScaledHalf:
    """Half precision under a scale: 4 bytes, then 2 for each value."""

    multiple = 2  # keeps every message's scale at an address that a 4-byte read allows
    feeds_back = False

    def encode(self, values: Tensor) -> Tensor:
        """A division by a power of two rounds nothing; then to the nearest."""
        largest = values.abs().amax(-1, keepdim=True)
        _, exponent = torch.frexp(largest)
        exponent = torch.where(largest.isfinite(), exponent, HALF_EXPONENT)
        exponent = (exponent - HALF_EXPONENT).clamp(-100, 100)
        half = (values * _power_of_two(-exponent)).half()
        return torch.cat([_power_of_two(exponent).view(torch.uint8), half.view(torch.uint8)], -1)

    def decode(self, payload: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Exact."""
        scale = payload[..., :SCALE_BYTES].view(torch.float32)
        return payload[..., SCALE_BYTES:].view(torch.float16).to(dtype) * scale.to(dtype)


def _power_of_two(exponent: Tensor) -> Tensor:
    """Put together from its bits: `exp2` may be off by a unit in the last place on a device."""
    return (exponent + 127 << 23).to(torch.int32).view(torch.float32)


class BlockInt8:
    """Whole numbers from −127 to 127 under a scale for each block: all scales, then all values."""

    multiple = INT8_BLOCK
    feeds_back = True

    def encode(self, values: Tensor) -> Tensor:
        """The largest value of a block becomes ±127; halves round to even."""
        blocks = values.reshape(*values.shape[:-1], -1, INT8_BLOCK)
        scale = (blocks.abs().amax(-1) / INT8_LARGEST).float()
        divisor = torch.where(scale > 0, scale, 1).unsqueeze(-1)
        # In a block with an infinity or a NaN every value becomes 0, and 0 × scale is NaN.
        whole = (blocks / divisor).round_().nan_to_num_(0, 0, 0).clamp_(-INT8_LARGEST, INT8_LARGEST)
        return torch.cat([scale.view(torch.uint8), whole.flatten(-2).char().view(torch.uint8)], -1)

    def decode(self, payload: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Exact."""
        scales = payload.shape[-1] // (SCALE_BYTES + INT8_BLOCK) * SCALE_BYTES
        scale = payload[..., :scales].view(torch.float32)
        whole = payload[..., scales:].view(torch.int8)
        blocks = whole.reshape(*whole.shape[:-1], -1, INT8_BLOCK)
        return (blocks.to(dtype) * scale.unsqueeze(-1).to(dtype)).flatten(-2)


def codec_for(precision: str, *, dtype: torch.dtype) -> Codec:
    """The codec of a communication precision for tensors of a type."""
    if precision == "fp32":
        return Cast(dtype)
    if precision == "bf16":
        return Cast(torch.bfloat16)
    return ScaledHalf() if precision == "fp16" else BlockInt8()
