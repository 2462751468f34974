"""The learnable volumes of the cosmology classes: Gaussian random fields of known parameters.

A sample is one universe at four times: white noise, filtered by a power spectrum, with shot noise
added to every voxel. Four parameters, each uniform in −1 … 1, shape the spectrum as the physical
ones shape that of matter: the amplitude, the slope at large scales, the scale of the turnover, and
the growth from one time to the next.

Noise and parameters are integer hashes of (seed, split, sample, slot). The filter is computed in
double precision and its result rounded to integers of a thousandth of a standard deviation. In all
of `smoke` the nearest voxel lies 1.7e−8 of such an integer from a rounding boundary, and another
FFT (torch's) differs by at most 1.5e−11: the bytes are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ai500.core.randomness import hashes, mix
from ai500.data.generated import Generated
from ai500.data.store import Arrays
from ai500.records.fields import Field

SPLITS = ("train", "validation")
PARAMETERS = ("amplitude", "slope", "turnover", "growth")
TIMES = 4
SCALE = 1000
"""Stored value of a density contrast of one standard deviation at the middle of the parameters."""
SHOT_NOISE = 0.5
"""Standard deviation of the noise of a voxel."""
# Exponents of the parameters: amplitude e^±0.4, slope −1 ± 0.5, turnover at 4 · 2^±1 waves in the
# box, growth e^±0.2 between two times. Density contrasts stay below 32 standard deviations.
AMPLITUDE, SLOPE, SLOPE_RANGE, TURNOVER, GROWTH = 0.4, -1.0, 0.5, 4.0, 0.2
LARGEST = 32_767

Volume = NDArray[np.float64]


@dataclass(frozen=True)
class LearnableVolumes(Generated):
    """A source of volumes; a sample is a pure function of (split, number)."""

    seed: int
    edge: int
    """Voxels along each edge: a power of two."""
    train: int
    validation: int

    @property
    def fields(self) -> tuple[Field, ...]:
        """`volumes` [times, edge, edge, edge] and `parameters`."""
        return volume_fields(self.edge)

    def draw(self, split: str, first: int, last: int) -> Arrays:
        """Draw samples first … last − 1 of a split, independent of chunking."""
        stream = np.array([self.seed * len(SPLITS) + SPLITS.index(split)], np.uint64)
        keys = hashes(mix(stream), np.arange(first, last, dtype=np.uint64))[0]
        slots = np.arange(len(PARAMETERS), dtype=np.uint64)
        parameters = ((hashes(keys, slots) >> np.uint64(40)) / 2.0**23 - 1.0).astype(np.float32)
        volumes = [self._volumes(key, row) for key, row in zip(keys, parameters, strict=True)]
        empty = np.empty((0, TIMES, *3 * (self.edge,)), np.int16)
        return {"volumes": np.stack(volumes) if volumes else empty, "parameters": parameters}

    def _volumes(self, key: np.uint64, parameters: NDArray[np.float32]) -> NDArray[np.int16]:
        """Filter the sample's noise once for each time."""
        waves = np.fft.rfftn(self._noise(key, 0))
        growth = np.exp(GROWTH * float(parameters[3]))
        base = self._filter(parameters)
        volumes = np.empty((TIMES, *3 * (self.edge,)), np.int16)
        for time in range(TIMES):
            grown = waves * (base * growth**time)
            contrast = np.fft.irfftn(grown, s=3 * (self.edge,), axes=(0, 1, 2))
            contrast += SHOT_NOISE * self._noise(key, 1 + time)
            volumes[time] = np.clip(np.rint(SCALE * contrast), -LARGEST, LARGEST)
        return volumes

    def _noise(self, key: np.uint64, purpose: int) -> Volume:
        """Return white noise of variance 1: sums of four 16-bit integers, nearly Gaussian."""
        size = self.edge**3
        slots = np.arange(size, dtype=np.uint64) + np.uint64((purpose + 1) << 32)
        words = hashes(np.array([key]), slots)[0].view(np.uint16).reshape(size, 4)
        centred = words.sum(axis=1, dtype=np.int64) - 2 * 65_535
        noise: Volume = (centred / (65_536 / np.sqrt(3.0))).reshape(3 * (self.edge,))
        return noise

    def _filter(self, parameters: NDArray[np.float32]) -> Volume:
        """Return the square root of the power spectrum, of variance 1 at the middle parameters."""
        amplitude = np.exp(AMPLITUDE * float(parameters[0]))
        middle = _spectrum(self.edge, slope=SLOPE, turnover=TURNOVER)
        slope = SLOPE + SLOPE_RANGE * float(parameters[1])
        turnover = TURNOVER * 2.0 ** float(parameters[2])
        power = _spectrum(self.edge, slope=slope, turnover=turnover) / _mean(middle, self.edge)
        root: Volume = amplitude * np.sqrt(power)
        return root


def volume_fields(edge: int) -> tuple[Field, Field]:
    """Return the fields of a class with volumes of this edge."""
    return (
        Field("volumes", "input", "int16", (TIMES, edge, edge, edge)),
        Field("parameters", "target", "float32", (len(PARAMETERS),), limits=(-1.0, 1.0)),
    )


def _spectrum(edge: int, *, slope: float, turnover: float) -> Volume:
    """Return the power of each wave: k^slope, cut off beyond the turnover; none at k = 0."""
    full = np.fft.fftfreq(edge, 1 / edge)
    half = np.fft.rfftfreq(edge, 1 / edge)
    squares = full[:, None, None] ** 2 + full[None, :, None] ** 2 + half[None, None, :] ** 2
    squares[0, 0, 0] = 1.0
    power: Volume = squares ** (slope / 2) / (1 + squares / turnover**2) ** 2
    power[0, 0, 0] = 0.0
    return power


def _mean(power: Volume, edge: int) -> float:
    """Return the variance of white noise with this power: its mean over all waves."""
    weights = np.full(power.shape[-1], 2.0)
    weights[0] = weights[-1] = 1.0  # the other waves stand for their conjugates too
    return float((power * weights).sum() / edge**3)


SMOKE = LearnableVolumes(seed=1, edge=32, train=768, validation=192)
WORKSTATION = LearnableVolumes(seed=2, edge=64, train=2_048, validation=512)
