"""The packed store: images as one memory-mapped array per split, so that training decodes nothing.

    STORE/
      manifest.json         format, name, classes; size and SHA-256 of each file; the identity
      train.images.npy      uint8 [N, H, W, C]
      train.labels.npy      int64 [N]
      train.digests.npy     uint64 [N]: digest of each image and its label, to verify copies
      validation.….npy

The bytes depend on the contents alone. The manifest is written last: a folder without one is not a
store. `ai500.data.image_store_writer` writes stores; nodes' copies have splits of the same format.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.gather import Empty, gather
from ai500.data.resumable_work import Progress
from ai500.data.store import (
    CheckReport,
    Digests,
    Indices,
    SampleLayout,
    Shape,
    data_error,
    facts_of,
    require_indices,
    summary_of,
)
from ai500.records import ProblemClass

FORMAT = "ai500 store 1"
MANIFEST = "manifest.json"
HEADER_BYTES = 128
HASH_BLOCK_BYTES = 1 << 22
# A span of rows is read whole while it holds at most this many times the rows asked for.
SPARSE = 4
COPY_AGAIN = "Make or copy the store again."

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

IMAGE_LAYOUT = SampleLayout("|u1", channels_first=False, label_dtype="<i8", label_shape=())


@dataclass(frozen=True)
class Column:
    """One .npy file of a split."""

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
        """Return the byte at which a row begins in the file."""
        return HEADER_BYTES + row * self.row_bytes

    def header(self) -> bytes:
        """Return the header of .npy format 1.0."""
        # Of a fixed length: NumPy's own differs between versions.
        text = f"{{'descr': {self.dtype.str!r}, 'fortran_order': False, 'shape': {self.shape}, }}"
        return b"\x93NUMPY\x01\x00\x76\x00" + text.ljust(HEADER_BYTES - 11).encode() + b"\n"

    def mapped(self) -> NDArray[Any]:
        """Map the file as a read-only array."""
        try:
            array = np.memmap(
                self.path, dtype=self.dtype, mode="r", offset=HEADER_BYTES, shape=self.shape
            )
        except (OSError, ValueError) as error:
            raise data_error(self.path, f"cannot read this file of the store: {error}.") from error
        return array.view(np.ndarray)

    def read(self, indices: Indices) -> NDArray[Any]:
        """Read rows in ascending order: in one sweep where they are dense, else one by one."""
        # Reads instead of mapping: with a map, a failing disk is a fatal signal, not an error.
        first, last = int(indices[0]), int(indices[-1]) + 1
        try:
            with self.path.open("rb", buffering=0) as file:
                if last - first <= SPARSE * indices.size:
                    return self._read_span(file, first, last)[indices - first]
                rows = [self._read_span(file, row, row + 1) for row in indices.tolist()]
        except OSError as error:
            raise data_error(self.path, f"cannot read this file: {error.strerror}.") from error
        return np.concatenate(rows)

    def _read_span(self, file: io.FileIO, first: int, last: int) -> NDArray[Any]:
        rows = np.empty((last - first, *self.shape[1:]), dtype=self.dtype)
        rest = rows.reshape(-1).view(np.uint8).data
        file.seek(self.offset(first))
        while rest:
            read = file.readinto(rest)
            if not read:
                raise data_error(self.path, f"ends before sample {last - 1}: the file was cut off.")
            rest = rest[read:]
        return rows


def columns(
    folder: Path, split: str, *, count: int, shape: Shape, layout: SampleLayout = IMAGE_LAYOUT
) -> tuple[Column, Column, Column]:
    """Return the files of a split's images, labels and digests."""
    height, width, channels = shape
    stored = (channels, height, width) if layout.channels_first else shape
    images, labels = np.dtype(layout.image_dtype), np.dtype(layout.label_dtype)
    return (
        Column(folder / f"{split}.images.npy", images, (count, *stored)),
        Column(folder / f"{split}.labels.npy", labels, (count, *layout.label_shape)),
        Column(folder / f"{split}.digests.npy", np.dtype("<u8"), (count,)),
    )


