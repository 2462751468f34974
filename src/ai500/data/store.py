"""The protocols of stored and generated data, and what every kind of store shares.

A `Store` is a folder of samples on disk. A `StoreReader` recognizes, opens and checks one kind of
folder; `open_store.READERS` lists them. A `DataSource` generates the data of a problem class and
writes its store. The other packages use these protocols and never a store's class.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.gather import Empty
from ai500.data.resumable_work import Progress
from ai500.records import ProblemClass

Shape = tuple[int, int, int]
Digests = NDArray[np.uint64]
Indices = NDArray[np.int64]
Normalization = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel."""


@dataclass(frozen=True)
class SampleLayout:
    """Types and order of a sample's arrays in a packed split, such as a node's copy."""

    image_dtype: str
    channels_first: bool
    label_dtype: str
    label_shape: tuple[int, ...]


class Samples(Protocol):
    """Images and labels by their number in the store: read from it, or from a node's copy."""

    @property
    def count(self) -> int:
        """Number of samples in the store's split, present on this node or not."""

    @property
    def shape(self) -> Shape:
        """Height, width and channels of an image."""

    def rows(
        self, indices: Indices, *, empty: Empty = np.empty
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Read the images and labels of these samples, in this order, from any thread.

        The images are written into the array that `empty` returns.
        """

    def labels_of(self, indices: Indices) -> NDArray[Any]:
        """Read the labels alone."""


class StoredSplit(Samples, Protocol):
    """One split of a store, as verification and staging need it."""

    @property
    def name(self) -> str:
        """Name of the split, such as `train`."""

    @property
    def layout(self) -> SampleLayout:
        """Layout of the split's samples in a node's copy."""

    @property
    def labels(self) -> NDArray[Any]:
        """Labels of all samples."""

    def images_of(self, indices: Indices) -> NDArray[Any]:
        """Read the images of samples in ascending order; a failing disk is a `DataError`."""

    def storage_chunks(self, indices: Indices) -> Indices | None:
        """Return the number of the chunk on disk that holds each sample.

        Samples of one chunk are best read together. None: every sample is read by itself.
        """

    def path_of(self, number: int) -> Path:
        """Return the file that holds a sample."""


class Store(Protocol):
    """A folder of samples with an identity."""

    @property
    def path(self) -> Path:
        """Folder of the store."""

    @property
    def name(self) -> str:
        """Name of the data set."""

    @property
    def sha256(self) -> str:
        """Identity of all samples: no paths, no times."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels' classes."""

    @property
    def splits(self) -> Mapping[str, StoredSplit]:
        """Splits by name: `train` and `validation`."""

    @property
    def preparation(self) -> str | None:
        """Name of the stage that `prepare` is, as shown to the user; None: nothing to prepare."""

    def prepare(self, progress: Progress | None = None) -> None:
        """Compute once what identity and normalization need."""

    def verify(self, progress: Progress | None = None) -> None:
        """Compare the files with the store's hashes; raise `DataError` at the first difference."""

    def digests(self, split: str) -> Digests:
        """Return the digest of every sample of a split, as the store recorded it."""

    def normalization(self) -> Normalization | None:
        """Return the channels' statistics; None: the workload has constants of its own."""

    def require_fit(self, problem_class: ProblemClass) -> None:
        """Raise `DataError` unless a model of this class can train on the samples."""


@dataclass(frozen=True, order=True)
class Problem:
    """A difference between a folder of data and its schema."""

    file: str
    frame: int
    """Number of the sample in the file; −1: the file or the folder as a whole."""
    text: str

    def __str__(self) -> str:
        where = self.file and f"{self.file}: "
        return f"{where}{f'frame {self.frame}: ' if self.frame >= 0 else ''}{self.text}"


@dataclass(frozen=True)
class CheckReport:
    """Result of `ai500 data check`."""

    path: Path
    summary: tuple[str, ...]
    """Lines that describe the data."""
    facts: dict[str, Any]
    """The same for `--json`."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """Hints about data that is valid but slow to read."""


class StoreReader(Protocol):
    """Recognizes, opens and checks one kind of store."""

    def recognizes(self, path: Path) -> bool:
        """Return True where a folder holds this kind of store; reads no sample."""

    def open(self, path: Path) -> Store:
        """Open a store without reading a sample; raise `DataError` where it is damaged."""

    def check(self, path: Path, progress: Progress | None = None) -> CheckReport:
        """Read everything once and report every problem."""


class DataSource(Protocol):
    """A generator of a problem class's data.

    Its `repr` is its identity and names its folder in the cache: sources with the same `repr`
    write the same bytes.
    """

    @property
    def own_data(self) -> str:
        """Remedy for a class without a generator: how to bring one's own data."""

    def write_store(
        self,
        folder: Path,
        *,
        name: str,
        problem_class: ProblemClass,
        progress: Progress | None = None,
    ) -> Store:
        """Write the store of a class, or open it where it is already there.

        Resumes an interrupted write. Raises `DataError` where the identity is not the class's
        `store_sha256`.
        """

    def resized(self, samples: int, *, height: int | None, width: int | None) -> DataSource:
        """Return a source of so many samples of this size; `InputError` where both are fixed."""


def facts_of(store: Store) -> dict[str, Any]:
    """Return what `--json` prints about a store."""
    return {
        "path": str(store.path),
        "name": store.name,
        "sha256": store.sha256,
        "classes": len(store.classes),
        "splits": {name: split.count for name, split in store.splits.items()},
    }


def summary_of(store: Store) -> tuple[str, ...]:
    """Return the lines that describe a store."""
    counts = ", ".join(f"{split.count} {name}" for name, split in store.splits.items())
    return f"{store.path}: {counts}, {len(store.classes)} classes", f"SHA-256 {store.sha256}"


def data_error(
    path: str | Path, problem: str, remedy: str = "", *, value: object = None
) -> DataError:
    """Build the error about a file or folder of data: `PATH: problem remedy`."""
    return DataError(f"{path}: {problem}", path=path, value=value, remedy=remedy)


def require_indices(split: Samples, indices: Indices, *, folder: Path, name: str) -> None:
    """Raise `DataError` unless the split has all these samples."""
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < split.count:
        raise data_error(
            folder,
            f"samples {indices.min()} to {indices.max()} asked for, split {name!r} has "
            f"0 to {split.count - 1}.",
            "Use the store that the bootstrap was drawn for.",
        )


def digests_of(images: NDArray[Any], labels: NDArray[Any]) -> Digests:
    """Compute BLAKE2b of 8 bytes over each image's bytes and its label's."""
    images = np.ascontiguousarray(images)
    tails = np.ascontiguousarray(labels, dtype="<f4" if labels.dtype.kind == "f" else "<i8")
    digests = bytearray()
    for image, tail in zip(images, tails, strict=True):
        digest = hashlib.blake2b(image.data, digest_size=8)
        digest.update(tail.tobytes())
        digests += digest.digest()
    return np.frombuffer(bytes(digests), dtype="<u8")


def cache_folder() -> Path:
    """Return the folder of generated stores: $AI500_CACHE, or `ai500` in the user's cache."""
    if "AI500_CACHE" in os.environ:
        return Path(os.environ["AI500_CACHE"])
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ai500"
