"""The packed store: images as one memory-mapped array a split, so that training decodes nothing.

    STORE/
      manifest.json         format, name, classes; each file's size and SHA-256; the identity of all
      train.images.npy      uint8 [N, H, W, C]
      train.labels.npy      int64 [N]
      train.digests.npy     uint64 [N]: of each image and its label, so that a copy can be checked
      validation.….npy

The bytes depend on the contents alone. The manifest is written last, so a folder without one is
not a store, whatever else it holds. `ai500.data.image_store_writer` makes stores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.climate.schema import MOST_BOXES
from ai500.data.gather import Empty, gather
from ai500.data.resumable_work import Progress

FORMAT = "ai500 store 1"
MANIFEST = "manifest.json"
HEADER_BYTES = 128
HASH_BLOCK_BYTES = 1 << 22

Shape = tuple[int, int, int]
Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Digests = NDArray[np.uint64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Format:
    """How a sample is laid out in the files of a split."""

    name: str
    image_dtype: str
    channels_first: bool
    label_dtype: str
    label_shape: tuple[int, ...]


PICTURES = Format("pictures", "|u1", False, "<i8", ())
FRAMES = Format("frames", "<f4", True, "<f4", (MOST_BOXES, 5))
"""Climate: only nodes' copies have it, the store itself is HDF5."""
FORMATS = {one.name: one for one in (PICTURES, FRAMES)}


class Samples(Protocol):
    """Images and labels by their number in the store: read from it, or from a node's copy."""

    @property
    def count(self) -> int:
        """How many samples the store's split has, here or not."""

    @property
    def shape(self) -> Shape:
        """Height, width and channels of an image."""

    def rows(
        self, indices: Indices, *, empty: Empty = np.empty
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The images and labels of these samples, in this order; the images in what `empty` gives.

        Several threads may read at once."""

    def labels_of(self, indices: Indices) -> NDArray[Any]:
        """The labels alone."""


class ImageSource(Protocol):
    """Images that can be made by their numbers, the same bytes however they are chunked."""

    def draw(
        self, split: str, first: int, last: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Images first … last − 1 of a split, and their labels."""


@dataclass(frozen=True)
class Column:
    """One .npy file of a split: where it is and what it holds."""

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    @property
    def file_bytes(self) -> int:
        return self.offset(self.shape[0])

    def offset(self, row: int) -> int:
        """Where a row begins in the file."""
        return HEADER_BYTES + row * self.row_bytes

    def header(self) -> bytes:
        """The header of .npy format 1.0, of one length: NumPy's own differs between versions."""
        text = f"{{'descr': {self.dtype.str!r}, 'fortran_order': False, 'shape': {self.shape}, }}"
        return b"\x93NUMPY\x01\x00\x76\x00" + text.ljust(HEADER_BYTES - 11).encode() + b"\n"

    def mapped(self) -> NDArray[Any]:
        """The file as an array, read only; its pages come in as they are touched."""
        try:
            array = np.memmap(
                self.path, dtype=self.dtype, mode="r", offset=HEADER_BYTES, shape=self.shape
            )
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path}: cannot read this file of the store: {error}.") from error
        return array.view(np.ndarray)


def columns(
    folder: Path, split: str, *, count: int, shape: Shape, format: Format = PICTURES
) -> tuple[Column, Column, Column]:
    """The images, labels and digests of a split."""
    height, width, channels = shape
    stored = (channels, height, width) if format.channels_first else shape
    images, labels = np.dtype(format.image_dtype), np.dtype(format.label_dtype)
    return (
        Column(folder / f"{split}.images.npy", images, (count, *stored)),
        Column(folder / f"{split}.labels.npy", labels, (count, *format.label_shape)),
        Column(folder / f"{split}.digests.npy", np.dtype("<u8"), (count,)),
    )


def digests_of(images: NDArray[Any], labels: NDArray[Any]) -> Digests:
    """BLAKE2b of 8 bytes over each image's bytes and its label's."""
    images = np.ascontiguousarray(images)
    tails = np.ascontiguousarray(labels, dtype="<f4" if labels.dtype.kind == "f" else "<i8")
    found = bytearray()
    for image, tail in zip(images, tails, strict=True):
        digest = hashlib.blake2b(image.data, digest_size=8)
        digest.update(tail.tobytes())
        found += digest.digest()
    return np.frombuffer(bytes(found), dtype="<u8")


@dataclass(frozen=True)
class Split:
    """The samples of one split of a store."""

    folder: Path
    name: str
    count: int
    shape: Shape
    format: Format = PICTURES

    def __reduce__(self) -> tuple[type[Split], tuple[Path, str, int, Shape, Format]]:
        # Another process maps the files itself: pickling a map would copy the whole array.
        return Split, (self.folder, self.name, self.count, self.shape, self.format)

    @property
    def columns(self) -> tuple[Column, Column, Column]:
        return columns(
            self.folder, self.name, count=self.count, shape=self.shape, format=self.format
        )

    @property
    def row_bytes(self) -> int:
        """What one sample takes on disk: image, label and digest."""
        return sum(column.row_bytes for column in self.columns)

    def path_of(self, number: int) -> Path:
        """The file that holds an image: one for all."""
        return self.columns[0].path

    @cached_property
    def images(self) -> Images:
        return self.columns[0].mapped()

    @cached_property
    def labels(self) -> Labels:
        return self.columns[1].mapped()

    @cached_property
    def digests(self) -> Digests:
        return self.columns[2].mapped()

    def rows(self, indices: Indices, *, empty: Empty = np.empty) -> tuple[Images, Labels]:
        """The images and labels of these samples, in this order."""
        self._check(indices)
        images = empty((len(indices), *self.images.shape[1:]), self.images.dtype)
        gather(self.images, indices, images)
        return images, self.labels[indices]

    def labels_of(self, indices: Indices) -> Labels:
        """The labels alone."""
        self._check(indices)
        return self.labels[indices]

    def _check(self, indices: Indices) -> None:
        if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < self.count:
            raise DataError(
                f"{self.folder}: samples {indices.min()} to {indices.max()} asked for, split "
                f"{self.name!r} has 0 to {self.count - 1}. Is this the store of the bootstrap?"
            )