@dataclass(frozen=True)
class ImageSplit:
    """The samples of one split, of a store or of a node's copy."""

    folder: Path
    name: str
    count: int
    shape: Shape
    layout: SampleLayout = IMAGE_LAYOUT

    def __reduce__(self) -> tuple[type[ImageSplit], tuple[Path, str, int, Shape, SampleLayout]]:
        # Another process maps the files itself: pickling a map would copy the whole array.
        return ImageSplit, (self.folder, self.name, self.count, self.shape, self.layout)

    @property
    def columns(self) -> tuple[Column, Column, Column]:
        return columns(
            self.folder, self.name, count=self.count, shape=self.shape, layout=self.layout
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of one sample on disk: image, label and digest."""
        return sum(column.row_bytes for column in self.columns)

    def path_of(self, number: int) -> Path:
        """Return the file that holds an image: one for all."""
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
        """Read the images and labels of these samples, in this order."""
        require_indices(self, indices, folder=self.folder, name=self.name)
        images = empty((len(indices), *self.images.shape[1:]), self.images.dtype)
        gather(self.images, indices, images)
        return images, self.labels[indices]

    def labels_of(self, indices: Indices) -> Labels:
        """Read the labels alone."""
        require_indices(self, indices, folder=self.folder, name=self.name)
        return self.labels[indices]

    def images_of(self, indices: Indices) -> NDArray[Any]:
        """Read the images of samples in ascending order, without a memory map."""
        return self.columns[0].read(indices)

    def storage_chunks(self, indices: Indices) -> None:
        """Return None: an image is read by itself."""


@dataclass(frozen=True)
class ImageStore:
    """A finished store on disk."""

    path: Path
    name: str
    sha256: str
    classes: tuple[str, ...]
    splits: dict[str, ImageSplit]
    file_sha256: dict[str, str]

    preparation: ClassVar[str | None] = None

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        """Return True where the folder has a manifest."""
        return (path / MANIFEST).exists()

    @classmethod
    def open(cls, path: Path) -> ImageStore:
        """Read the manifest and compare the files' sizes with it; reads no image."""
        manifest = _read_manifest(path)
        try:
            store = _from_manifest(path, manifest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise data_error(
                path / MANIFEST,
                f"not the manifest of a store ({error!r}).",
                "Make the store again.",
            ) from error
        stated = manifest.get("sha256")
        if stated != store.sha256:
            raise data_error(
                path / MANIFEST,
                f"corrupt: its contents have SHA-256 {store.sha256}, it says {stated}.",
                COPY_AGAIN,
            )
        for column in store.columns():
            _check_size(column)
        return store

    @classmethod
    def check(cls, path: Path, progress: Progress | None = None) -> CheckReport:
        """Verify every file; a damaged store raises `DataError`."""
        store = cls.open(path)
        store.verify(progress)
        return CheckReport(path, summary_of(store), facts_of(store))

    def prepare(self, progress: Progress | None = None) -> None:
        """Do nothing: the manifest has everything."""

    def digests(self, split: str) -> Digests:
        """Return the digest of every sample of a split."""
        return self.splits[split].digests

    def normalization(self) -> None:
        """Return None: the workload's constants normalize images."""

    def require_fit(self, problem_class: ProblemClass) -> None:
        """Raise `DataError` where the images are smaller than the model's input."""
        channels, height, width = problem_class.input_shape
        shape = self.splits["train"].shape
        if shape[0] < height or shape[1] < width:
            raise data_error(
                self.path,
                f"its images are {shape[0]}×{shape[1]}×{shape[2]}; class "
                f"{problem_class.name} needs at least {height}×{width}×{channels}.",
                f"Pack them again with --size {max(height, width)} or more.",
            )

    def columns(self) -> Iterator[Column]:
        """Iterate over every file of the store but its manifest."""
        for split in self.splits.values():
            yield from split.columns

    def verify(self, progress: Progress | None = None) -> None:
        """Compare the SHA-256 of every file with the manifest; progress is in bytes."""
        total = sum(column.file_bytes for column in self.columns())
        done = 0

        def count(size: int) -> None:
            nonlocal done
            done += size
            if progress:
                progress(done, total)

        for column in self.columns():
            sha256 = file_sha256(column.path, count)
            expected = self.file_sha256[column.path.name]
            if sha256 != expected:
                raise data_error(
                    column.path,
                    f"corrupt: SHA-256 is {sha256}, manifest says {expected}.",
                    COPY_AGAIN,
                )


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        manifest = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(_why_no_store(path), path=path) from None
    except (OSError, ValueError) as error:
        raise data_error(file, f"cannot read this manifest: {error}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise data_error(file, f"not a manifest of format {FORMAT!r}.", "Make the store again.")
    return manifest


def _why_no_store(path: Path) -> str:
    if any(path.glob("*.images.npy")):
        return (
            f"{path / MANIFEST}: missing: {path} is an unfinished store. Run the command that "
            "makes it (ai500 data pack, ai500 data generate) again: it resumes."
        )
    if path.is_dir():
        why = f"it has no {MANIFEST}, and no years of climate data (climo_1979.h5, …)"
    else:
        why = "it is a file, not a folder" if path.exists() else "there is no such folder"
    return (
        f"{path} is no store: {why}. `ai500 data pack` makes a store of your images, `ai500 data "
        "generate` one of learnable data."
    )


def _from_manifest(path: Path, manifest: dict[str, Any]) -> ImageStore:
    splits: dict[str, ImageSplit] = {}
    hashes: dict[str, str] = {}
    for name, entry in manifest["splits"].items():
        height, width, channels = (int(size) for size in entry["shape"])
        splits[name] = ImageSplit(path, name, int(entry["count"]), (height, width, channels))
        for column in splits[name].columns:
            hashes[column.path.name] = str(entry["files"][column.path.name]["sha256"])
    classes = tuple(str(name) for name in manifest["classes"])
    body = manifest_body(str(manifest["name"]), classes=classes, splits=splits, file_sha256=hashes)
    return ImageStore(path, body["name"], identity(body), classes, splits, hashes)


def manifest_body(
    name: str,
    *,
    classes: tuple[str, ...],
    splits: Mapping[str, ImageSplit],
    file_sha256: Mapping[str, str],
) -> dict[str, Any]:
    """Return the part of a manifest that the identity covers: contents, no paths, no times."""
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
    """Compute the SHA-256 of a manifest's contents in one canonical spelling."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_size(column: Column) -> None:
    try:
        size = column.path.stat().st_size
    except OSError as error:
        raise data_error(
            column.path, f"this file of the store is missing ({error.strerror}).", COPY_AGAIN
        ) from error
    if size != column.file_bytes:
        raise data_error(
            column.path, f"has {size} bytes, its manifest says {column.file_bytes}.", COPY_AGAIN
        )


def file_sha256(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """Compute the SHA-256 of a file, block by block."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(HASH_BLOCK_BYTES):
                digest.update(block)
                if on_bytes:
                    on_bytes(len(block))
    except OSError as error:
        raise data_error(path, f"cannot read this file: {error.strerror}.") from error
    return digest.hexdigest()
