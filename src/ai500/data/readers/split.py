"""The choice of validation samples where a source has no split of its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError

Rows = NDArray[np.int64]


def require_fraction(fraction: float) -> None:
    """Raise `DataError` unless a fraction of the samples can validate."""
    if not 0 < fraction < 1:
        raise DataError(
            f"--validation {fraction}: the fraction must lie between 0 and 1.",
            key="--validation",
            value=fraction,
        )


def _digest(key: str, seed: int) -> bytes:
    salt = seed.to_bytes(8, "little", signed=True)
    return hashlib.blake2b(os.fsencode(key), digest_size=16, salt=salt).digest()


def held_out(
    keys: Iterable[str], *, labels: NDArray[np.int64], fraction: float, seed: int = 0
) -> tuple[Rows, Rows]:
    """Return the training and the validation rows, chosen by a hash of their keys and the seed.

    A `fraction` of each class validates, rounded; at least one sample where a class has two, and
    never all. Samples without classes have one label.
    """
    require_fraction(fraction)
    digests = np.array([_digest(key, seed) for key in keys], dtype="V16")
    chosen = np.zeros(len(labels), bool)
    ordered = np.argsort(labels, kind="stable")
    _, starts = np.unique(labels[ordered], return_index=True)
    groups = np.split(ordered, starts[1:]) if len(labels) else []
    for rows in groups:
        by_digest = sorted(rows.tolist(), key=lambda row: bytes(digests[row]))
        number = max(1, round(fraction * len(by_digest)))
        chosen[by_digest[: min(number, len(by_digest) - 1)]] = True
    if not chosen.any():
        reason = "each class has one sample" if len(groups) > 1 else "two are needed"
        raise DataError(
            f"cannot hold out validation samples of {len(labels)}: {reason}.",
            value=len(labels),
            remedy="Add samples, or a validation split of your own.",
        )
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def validates(number: int, *, fraction: float, seed: int) -> bool:
    """Decide for one sample of a stream, whose length is not known, whether it validates."""
    drawn = int.from_bytes(_digest(str(number), seed)[:8], "little")
    return drawn < fraction * 2**64