@dataclass(frozen=True)
class Store:
    """A finished store on disk."""

    path: Path
    name: str
    sha256: str
    classes: tuple[str, ...]
    splits: dict[str, Split]
    file_sha256: dict[str, str]

    @classmethod
    def open(cls, path: Path) -> Store:
        """Read the manifest and hold files' presence and sizes against it; reads no image."""
        manifest = _read_manifest(path)
        try:
            store = _from_manifest(path, manifest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{path / MANIFEST}: this is no manifest of a store ({error!r}). Make it again."
            ) from error
        stated = manifest.get("sha256")
        if stated != store.sha256:
            raise DataError(
                f"{path / MANIFEST}: corrupt: its contents have SHA-256 {store.sha256}, "
                f"it says {stated}. Make or copy the store again."
            )
        for column in store.columns():
            _check_size(column)
        return store

    def columns(self) -> Iterator[Column]:
        """Every file of the store but its manifest."""
        for split in self.splits.values():
            yield from split.columns

    def verify(self, progress: Progress | None = None) -> None:
        """Hold every byte of every file against the manifest; progress is in bytes."""
        total = sum(column.file_bytes for column in self.columns())
        done = 0

        def count(size: int) -> None:
            nonlocal done
            done += size
            if progress:
                progress(done, total)

        for column in self.columns():
            found = file_sha256(column.path, count)
            expected = self.file_sha256[column.path.name]
            if found != expected:
                raise DataError(
                    f"{column.path}: corrupt: SHA-256 is {found}, manifest says {expected}. "
                    "Make or copy the store again."
                )


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        manifest = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(_why_no_store(path)) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot read this manifest: {error}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{file}: not a manifest of format {FORMAT!r}. Make the store again.")
    return manifest


def _why_no_store(path: Path) -> str:
    if any(path.glob("*.images.npy")):
        return (
            f"{path / MANIFEST}: missing: {path} is an unfinished store. Run the command that "
            "makes it (ai500 data pack, ai500 data generate) again: it goes on where it stopped."
        )
    if path.is_dir():
        why = f"it has no {MANIFEST}, and no years of climate data (climo_1979.h5, …)"
    else:
        why = "it is a file, not a folder" if path.exists() else "there is no such folder"
    return (
        f"{path} is no store: {why}. `ai500 data pack` makes one of your images, `ai500 data "
        "generate` one of learnable data."
    )


def _from_manifest(path: Path, manifest: dict[str, Any]) -> Store:
    splits: dict[str, Split] = {}
    hashes: dict[str, str] = {}
    for name, entry in manifest["splits"].items():
        height, width, channels = (int(size) for size in entry["shape"])
        splits[name] = Split(path, name, int(entry["count"]), (height, width, channels))
        for column in splits[name].columns:
            hashes[column.path.name] = str(entry["files"][column.path.name]["sha256"])
    classes = tuple(str(name) for name in manifest["classes"])
    body = manifest_body(str(manifest["name"]), classes=classes, splits=splits, file_sha256=hashes)
    return Store(path, body["name"], identity(body), classes, splits, hashes)


def manifest_body(
    name: str,
    *,
    classes: tuple[str, ...],
    splits: Mapping[str, Split],
    file_sha256: Mapping[str, str],
) -> dict[str, Any]:
    """All of a manifest that the identity covers: contents, no paths and no times."""
    entries = {
        split.name: {
            "count": split.count,
            "shape": list(split.shape),
            "dtype": "uint8",
            "files": {
                column.path.name: {
                    "bytes": column.file_bytes,
                    "sha256": file_sha256[column.path.name],
                }
                for column in split.columns
            },
        }
        for split in splits.values()
    }
    return {"format": FORMAT, "name": name, "classes": list(classes), "splits": entries}


def identity(body: dict[str, Any]) -> str:
    """SHA-256 of a manifest's contents in one canonical spelling."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_size(column: Column) -> None:
    try:
        size = column.path.stat().st_size
    except OSError as error:
        raise DataError(
            f"{column.path}: this file of the store is missing ({error.strerror}). "
            "Make or copy the store again."
        ) from error
    if size != column.file_bytes:
        raise DataError(
            f"{column.path}: has {size} bytes, its manifest says {column.file_bytes}. "
            "Make or copy the store again."
        )


def file_sha256(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a file, block by block."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(HASH_BLOCK_BYTES):
                digest.update(block)
                if on_bytes:
                    on_bytes(len(block))
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}.") from error
    return digest.hexdigest()
