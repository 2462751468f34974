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
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ai500 import atomic
from ai500.errors import DataError
from ai500.records import BootstrapRecord

Counts = NDArray[np.uint8]
Words = NDArray[np.uint64]

WORDS_PER_BLOCK = 1 << 16  # half a MiB of raw words at a time: the counts are the largest array
MAGIC = b"ai500 bootstrap 1\n"

BOOTSTRAP_STREAM = 1  # purposes of random words; never renumber, or every bootstrap changes
POISSON_STREAM = 2
ORDER_STREAM = 3


class Sampler(Protocol):
    """How often each of `samples` samples is in the bootstrap of one member."""

    @property
    def name(self) -> str: ...

    def draw(self, samples: int, *, seed: int, member: int) -> Counts: ...


def _bits(stream: int, *, seed: int, member: int, epoch: int = 0) -> np.random.PCG64:
    """The random words of one purpose.

    Each number has a fixed width, so that no two lists of numbers make the same sequence of words.
    """
    for name, value, width in (("seed", seed, 64), ("member", member, 32), ("epoch", epoch, 32)):
        if not 0 <= value < 1 << width:
            raise DataError(f"{name} = {value}: must be a whole number from 0 to 2^{width} − 1.")
    words = [seed & 0xFFFFFFFF, seed >> 32, member, stream, epoch]
    return np.random.PCG64(np.random.SeedSequence(words))


def _blocks(total: int) -> Iterator[tuple[int, int]]:
    for first in range(0, total, WORDS_PER_BLOCK):
        yield first, min(total, first + WORDS_PER_BLOCK)


def _scaled(words: Words, *, below: int) -> NDArray[np.int64]:
    """floor(word × below / 2^64), exactly: uniform over 0 … below − 1.

    A result's probability is off by less than 2^−64, relative below × 2^−64 (7e-14 for ImageNet):
    no experiment can see it, so no word is rejected and each draw takes exactly one.
    """
    half, factor = np.uint64(32), np.uint64(below)
    low = ((words & np.uint64(0xFFFFFFFF)) * factor) >> half
    return (((words >> half) * factor + low) >> half).astype(np.int64)


def _check_samples(samples: int) -> None:
    if not 1 <= samples < 1 << 32:
        raise DataError(f"cannot draw a bootstrap of {samples} samples: it takes 1 to 2^32 − 1.")


@dataclass(frozen=True)
class Bootstrap:
    """N draws with replacement from N samples (Breiman's bagging)."""

    name: str = "bootstrap"

    def draw(self, samples: int, *, seed: int, member: int) -> Counts:
        _check_samples(samples)
        bits = _bits(BOOTSTRAP_STREAM, seed=seed, member=member)
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
    """2^64 × P(count ≤ k) for Poisson(1), rounded down; a word at or above it counts past k."""
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
        bits = _bits(POISSON_STREAM, seed=seed, member=member)
        thresholds = _poisson_thresholds()
        counts = np.empty(samples, dtype=np.uint8)
        for first, last in _blocks(samples):
            words = bits.random_raw(last - first)
            counts[first:last] = np.searchsorted(thresholds, words, side="right")
        if not counts.any():
            raise DataError(
                f"poisson bootstrap of member {member}, seed {seed}: none of {samples} samples "
                "was drawn. Use more samples, another seed, or the sampler `bootstrap`."
            )
        return counts


@dataclass(frozen=True)
class Whole:
    """Every sample once: no bootstrap. What the workers of a search train on."""

    name: str = "whole"

    def draw(self, samples: int, *, seed: int, member: int) -> Counts:
        del seed, member
        _check_samples(samples)
        return np.ones(samples, dtype=np.uint8)


BOOTSTRAP, POISSON, WHOLE = Bootstrap(), Poisson(), Whole()
BOOTSTRAPS: dict[str, Sampler] = {one.name: one for one in (BOOTSTRAP, POISSON)}
SAMPLERS: dict[str, Sampler] = {**BOOTSTRAPS, WHOLE.name: WHOLE}


def epoch_order(counts: Counts, *, seed: int, member: int, epoch: int) -> NDArray[np.int64]:
    """The samples of one epoch in training order, each as often as its count says."""
    samples = np.repeat(np.arange(counts.size, dtype=np.int64), counts)
    words = _bits(ORDER_STREAM, seed=seed, member=member, epoch=epoch).random_raw(samples.size)
    # Only a stable sort gives the same order on every machine if two words are equal.
    return samples[np.argsort(words, kind="stable")]


