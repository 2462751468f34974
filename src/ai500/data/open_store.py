"""Which kind of store a folder is, a packed one or years of climate data, and reading either."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.climate.index import INDEX
from ai500.data.climate.schema import year_files
from ai500.data.climate.store import ClimateSplit, ClimateStore
from ai500.data.gather import Empty
from ai500.data.image_store import MANIFEST, Digests, Indices, Shape, Split, Store, digests_of
from ai500.data.image_store_writer import PLAN

AnyStore = Store | ClimateStore


def is_climate(path: Path) -> bool:
    """Whether a folder holds years of climate data rather than a packed store."""
    return not (path / MANIFEST).exists() and bool(year_files(path))


def open_store(path: Path) -> AnyStore:
    """The store in a folder, whichever kind it is; reads no sample."""
    building = (path / PLAN).exists() and not (path / INDEX).exists()
    if building and (any(path.glob("*.h5")) or any(path.glob("*.h5.part"))):
        raise DataError(
            f"{path}: is unfinished climate data. Run the same `ai500 data generate` again: it "
            "goes on where it stopped."
        )
    return ClimateStore.open(path) if is_climate(path) else Store.open(path)


def digests(store: AnyStore, split: str) -> Digests:
    """Of every sample of a split, as the store's manifest or index has them."""
    if isinstance(store, ClimateStore):
        return np.frombuffer(bytes.fromhex("".join(store.digests(split))), dtype="<u8")
    return store.splits[split].digests


def hold(
    split: Split | ClimateSplit, indices: Indices, *, found: Digests, expected: Digests
) -> None:
    """An error that names the first sample whose digest is not the store's."""
    wrong = np.flatnonzero(expected != found)
    if wrong.size:
        at = wrong[0]
        raise DataError(
            f"{split.path_of(int(indices[at]))}: sample {indices[at]} is corrupt: its image and "
            f"label have digest {found[at]:016x}, the store says {expected[at]:016x}. "
            "Make or copy the store again."
        )


@dataclass(frozen=True)
class HeldSplit:
    """A store's split, each sample held against its digest as it is read."""

    split: Split | ClimateSplit
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
        """The images and labels of these samples, in this order."""
        images, labels = self.split.rows(indices, empty=empty)
        found = digests_of(images, labels)
        hold(self.split, indices, found=found, expected=self.digests[indices])
        return images, labels

    def labels_of(self, indices: Indices) -> NDArray[Any]:
        """The labels alone, which are not held against anything."""
        return self.split.labels_of(indices)
