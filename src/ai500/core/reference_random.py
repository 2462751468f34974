"""The random numbers of the reference framework, without it: PyTorch's CPU generator in NumPy.

PyTorch draws from MT19937, which NumPy has too. Uniform numbers are equal bit for bit; normal ones
go through log, sin and cos, whose last bit differs between libraries. So every framework trains on
the augmentation and from the initial weights of the reference.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_MANTISSA_BITS = 24  # of a float32: torch takes the low 24 bits of a word
_BLOCK = 16  # Box–Muller on blocks: 8 numbers for the radius, 8 for the angle


class ReferenceGenerator:
    """`torch.Generator("cpu").manual_seed(seed)`, as far as models and augmentation draw."""

    def __init__(self, seed: int) -> None:
        # Both seed by Knuth's recurrence from the low 32 bits. RandomState's stream is frozen.
        self._state = np.random.RandomState(seed & 0xFFFFFFFF)

    def uniform(self, count: int) -> Floats:
        """Draw numbers in [0, 1), as `torch.rand` does in FP32."""
        mantissas = self._words(count) & np.uint32((1 << _MANTISSA_BITS) - 1)
        return (mantissas * np.float32(2.0**-_MANTISSA_BITS)).astype(np.float32)

    def _words(self, count: int) -> NDArray[np.uint32]:
        # RandomState draws a word for no bytes too.
        raw = self._state.bytes(4 * count) if count else b""
        return np.frombuffer(raw, dtype="<u4")

    def skip(self, count: int) -> None:
        """Draw and drop as many numbers: a layer's default weights that a model replaces."""
        self._words(count)

    def normal(self, count: int, *, deviation: float) -> Floats:
        """Draw normal numbers of mean 0, as `Tensor.normal_` does for 16 or more in FP32."""
        if count < _BLOCK:
            raise ValueError(f"{count} normal numbers: torch draws fewer than 16 in another way")
        uniforms = self.uniform(count)
        whole = count // _BLOCK * _BLOCK
        values = np.empty(count, dtype=np.float32)
        values[:whole] = _box_muller(uniforms[:whole])
        if whole < count:  # torch draws the last 16 again
            values[-_BLOCK:] = _box_muller(self.uniform(_BLOCK))
        return values * np.float32(deviation)


def _box_muller(uniforms: Floats) -> Floats:
    blocks = uniforms.reshape(-1, 2, _BLOCK // 2)
    radius = np.sqrt(np.float32(-2) * np.log(np.float32(1) - blocks[:, 0]))
    angle = np.float32(2 * np.pi) * blocks[:, 1]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return pairs.reshape(-1).astype(np.float32)
