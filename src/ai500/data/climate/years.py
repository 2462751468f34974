"""One file of the data set: its frames are read straight from the disk where their layout allows.

h5py lets one thread of a process read at a time. A contiguous data set is one run of bytes, and a
chunk is another: both are read here by `pread` from several threads, chunks are inflated by several
threads, and the library is asked only where they lie. Layouts that are neither go through it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.climate.schema import CHANNELS, MOST_BOXES, Boxes, Frames, hdf5, year_of
from ai500.data.gather import Job

BLOCK_BYTES = 1 << 23
"""Of a frame, read by one thread: a batch of four is shared out evenly among sixteen."""
EVERY_CHANNEL = range(len(CHANNELS))
Places = list[tuple[int, int]]
"""Position in the file, and row of the array it goes to."""


@dataclass(frozen=True)
class Chunked:
    """Chunks of this shape, through these filters, in the order they were applied."""

    shape: tuple[int, int, int, int]
    filters: tuple[str, ...]
    fill: float


@dataclass(frozen=True)
class Chunk:
    """One chunk: its first frame, channel, row and column, and where it lies."""

    corner: tuple[int, ...]
    offset: int | None
    """None: it was never written, all its values are the fill value."""
    size: int
    mask: int
    """Bits of the filters that were not applied."""


@dataclass(frozen=True)
class Year:
    """What a file holds and how it lies there; opening it reads no frame."""

    path: Path
    year: int
    count: int
    height: int
    width: int
    bytes: int
    modified_ns: int
    layout: int | Chunked | None
    """Offset of contiguous frames, or their chunks; None: only the library can read them."""

    @property
    def frame_bytes(self) -> int:
        return 4 * len(CHANNELS) * self.height * self.width

    @property
    def frames_together(self) -> int:
        """How many frames a chunk holds: whoever reads one may as well read the others."""
        return self.layout.shape[0] if isinstance(self.layout, Chunked) else 1

    def boxes(self) -> Boxes:
        """All boxes of the year, float32 [N, 15, 5]."""
        with opened(self.path) as file:
            try:
                return np.asarray(file["boxes"][:], dtype=np.float32)
            except OSError as error:
                raise DataError(
                    f"{self.path}: `boxes` cannot be read ({error}). Copy the file again."
                ) from error

    def jobs(self, places: Places, out: Frames, channels: range = EVERY_CHANNEL) -> Iterator[Job]:
        """What puts frames into rows of `out`: jobs for any order and any thread.

        Only chunks can be read for some `channels` alone.
        """
        if isinstance(self.layout, int):
            yield from self._contiguous(self.layout, places, out)
        elif self.layout is not None:
            yield from self._chunked(self.layout, places, out, channels)
        else:
            yield lambda: self._by_library(sorted(places), out)

    def _contiguous(self, offset: int, places: Places, out: Frames) -> Iterator[Job]:
        for position, row in places:
            target = out[row].reshape(-1).view(np.uint8).data
            start = offset + position * self.frame_bytes
            for first in range(0, self.frame_bytes, BLOCK_BYTES):
                block = target[first : first + BLOCK_BYTES]
                yield lambda block=block, at=start + first: self._pread(block, at)  # type: ignore[misc]

    def _pread(self, target: memoryview, offset: int) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                while target:
                    read = os.preadv(descriptor, [target], offset)
                    if not read:
                        raise DataError(f"{self.path}: ends too early: the file was cut off.")
                    target, offset = target[read:], offset + read
            finally:
                os.close(descriptor)
        except OSError as error:
            raise DataError(f"{self.path}: cannot read this file: {error.strerror}.") from error

    def _chunked(
        self, layout: Chunked, places: Places, out: Frames, channels: range
    ) -> Iterator[Job]:
        deep = layout.shape[0]
        together: dict[int, Places] = {}
        for position, row in places:
            together.setdefault(position // deep * deep, []).append((position, row))
        for chunk in self.chunks(layout, sorted(together), channels):
            wanted, corner = together[chunk.corner[0]], chunk.corner[1:]
            place = (corner[0] - channels.start, *corner[1:])
            yield partial(self._bring, layout, chunk, wanted, out, place)

    def chunks(
        self, layout: Chunked, firsts: Iterable[int], channels: range = EVERY_CHANNEL
    ) -> list[Chunk]:
        """The chunks of the frames from each of `firsts` on, in the order they have on disk."""
        sizes = (channels, range(self.height), range(self.width))
        steps = [size[::step] for size, step in zip(sizes, layout.shape[1:], strict=True)]
        with opened(self.path) as file, _intact(self.path, "its chunk index"):
            lookup = file["images"].id.get_chunk_info_by_coord
            found = []
            for corner in (corner for first in firsts for corner in product([first], *steps)):
                where = lookup(corner)
                found.append(Chunk(corner, where.byte_offset, where.size, where.filter_mask))
        return sorted(found, key=lambda chunk: chunk.offset or 0)

    def unpacked(self, layout: Chunked, chunk: Chunk) -> NDArray[np.float32]:
        """The values of a chunk that was written."""
        raw = np.empty(chunk.size, np.uint8)
        self._pread(raw.data, chunk.offset or 0)
        try:
            return _undone(raw.data, layout, mask=chunk.mask)
        except (zlib.error, ValueError) as error:
            raise DataError(
                f"{self.path}: frame {chunk.corner[0]} is corrupt: its chunk cannot be unpacked "
                f"({error}). Copy the file again."
            ) from error

    def _bring(
        self,
        layout: Chunked,
        chunk: Chunk,
        wanted: Places,
        out: Frames,
        place: tuple[int, ...],
    ) -> None:
        """Bring one chunk to its place in every row that wants a part of it."""
        area = tuple(
            slice(first, first + step) for first, step in zip(place, layout.shape[1:], strict=True)
        )
        if chunk.offset is not None and not layout.filters and layout.shape[1:] == out.shape[1:]:
            # Whole rows as they are: no detour through a chunk of our own.
            for position, row in wanted:
                offset = chunk.offset + (position - chunk.corner[0]) * out[row].nbytes
                self._pread(out[row].reshape(-1).view(np.uint8).data, offset)
            return
        values = None if chunk.offset is None else self.unpacked(layout, chunk)
        for position, row in wanted:
            target = out[row][area]
            if values is None:
                target[:] = layout.fill
            else:
                inside = tuple(slice(size) for size in target.shape)
                target[:] = values[position - chunk.corner[0]][inside]

    def _by_library(self, places: Places, out: Frames) -> None:
        with opened(self.path) as file:
            images = file["images"]
            try:
                for position, row in places:
                    images.read_direct(out, np.s_[position], np.s_[row])
            except OSError as error:
                raise DataError(f"{self.path}: cannot read frame {position}: {error}.") from error


def _undone(raw: memoryview | bytes, layout: Chunked, *, mask: int) -> NDArray[np.float32]:
    """The filters undone in reverse; a bit of `mask` says that one was not applied."""
    for number, name in reversed(list(enumerate(layout.filters))):
        if mask >> number & 1:
            continue
        if name == "gzip":
            # At its whole size from the start: grown piece by piece it would be copied once more.
            raw = zlib.decompress(raw, bufsize=4 * prod(layout.shape))
        else:
            values = np.empty((prod(layout.shape), 4), np.uint8)
            for byte, plane in enumerate(np.frombuffer(raw, np.uint8).reshape(4, -1)):
                values[:, byte] = plane
            raw = values.data
    return np.frombuffer(raw, "<f4").reshape(layout.shape)


def opened(path: Path) -> Any:
    """The file through h5py, or an error that says what is wrong with it."""
    library = hdf5()
    try:
        return library.File(path, "r")
    except OSError as error:
        text = str(error).lower()
        if "truncated" in text:
            why = "is truncated: its end is missing"
        elif "signature" in text:
            why = "is no HDF5 file"
        else:
            why = f"cannot be opened ({error})"
        raise DataError(f"{path}: {why}. Copy or download it again.") from error


@contextmanager
def _intact(path: Path, what: str) -> Iterator[None]:
    """What the library says of damage inside a file, in many classes, as one error."""
    try:
        yield
    except (RuntimeError, OSError, KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path}: {what} is corrupt ({error}). Copy the file again.") from error


def open_year(path: Path) -> Year:
    """A file of the data set, its two data sets held against the schema."""
    with opened(path) as file, _intact(path, "its table of contents"):
        problems = list(_schema_problems(file))
        if problems:
            raise DataError("\n".join(f"{path}: {problem}" for problem in problems))
        images = file["images"]
        count, _, height, width = images.shape
        stat = path.stat()
        return Year(
            path=path,
            year=year_of(path) or 0,
            count=count,
            height=height,
            width=width,
            bytes=stat.st_size,
            modified_ns=stat.st_mtime_ns,
            layout=_layout(images),
        )


def _schema_problems(file: Any) -> Iterator[str]:
    for name in ("images", "boxes"):
        if not hasattr(file.get(name), "shape"):
            yield f"has no data set {name!r}, only {sorted(map(str, file))}."
            return
    images, boxes = file["images"], file["boxes"]
    if images.ndim != 4 or images.shape[1] != len(CHANNELS):
        yield (
            f"`images` is {list(images.shape)}; the schema has "
            f"[frames, {len(CHANNELS)} channels, height, width]."
        )
    elif not all(images.shape):
        yield f"`images` is {list(images.shape)}: it holds no frame."
    if images.dtype.kind != "f":
        yield f"`images` holds {images.dtype}; the schema has float32."
    if boxes.ndim != 3 or boxes.shape[1:] != (MOST_BOXES, 5):
        yield f"`boxes` is {list(boxes.shape)}; the schema has [frames, {MOST_BOXES}, 5]."
    elif images.ndim == 4 and boxes.shape[0] != images.shape[0]:
        yield f"has {images.shape[0]} frames of `images`, but {boxes.shape[0]} of `boxes`."
    if boxes.dtype.kind not in "fiu":
        yield f"`boxes` holds {boxes.dtype}; the schema has numbers."


def _layout(images: Any) -> int | Chunked | None:
    """How the frames lie, where that can be read without the library."""
    properties = images.id.get_create_plist()
    if images.dtype != np.dtype("<f4") or properties.get_external_count():
        return None
    if images.chunks is None:
        offset = images.id.get_offset()
        return None if offset is None or properties.get_nfilters() else int(offset)
    names = {1: "gzip", 2: "shuffle"}
    codes = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    if any(code not in names for code in codes):
        return None
    return Chunked(images.chunks, tuple(names[code] for code in codes), float(images.fillvalue))