@dataclass(frozen=True)
class Header:
    """What a bootstrap's manifest says of itself."""

    algorithm: str
    seed: int
    member: int
    samples: int
    drawn: int
    distinct: int
    bits_per_count: int
    sha256: str


def _header(counts: Counts, *, algorithm: str, seed: int, member: int) -> Header:
    return Header(
        algorithm=algorithm,
        seed=seed,
        member=member,
        samples=int(counts.size),
        drawn=int(counts.sum(dtype=np.int64)),
        distinct=int(np.count_nonzero(counts)),
        bits_per_count=4 if int(counts.max(initial=0)) < 16 else 8,
        sha256=hashlib.sha256(counts.tobytes()).hexdigest(),
    )


def described(sampler: Sampler, samples: int, *, seed: int, member: int) -> Header:
    """What the manifest of a member's bootstrap says, drawn and not kept."""
    counts = sampler.draw(samples, seed=seed, member=member)
    return _header(counts, algorithm=sampler.name, seed=seed, member=member)


def save_bootstrap(path: Path, counts: Counts, *, algorithm: str, seed: int, member: int) -> Header:
    """Write a member's manifest: a line of JSON, then the counts compressed.

    Measured on 1 281 167 counts: pairs in a byte under Huffman alone take 1.90 bits a sample
    (Shannon's bound is 1.88) and 6 ms; zlib at level 9 finds no repeats, takes 2.17 and 170 ms.
    """
    if counts.dtype != np.uint8 or counts.ndim != 1:
        raise DataError(
            f"{path}: a bootstrap is a row of uint8 counts, not {counts.dtype} {counts.shape}."
        )
    header = _header(counts, algorithm=algorithm, seed=seed, member=member)
    packed = counts
    if header.bits_per_count == 4:
        padded = np.append(counts, np.zeros(counts.size % 2, dtype=np.uint8))
        packed = padded[0::2] | (padded[1::2] << np.uint8(4))
    deflate = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_HUFFMAN_ONLY)
    payload = deflate.compress(packed.tobytes()) + deflate.flush()
    line = json.dumps(asdict(header)).encode()
    atomic.write_bytes(path, MAGIC + line + b"\n" + payload)
    return header


def load_bootstrap(path: Path) -> tuple[Header, Counts]:
    """Read a member's manifest, and hold it against its own hash."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such bootstrap. Draw it again: ai500 resume.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot read this bootstrap: {error.strerror}.") from error
    try:
        header, counts = _unpacked(data)
    except (ValueError, TypeError, zlib.error) as error:
        raise _corrupt(path, f"its contents do not decode ({error})") from error
    found = _header(counts, algorithm=header.algorithm, seed=header.seed, member=header.member)
    if found != header:
        raise _corrupt(path, f"its counts have SHA-256 {found.sha256}, it says {header.sha256}")
    return header, counts


def recorded_counts(run: Path, record: BootstrapRecord) -> Counts:
    """A member's counts, held against what the run recorded when it drew them."""
    header, counts = load_bootstrap(run / record.path)
    if header.sha256 != record.sha256:
        raise DataError(
            f"{run / record.path}: SHA-256 of its counts is {header.sha256}, the run "
            f"recorded {record.sha256}. Start a new run."
        )
    return counts


def _corrupt(path: Path, what: str) -> DataError:
    return DataError(f"{path}: this bootstrap is corrupt: {what}. Delete it and draw it again.")


def _unpacked(data: bytes) -> tuple[Header, Counts]:
    if not data.startswith(MAGIC):
        raise ValueError(f"it does not begin with {MAGIC.decode().strip()!r}")
    line, separator, payload = data[len(MAGIC) :].partition(b"\n")
    if not separator:
        raise ValueError("it ends within its header")
    header = Header(**json.loads(line))
    if header.bits_per_count not in (4, 8) or not 0 <= header.samples < 1 << 32:
        raise ValueError("its header holds impossible numbers")
    size = (header.samples * header.bits_per_count + 7) // 8
    inflate = zlib.decompressobj()
    # One byte more than expected shows a payload that is too long, however much it inflates to.
    packed = np.frombuffer(inflate.decompress(payload, size + 1), dtype=np.uint8)
    if packed.size != size or not inflate.eof:
        raise ValueError(f"its payload does not inflate to {size} bytes")
    if header.bits_per_count == 8:
        return header, packed
    counts = np.empty(2 * size, dtype=np.uint8)
    counts[0::2] = packed & 15
    counts[1::2] = packed >> 4
    return header, counts[: header.samples]
