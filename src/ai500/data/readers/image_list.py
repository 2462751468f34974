"""Encoded images and their labels, as files or as members of a tar archive; their reader."""

from __future__ import annotations

import hashlib
import os
import tarfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.readers.pixels import SUFFIXES, Pixels, decode, image_field, read_dtype
from ai500.data.readers.protocol import Ignored, Part, joined
from ai500.data.resumable_work import Holes
from ai500.data.store import Arrays, data_error
from ai500.records.fields import Field

Entry = tuple[str, int, int, int]
"""Name, label, first byte and number of bytes; a file of its own begins at 0 and has −1 bytes."""
WHOLE_FILE = -1


def is_image(name: str) -> bool:
    """Return True for the name of an image that is not hidden."""
    last = name.rpartition("/")[2]
    return last[:1] != "." and os.path.splitext(last)[1].lower() in SUFFIXES  # noqa: PTH122


class ImageList:
    """The images of one split in order: files below `root`, or members of the archive `root`.

    Kept in flat arrays: a list of a million Python objects would take gigabytes.
    """

    def __init__(self, root: Path, entries: Iterable[Entry] = ()) -> None:
        self.root = root
        self._names = bytearray()
        self._ends = array("q")
        self._labels, self._offsets, self._sizes = array("q"), array("q"), array("q")
        for entry in entries:
            self.add(*entry)

    def add(self, name: str, label: int, offset: int = 0, size: int = WHOLE_FILE) -> None:
        """Append an image."""
        self._names += os.fsencode(name)
        self._ends.append(len(self._names))
        self._labels.append(label)
        self._offsets.append(offset)
        self._sizes.append(size)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels of all images."""
        return np.frombuffer(self._labels, np.int64) if self._labels else np.empty(0, np.int64)

    def name(self, number: int) -> str:
        """Return the path of an image below `root`."""
        first = self._ends[number - 1] if number else 0
        return os.fsdecode(bytes(self._names[first : self._ends[number]]))

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries(range(len(self))))

    def entries(self, numbers: Iterable[int]) -> Iterator[Entry]:
        """Yield the entries of some images."""
        for number in numbers:
            yield (
                self.name(number),
                self._labels[number],
                self._offsets[number],
                self._sizes[number],
            )

    def sha256(self) -> str:
        """Hash names, labels and places; the contents do not count."""
        digest = hashlib.sha256(bytes(self._names))
        for values in (self._ends, self._labels, self._offsets, self._sizes):
            digest.update(values.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class ImageReader:
    """Reads labelled images by number."""

    name: str
    classes: tuple[str, ...]
    lists: Mapping[str, ImageList]
    size: int
    dtype: str
    ignored: Ignored

    @property
    def fields(self) -> tuple[Field, ...]:
        """Images of one size, and the number of their class."""
        labels = Field("labels", "target", "int64", (), limits=(0, len(self.classes) - 1))
        return image_field("images", self.dtype, self.size), labels

    @property
    def counts(self) -> dict[str, int]:
        return {split: len(images) for split, images in self.lists.items()}

    @property
    def origin(self) -> str:
        hashes = ", ".join(f"{split} {images.sha256()}" for split, images in self.lists.items())
        return f"images, listing {hashes}"

    def sample_name(self, split: str, number: int) -> str:
        """Return the path of an image, with the replacement character for what is no text."""
        name = self.lists[split].name(number)
        return os.fsencode(name).decode(errors="replace")

    def part(self, split: str, first: int, last: int) -> Part:
        """Return the call that decodes images first … last − 1 of a split."""
        images = self.lists[split]
        entries = list(images.entries(range(first, last)))
        return partial(read_images, images.root, entries, size=self.size, dtype=self.dtype)


def image_reader(
    name: str,
    classes: tuple[str, ...],
    lists: Mapping[str, ImageList],
    *,
    size: int,
    ignored: Ignored,
) -> ImageReader:
    """Return the reader of images, whose type is that of the first readable one."""
    image_field("images", "uint8", size)  # raises for a size that is none
    dtypes = (dtype for images in lists.values() for dtype in _dtypes(images))
    return ImageReader(name, classes, lists, size, next(dtypes, "uint8"), ignored)


def _dtypes(images: ImageList) -> Iterator[str]:
    for entry in images:
        try:
            yield read_dtype(_encoded(images.root, entry), entry[0])
        except DataError:
            raise
        except Exception:  # a broken image may raise anything in a decoder
            continue


def read_images(root: Path, entries: list[Entry], *, size: int, dtype: str) -> tuple[Arrays, Holes]:
    """Decode images; those that are damaged become holes."""
    field = image_field("images", dtype, size)
    images: list[Pixels] = []
    labels: list[int] = []
    holes: Holes = []
    for place, entry in enumerate(entries):
        name, label, _, _ = entry
        try:
            images.append(decode(_encoded(root, entry), size=size, dtype=dtype, name=name))
        except (MemoryError, DataError):
            raise
        except Exception as error:  # a broken image may raise anything in a decoder
            holes.append((place, _reason(error, root)))
        else:
            labels.append(label)
    return {**joined(field, images), "labels": np.array(labels, dtype=np.int64)}, holes


def _reason(error: Exception, root: Path) -> str:
    return f"{type(error).__name__}: {error}".replace(f"{root}{os.sep}", "")


def _encoded(root: Path, entry: Entry) -> bytes | Path:
    name, _, offset, size = entry
    if size == WHOLE_FILE:
        return root / name
    with root.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), size, offset)


def members(archive: Path) -> Iterator[tuple[str, int, int]]:
    """Yield name, first byte and size of every file in a tar archive, without unpacking it."""
    try:
        with tarfile.open(archive, "r:") as opened:
            for member in _in_turn(opened):
                if member.isreg():
                    yield (
                        member.name.removeprefix("./"),
                        member.offset_data,
                        member.size,
                    )
    except FileNotFoundError:
        raise data_error(archive, "no such archive.") from None
    except (tarfile.TarError, EOFError) as error:
        raise data_error(
            archive,
            f"cannot be read as an uncompressed tar archive: {error}.",
            "If it is compressed, unpack it with gunzip first; if it was cut off, copy it again.",
        ) from error
    except OSError as error:
        raise data_error(archive, f"cannot be read: {error.strerror or error}.") from error


def _in_turn(opened: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive, which would keep them all: a million take a gigabyte."""
    while (member := opened.next()) is not None:
        yield member
        opened.members.clear()  # type: ignore[attr-defined]


def members_within(archive: Path, offset: int, size: int) -> Iterator[tuple[str, int, int]]:
    """Yield the files of a tar archive that lies in `archive` from a byte on."""
    with archive.open("rb") as file:
        window: Any = _Window(file.fileno(), offset, size)
        try:
            with tarfile.open(fileobj=window, mode="r:") as opened:
                for member in _in_turn(opened):
                    if member.isreg():
                        yield member.name, offset + member.offset_data, member.size
        except (tarfile.TarError, EOFError, OSError) as error:
            raise data_error(
                archive, f"the archive at byte {offset} in it cannot be read: {error}."
            ) from error


class _Window:
    """A part of a file that reads like a file of its own."""

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self._descriptor, self._offset, self._size = descriptor, offset, size
        self._place = 0

    def tell(self) -> int:
        return self._place

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}
        self._place = bases[whence] + place
        return self._place

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._size - self._place)
        length = rest if size < 0 else min(size, rest)
        block = os.pread(self._descriptor, length, self._offset + self._place)
        self._place += len(block)
        return block
