"""Protocol of a source of samples for `ai500 data pack`.

A `Reader` reads samples by their numbers, so that many processes pack it; a `Stream` has only an
order: one process packs it, and after a kill skips what is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ai500.data.resumable_work import Holes
from ai500.data.store import Arrays
from ai500.records.fields import OFFSETS, Field

TRAIN = "train"
VALIDATION = "validation"
VALIDATION_NAMES = ("validation", "val")
IGNORED_SHOWN = 5

Part = Callable[[], tuple[Arrays, Holes]]
"""Read some samples in any process, without those that cannot be read: the holes, numbered from the
part's first sample."""
Sample = Mapping[str, NDArray[Any]]
"""The array of each field of one sample."""


@dataclass(frozen=True)
class Unreadable:
    """A sample that is left out."""

    name: str
    why: str


@dataclass
class Ignored:
    """Files and arrays of a source that are not packed."""

    count: int = 0
    examples: list[str] = dataclasses.field(default_factory=list)
    """Names of the first ones."""

    def add(self, name: str) -> None:
        """Count a name, and keep it while there are few."""
        self.count += 1
        if len(self.examples) < IGNORED_SHOWN:
            self.examples.append(name)


class Source(Protocol):
    """Samples to be packed."""

    @property
    def name(self) -> str:
        """Name of the data set."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of every sample."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes of the field `labels`; empty: there are none, or not known yet."""

    @property
    def origin(self) -> str:
        """Identity of the source: an unfinished store resumes only from the same one."""

    @property
    def ignored(self) -> Ignored:
        """Files and arrays that are not packed."""


@runtime_checkable
class Reader(Source, Protocol):
    """Samples that can be read by number."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of samples of each split."""

    def part(self, split: str, first: int, last: int) -> Part:
        """Return a small, picklable call that reads samples first … last − 1 of a split."""

    def sample_name(self, split: str, number: int) -> str:
        """Return the name of a sample, such as its file, for messages."""


class Stream(Source, Protocol):
    """Samples that come one after the other, the same ones in the same order each time."""

    @property
    def total(self) -> int | None:
        """Number of samples of all splits; None: not known."""

    def samples(self) -> Iterator[tuple[str, Sample | Unreadable]]:
        """Yield each sample with its split."""


def stacked(fields: tuple[Field, ...], samples: list[Sample]) -> Arrays:
    """Join samples: stack the arrays of a field, concatenate those of a ragged one."""
    arrays: Arrays = {}
    for field in fields:
        rows = [sample[field.name] for sample in samples]
        arrays |= joined(field, rows)
    return arrays


def joined(field: Field, rows: list[NDArray[Any]] | NDArray[Any]) -> Arrays:
    """Join the rows of one field, little-endian and of the field's type."""
    dtype = np.dtype(field.dtype).newbyteorder("<")
    if not field.ragged:
        if isinstance(rows, list):
            empty = np.empty((0, *field.shape), dtype)
            rows = np.stack(rows) if rows else empty
        return {field.name: np.ascontiguousarray(rows, dtype=dtype)}
    offsets = np.zeros(len(rows) + 1, np.dtype("<i8"))
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    values = np.empty((int(offsets[-1]), *field.row_shape), dtype)
    for row, first, last in zip(rows, offsets[:-1], offsets[1:], strict=True):
        values[first:last] = row
    return {field.name: values, field.name + OFFSETS: offsets}
