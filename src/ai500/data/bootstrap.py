"""Bootstraps on disk: one repeat count per sample, and the sample order of an epoch.

The Data Sampler draws them (`bagging/data_sampler.py`). Every draw depends on (run seed, member,
purpose, epoch) alone and is the same on every machine, Python and NumPy: NumPy guarantees the bits
of `SeedSequence` and `PCG64.random_raw`, but not those of its distributions.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ai500.core import atomic
from ai500.core.errors import DataError
from ai500.core.reading import read_bytes
from ai500.data.store import data_error
from ai500.records import BootstrapRecord

Counts = NDArray[np.uint8]

MAX_BOOTSTRAP_BYTES = 1 << 30  # a byte or less per sample of a split
MAGIC = b"ai500 bootstrap 1\n"
DRAW_AGAIN = "`ai500 resume` draws it again."

ORDER_STREAM = 3  # purpose of random words, after the samplers'; never renumber


def random_words(stream: int, *, seed: int, member: int, epoch: int = 0) -> np.random.PCG64:
    """Return the generator of one purpose's random words."""
    for name, value, width in (("seed", seed, 64), ("member", member, 32), ("epoch", epoch, 32)):
        if not 0 <= value < 1 << width:
            raise DataError(
                f"{name} = {value}: must be a whole number from 0 to 2^{width} − 1.",
                key=name,
                value=value,
            )
    # Each number has a fixed width, so that no two keys give the same words.
    words = [seed & 0xFFFFFFFF, seed >> 32, member, stream, epoch]
    return np.random.PCG64(np.random.SeedSequence(words))


def epoch_order(counts: Counts, *, seed: int, member: int, epoch: int) -> NDArray[np.int64]:
    """Return the samples of one epoch in training order, each as often as its count."""
    samples = np.repeat(np.arange(counts.size, dtype=np.int64), counts)
    words = random_words(ORDER_STREAM, seed=seed, member=member, epoch=epoch).random_raw(
        samples.size
    )
    # A stable sort gives the same order on every machine even where two words are equal.
    return samples[np.argsort(words, kind="stable")]


@dataclass(frozen=True)
class Header:
    """Header of a bootstrap file."""

    algorithm: str
    seed: int
    member: int
    samples: int
    drawn: int
    """Total number of repeats."""
    distinct: int
    """Number of samples drawn at least once."""
    bits_per_count: int
    sha256: str
    """SHA-256 of the counts."""


def header_of(counts: Counts, *, algorithm: str, seed: int, member: int) -> Header:
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


def save_bootstrap(path: Path, counts: Counts, *, algorithm: str, seed: int, member: int) -> Header:
    """Write a member's bootstrap: a line of JSON, then the compressed counts."""
    if counts.dtype != np.uint8 or counts.ndim != 1:
        raise data_error(
            path,
            f"a bootstrap is a row of uint8 counts, not {counts.dtype} {counts.shape}.",
            key="counts",
            value=str(counts.dtype),
        )
    header = header_of(counts, algorithm=algorithm, seed=seed, member=member)
    packed = counts
    if header.bits_per_count == 4:
        padded = np.append(counts, np.zeros(counts.size % 2, dtype=np.uint8))
        packed = padded[0::2] | (padded[1::2] << np.uint8(4))
    # Two counts per byte with Huffman coding alone take 1.90 bits per sample (Shannon's bound is
    # 1.88) and 6 ms for ImageNet's 1,281,167 counts; zlib at level 9 takes 2.17 bits and 170 ms.
    deflate = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_HUFFMAN_ONLY)
    payload = deflate.compress(packed.tobytes()) + deflate.flush()
    line = json.dumps(asdict(header)).encode()
    atomic.write_bytes(path, MAGIC + line + b"\n" + payload)
    return header


def load_bootstrap(path: Path) -> tuple[Header, Counts]:
    """Read a member's bootstrap and verify its hash."""
    try:
        data = read_bytes(path, limit=MAX_BOOTSTRAP_BYTES)
    except FileNotFoundError:
        raise data_error(path, "no such bootstrap.", DRAW_AGAIN) from None
    except OSError as error:
        raise data_error(path, f"cannot read this bootstrap: {error.strerror}.") from error
    try:
        header, counts = _unpacked(data)
    except (ValueError, TypeError, zlib.error) as error:
        raise _corrupt(path, f"its contents do not decode ({error})", sha256=None) from error
    actual = header_of(counts, algorithm=header.algorithm, seed=header.seed, member=header.member)
    if actual != header:
        reason = f"its counts have SHA-256 {actual.sha256}, it says {header.sha256}"
        raise _corrupt(path, reason, sha256=actual.sha256)
    return header, counts


def recorded_counts(run: Path, record: BootstrapRecord) -> Counts:
    """Read a member's counts and compare them with the run's record."""
    return expected_counts(run / record.path, sha256=record.sha256)


def expected_counts(path: Path, *, sha256: str | None) -> Counts:
    """Read a member's counts; refuse others than those drawn for it. None: not recorded."""
    header, counts = load_bootstrap(path)
    if sha256 is not None and header.sha256 != sha256:
        raise data_error(
            path,
            f"SHA-256 of its counts is {header.sha256}, the run recorded {sha256}.",
            DRAW_AGAIN,
        )
    return counts


def _corrupt(path: Path, reason: str, *, sha256: str | None) -> DataError:
    return data_error(
        path,
        f"this bootstrap is corrupt: {reason}.",
        DRAW_AGAIN,
        key="sha256",
        value=sha256,
    )


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
    # One byte more than expected detects a payload that is too long without inflating it all.
    packed = np.frombuffer(inflate.decompress(payload, size + 1), dtype=np.uint8)
    if packed.size != size or not inflate.eof:
        raise ValueError(f"its payload does not inflate to {size} bytes")
    if header.bits_per_count == 8:
        return header, packed
    counts = np.empty(2 * size, dtype=np.uint8)
    counts[0::2] = packed & 15
    counts[1::2] = packed >> 4
    return header, counts[: header.samples]


def out_of_bag_candidates(samples: int, *, limit: int) -> NDArray[np.int64]:
    """Return the training samples evaluated out of bag: all, or `limit` evenly spaced ones."""
    if samples <= limit:
        return np.arange(samples, dtype=np.int64)
    return np.arange(limit, dtype=np.int64) * samples // limit


def out_of_bag_indices(counts: Counts, *, limit: int) -> NDArray[np.int64]:
    """Return the out-of-bag candidates that this member never drew."""
    candidates = out_of_bag_candidates(len(counts), limit=limit)
    unseen: NDArray[np.int64] = candidates[counts[candidates] == 0]
    return unseen
