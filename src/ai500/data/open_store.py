"""Opens a folder of data by the reader that recognizes it; verifies samples as they are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.data.climate.store import ClimateStore
from ai500.data.gather import Empty
from ai500.data.image_store import ImageStore
from ai500.data.store import (
    Digests,
    Indices,
    Shape,
    Store,
    StoredSplit,
    StoreReader,
    data_error,
    digests_of,
)

READERS: tuple[StoreReader, ...] = (ImageStore, ClimateStore)
"""In the order in which they are asked."""


def reader_of(path: Path) -> StoreReader:
    """Return the reader of a folder; the first one explains a folder that none recognizes."""
    return next((reader for reader in READERS if reader.recognizes(path)), READERS[0])


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
            f"sample {indices[row]} is corrupt: its image and label have digest "
            f"{digests[row]:016x}, the store says {expected[row]:016x}.",
            "Make or copy the store again.",
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
    def shape(self) -> Shape:
        return self.split.shape

    def rows(
        self, indices: Indices, *, empty: Empty = np.empty
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Read the images and labels of these samples, in this order."""
        images, labels = self.split.rows(indices, empty=empty)
        digests = digests_of(images, labels)
        verify(self.split, indices, digests=digests, expected=self.digests[indices])
        return images, labels

    def labels_of(self, indices: Indices) -> NDArray[Any]:
        """Read the labels alone, without verification."""
        return self.split.labels_of(indices)
