"""Data Sampler (V3 §3.3, Fig. 4): which samples each member trains on, and how often.

A bootstrap is one repeat count per sample, never a copy of the data. The times a sample is drawn
follow Poisson(1), in the limit for `bootstrap` and exactly for `poisson`: about 63.2 % of the
samples occur at least once and 36.8 % never.

Every draw depends on (run seed, member, purpose, epoch) alone and is the same on every machine,
Python and NumPy: NumPy promises stable bits of `SeedSequence` and `PCG64.random_raw`, and no such
thing of its distributions, so those are not used. From raw words on, all arithmetic is on integers.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.bootstrap import Counts, Header, header_of, random_words

Words = NDArray[np.uint64]

WORDS_PER_BLOCK = 1 << 16  # half a MiB of raw words at a time: the counts are the largest array

BOOTSTRAP_STREAM = 1  # purposes of random words; never renumber, or every bootstrap changes
POISSON_STREAM = 2


class Sampler(Protocol):
    """Drawing of bootstraps: how often each sample is in the bootstrap of a member."""

    @property
    def name(self) -> str: ...

    def draw(self, samples: int, *, seed: int, member: int) -> Counts: ...


def _blocks(total: int) -> Iterator[tuple[int, int]]:
    for first in range(0, total, WORDS_PER_BLOCK):
        yield first, min(total, first + WORDS_PER_BLOCK)


def _scaled(words: Words, *, below: int) -> NDArray[np.int64]:
    """Compute floor(word × below / 2^64) exactly: uniform over 0 … below − 1.

    A result's probability is off by less than 2^−64, relative below × 2^−64 (7e-14 for ImageNet):
    no experiment can see it, so no word is rejected and each draw takes exactly one.
    """
    half, factor = np.uint64(32), np.uint64(below)
    low = ((words & np.uint64(0xFFFFFFFF)) * factor) >> half
    return (((words >> half) * factor + low) >> half).astype(np.int64)


def _check_samples(samples: int) -> None:
    if not 1 <= samples < 1 << 32:
        raise DataError(
            f"cannot draw a bootstrap of {samples} samples: it takes 1 to 2^32 − 1.",
            key="samples",
            value=samples,
        )


@dataclass(frozen=True)
class Bootstrap:
    """N draws with replacement from N samples (Breiman's bagging)."""

    name: str = "bootstrap"

    def draw(self, samples: int, *, seed: int, member: int) -> Counts:
        _check_samples(samples)
        bits = random_words(BOOTSTRAP_STREAM, seed=seed, member=member)
        counts = np.zeros(samples, dtype=np.uint8)
        for first, last in _blocks(samples):
            drawn = _scaled(bits.random_raw(last - first), below=samples)
            np.add.at(counts, drawn, np.uint8(1))
        # A count past 255 would have wrapped, and the sum with it.
        if int(counts.sum(dtype=np.int64)) != samples:
            raise DataError(
                f"bootstrap of member {member}, seed {seed}: a sample was drawn more than "
                "255 times, which a manifest cannot hold. Choose another seed."
            )
        return counts


def _poisson_thresholds() -> Words:
    """Compute 2^64 × P(count ≤ k) for Poisson(1), rounded down; words at or above it exceed k."""
    thresholds: list[int] = []
    with decimal.localcontext() as context:
        context.prec = 60
        probability = decimal.Decimal(-1).exp()
        below = decimal.Decimal(0)
        while not thresholds or thresholds[-1] < (1 << 64) - 1:
            below += probability
            thresholds.append(int(below * (1 << 64)))
            probability /= len(thresholds)
    return np.array(thresholds, dtype=np.uint64)


@dataclass(frozen=True)
class Poisson:
    """Each sample's count ~ Poisson(1), independent of all others (online bagging)."""

    name: str = "poisson"

    def draw(self, samples: int, *, seed: int, member: int) -> Counts:
        _check_samples(samples)
        bits = random_words(POISSON_STREAM, seed=seed, member=member)
        thresholds = _poisson_thresholds()
        counts = np.empty(samples, dtype=np.uint8)
        for first, last in _blocks(samples):
            words = bits.random_raw(last - first)
            counts[first:last] = np.searchsorted(thresholds, words, side="right")
        if not counts.any():
            raise DataError(
                f"poisson bootstrap of member {member}, seed {seed}: none of {samples} samples "
                "was drawn.",
                key="samples",
                value=samples,
                remedy="Use more samples, another seed, or the sampler `bootstrap`.",
            )
        return counts


@dataclass(frozen=True)
class Whole:
    """Every sample once: no bootstrap. The workers of a search train on it."""

    name: str = "whole"

    def draw(self, samples: int, *, seed: int, member: int) -> Counts:
        del seed, member
        _check_samples(samples)
        return np.ones(samples, dtype=np.uint8)


BOOTSTRAP, POISSON, WHOLE = Bootstrap(), Poisson(), Whole()
BOOTSTRAPS: dict[str, Sampler] = {sampler.name: sampler for sampler in (BOOTSTRAP, POISSON)}
SAMPLERS: dict[str, Sampler] = {**BOOTSTRAPS, WHOLE.name: WHOLE}


def bootstrap_header(sampler: Sampler, samples: int, *, seed: int, member: int) -> Header:
    """Draw a member's bootstrap and return the header of its manifest; keep nothing."""
    counts = sampler.draw(samples, seed=seed, member=member)
    return header_of(counts, algorithm=sampler.name, seed=seed, member=member)
