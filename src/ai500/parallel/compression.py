"""Gradient compression: codecs from values to bytes on the wire and back.

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

SCALE_BYTES = 4  # one FP32 scale
HALF_EXPONENT = 15  # FP16 holds values below 2¹⁶; one bit of margin for rounding up
INT8_BLOCK = 1024  # values per scale: 0.4 % overhead
INT8_LARGEST = 127


class Codec(Protocol):
    """Codec of messages along the last dimension; other dimensions are a batch of messages."""

    multiple: int
    """Number that the length of a message has to be a multiple of."""
    feeds_back: bool
    """True if rounding errors are added to the next step's values (error feedback)."""

    def encode(self, values: Tensor) -> Tensor:
        """Encode each message as bytes."""

    def decode(self, payload: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Decode the values of each message."""


class Cast:
    """Cast to a floating-point type; for the tensor's own type no value changes."""

    multiple = 1
    feeds_back = False

    def __init__(self, wire: torch.dtype) -> None:
        self._wire = wire

    def encode(self, values: Tensor) -> Tensor:
        """Round to nearest."""
        return values.to(self._wire).view(torch.uint8)

    def decode(self, payload: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Decode without rounding."""
        return payload.view(self._wire).to(dtype)


class ScaledHalf:
    """FP16 with a scale per message: 4 bytes, then 2 for each value."""

    multiple = 2  # keeps every message's scale at an address that a 4-byte read allows
    feeds_back = False

    def encode(self, values: Tensor) -> Tensor:
        """Divide by a power of two, which is exact, then round to nearest."""
        largest = values.abs().amax(-1, keepdim=True)
        _, exponent = torch.frexp(largest)
        exponent = torch.where(largest.isfinite(), exponent, HALF_EXPONENT)
        exponent = (exponent - HALF_EXPONENT).clamp(-100, 100)
        half = (values * _power_of_two(-exponent)).half()
        return torch.cat([_power_of_two(exponent).view(torch.uint8), half.view(torch.uint8)], -1)

    def decode(self, payload: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Decode without rounding."""
        scale = payload[..., :SCALE_BYTES].view(torch.float32)
        return payload[..., SCALE_BYTES:].view(torch.float16).to(dtype) * scale.to(dtype)


def _power_of_two(exponent: Tensor) -> Tensor:
    """Build 2^exponent from its bits: a device's `exp2` may be off by one ulp."""
    return (exponent + 127 << 23).to(torch.int32).view(torch.float32)


class BlockInt8:
    """Integers from −127 to 127 with a scale per block: all scales, then all values."""

    multiple = INT8_BLOCK
    feeds_back = True

    def encode(self, values: Tensor) -> Tensor:
        """Scale the largest value of a block to ±127; halves round to even."""
        blocks = values.reshape(*values.shape[:-1], -1, INT8_BLOCK)
        scale = (blocks.abs().amax(-1) / INT8_LARGEST).float()
        divisor = torch.where(scale > 0, scale, 1).unsqueeze(-1)
        # In a block with an infinity or a NaN every value becomes 0, and 0 × scale is NaN.
        rounded = (blocks / divisor).round_().nan_to_num_(0, 0, 0)
        integers = rounded.clamp_(-INT8_LARGEST, INT8_LARGEST).flatten(-2).char()
        return torch.cat([scale.view(torch.uint8), integers.view(torch.uint8)], -1)

    def decode(self, payload: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Decode without rounding."""
        scales = payload.shape[-1] // (SCALE_BYTES + INT8_BLOCK) * SCALE_BYTES
        scale = payload[..., :scales].view(torch.float32)
        integers = payload[..., scales:].view(torch.int8)
        blocks = integers.reshape(*integers.shape[:-1], -1, INT8_BLOCK)
        return (blocks.to(dtype) * scale.unsqueeze(-1).to(dtype)).flatten(-2)


def codec_for(precision: str, *, dtype: torch.dtype) -> Codec:
    """Return the codec of a communication precision for tensors of a type."""
    if precision == "fp32":
        return Cast(dtype)
    if precision == "bf16":
        return Cast(torch.bfloat16)
    return ScaledHalf() if precision == "fp16" else BlockInt8()
