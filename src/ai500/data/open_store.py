"""Opens a folder of data by the reader that recognizes it; verifies samples as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ai500.core import plugins
from ai500.data.gather import Empty
from ai500.data.store import (
    Arrays,
    Digests,
    Indices,
    Store,
    StoredSplit,
    StoreReader,
    array_names,
    chosen_fields,
    data_error,
    digests_of,
)
from ai500.records.fields import Field

PACKED = "packed"
"""Reader that explains a folder which none recognizes."""


def reader_of(path: Path) -> StoreReader:
    """Return the reader of a folder: the built-in ones are asked first."""
    for name in (PACKED, *(name for name in plugins.names("store") if name != PACKED)):
        reader: StoreReader = plugins.load("store", name)
        if reader.recognizes(path):
            return reader
    explaining: StoreReader = plugins.load("store", PACKED)
    return explaining


def open_store(path: Path) -> Store:
    """Open the store in a folder, whatever its kind; reads no sample."""
    return reader_of(path).open(path)


def verify(split: StoredSplit, indices: Indices, *, digests: Digests, expected: Digests) -> None:
    """Raise `DataError` with the first sample whose digest differs from the store's."""
    wrong = np.flatnonzero(expected != digests)
    if wrong.size:
        row = wrong[0]
        path = split.path_of(int(indices[row]))
        raise data_error(
            path,
            f"sample {indices[row]} is corrupt: its fields have digest "
            f"{digests[row]:016x}, the store says {expected[row]:016x}.",
            "Delete the store and make or copy it again; `ai500 resume` makes a class's own again.",
            value=int(indices[row]),
        )


@dataclass(frozen=True)
class VerifiedSplit:
    """A split of a store whose samples are compared with their digests as they are read."""

    split: StoredSplit
    digests: Digests

    @property
    def count(self) -> int:
        return self.split.count

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.split.fields

    def rows(
        self, indices: Indices, *, names: Sequence[str] | None = None, empty: Empty = np.empty
    ) -> Arrays:
        """Read these samples, in this order; a digest needs every field."""
        arrays = self.split.rows(indices, empty=empty)
        digests = digests_of(arrays, self.fields)
        verify(self.split, indices, digests=digests, expected=self.digests[indices])
        chosen = chosen_fields(self.fields, names)
        return {name: arrays[name] for field in chosen for name in array_names(field)}
