"""One file of the data set: reading its frames, and comparing its boxes with the schema.

h5py lets one thread of a process read at a time. A contiguous data set is one run of bytes, and so
is a chunk: both are read by `pread` and inflated in several threads, and h5py only says where they
lie. Other layouts are read through h5py.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
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
from ai500.data.climate.schema import CHANNELS, CLASSES, MOST_BOXES, Boxes, Frames, hdf5, year_of
from ai500.data.gather import Job
from ai500.data.store import Problem, data_error

# Bytes of a frame that one thread reads: a batch of four is shared evenly among sixteen threads.
BLOCK_BYTES = 1 << 23
EVERY_CHANNEL = range(len(CHANNELS))
PROBLEMS_SHOWN = 3
COPY_AGAIN = "Copy the file again."
Places = list[tuple[int, int]]
"""Positions in the file, each with the row of the array that it is read into."""
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Chunked:
    """A layout in chunks of one shape."""

    shape: tuple[int, int, int, int]
    filters: tuple[str, ...]
    """Names of the filters, in the order in which they were applied."""
    fill: float


@dataclass(frozen=True)
class Chunk:
    """One chunk of a file."""

    corner: tuple[int, ...]
    """Its first frame, channel, row and column."""
    offset: int | None
    """First byte in the file; None: never written, all values are the fill value."""
    size: int
    mask: int
    """Bits of the filters that were not applied."""


@dataclass(frozen=True)
class Year:
    """Contents and layout of a file; opening it reads no frame."""

    path: Path
    year: int
    count: int
    height: int
    width: int
    bytes: int
    modified_ns: int
    layout: int | Chunked | None
    """Offset of contiguous frames, or their chunks; None: only h5py can read them."""
    dtype: str = "float32"
    """Type of the frames in the file; they are read as float32."""

    @property
    def frame_bytes(self) -> int:
        return 4 * len(CHANNELS) * self.height * self.width

    @property
    def frames_per_chunk(self) -> int:
        """Number of frames that are stored, and so best read, together."""
        return self.layout.shape[0] if isinstance(self.layout, Chunked) else 1

    def boxes(self) -> Boxes:
        """Read all boxes of the year, float32 [N, 15, 5]."""
        with opened(self.path) as file:
            try:
                return np.asarray(file["boxes"][:], dtype=np.float32)
            except OSError as error:
                raise data_error(
                    self.path, f"`boxes` cannot be read ({error}).", COPY_AGAIN, key="boxes"
                ) from error

    def jobs(self, places: Places, out: Frames, channels: range = EVERY_CHANNEL) -> Iterator[Job]:
        """Yield jobs that read frames into rows of `out`, in any order and any thread.

        Only a chunked layout can be read for some `channels` alone.
        """
        if isinstance(self.layout, int):
            yield from self._contiguous(self.layout, places, out)
        elif self.layout is not None:
            yield from self._chunked(self.layout, places, out, channels)
        else:
            yield lambda: self._read_by_h5py(sorted(places), out)

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
                        raise data_error(self.path, "ends too early: the file was cut off.")
                    target, offset = target[read:], offset + read
            finally:
                os.close(descriptor)
        except OSError as error:
            raise data_error(self.path, f"cannot read this file: {error.strerror}.") from error

    def _chunked(
        self, layout: Chunked, places: Places, out: Frames, channels: range
    ) -> Iterator[Job]:
        depth = layout.shape[0]
        by_first: dict[int, Places] = {}
        for position, row in places:
            by_first.setdefault(position // depth * depth, []).append((position, row))
        for chunk in self.chunks(layout, sorted(by_first), channels):
            corner = chunk.corner[1:]
            origin = (corner[0] - channels.start, *corner[1:])
            yield partial(self._read_chunk, layout, chunk, by_first[chunk.corner[0]], out, origin)

    def chunks(
        self, layout: Chunked, firsts: Iterable[int], channels: range = EVERY_CHANNEL
    ) -> list[Chunk]:
        """Look up the chunks whose first frame is in `firsts`, in their order on disk."""
        sizes = (channels, range(self.height), range(self.width))
        steps = [size[::step] for size, step in zip(sizes, layout.shape[1:], strict=True)]
        with opened(self.path) as file, _intact(self.path, "chunk index"):
            lookup = file["images"].id.get_chunk_info_by_coord
            chunks = []
            for corner in (corner for first in firsts for corner in product([first], *steps)):
                entry = lookup(corner)
                chunks.append(Chunk(corner, entry.byte_offset, entry.size, entry.filter_mask))
        return sorted(chunks, key=lambda chunk: chunk.offset or 0)

    def unpacked(self, layout: Chunked, chunk: Chunk) -> NDArray[np.float32]:
        """Read and unpack a chunk that was written."""
        raw = np.empty(chunk.size, np.uint8)
        self._pread(raw.data, chunk.offset or 0)
        try:
            return _undo_filters(raw.data, layout, mask=chunk.mask)
        except (zlib.error, ValueError) as error:
            raise data_error(
                self.path,
                f"frame {chunk.corner[0]} is corrupt: its chunk cannot be unpacked ({error}).",
                COPY_AGAIN,
                key="frame",
                value=chunk.corner[0],
            ) from error

    def _read_chunk(
        self,
        layout: Chunked,
        chunk: Chunk,
        places: Places,
        out: Frames,
        origin: tuple[int, ...],
    ) -> None:
        """Read one chunk into every row that needs a part of it."""
        area = tuple(
            slice(first, first + step) for first, step in zip(origin, layout.shape[1:], strict=True)
        )
        if chunk.offset is not None and not layout.filters and layout.shape[1:] == out.shape[1:]:
            # Rows are stored as they are needed: read them without a buffer in between.
            for position, row in places:
                offset = chunk.offset + (position - chunk.corner[0]) * out[row].nbytes
                self._pread(out[row].reshape(-1).view(np.uint8).data, offset)
            return
        values = None if chunk.offset is None else self.unpacked(layout, chunk)
        for position, row in places:
            target = out[row][area]
            if values is None:
                target[:] = layout.fill
            else:
                inside = tuple(slice(size) for size in target.shape)
                target[:] = values[position - chunk.corner[0]][inside]

    def _read_by_h5py(self, places: Places, out: Frames) -> None:
        with opened(self.path) as file:
            images = file["images"]
            try:
                for position, row in places:
                    images.read_direct(out, np.s_[position], np.s_[row])
            except OSError as error:
                raise data_error(self.path, f"cannot read frame {position}: {error}.") from error


def _undo_filters(raw: memoryview | bytes, layout: Chunked, *, mask: int) -> NDArray[np.float32]:
    """Undo the filters in reverse order; a bit of `mask` marks a filter that was not applied."""
    for number, name in reversed(list(enumerate(layout.filters))):
        if mask >> number & 1:
            continue
        if name == "gzip":
            # With the final size known, zlib does not grow, and so copy, its buffer.
            raw = zlib.decompress(raw, bufsize=4 * prod(layout.shape))
        else:
            values = np.empty((prod(layout.shape), 4), np.uint8)
            for byte, plane in enumerate(np.frombuffer(raw, np.uint8).reshape(4, -1)):
                values[:, byte] = plane
            raw = values.data
    return np.frombuffer(raw, "<f4").reshape(layout.shape)


def opened(path: Path) -> Any:
    """Open a file with h5py; raise `DataError` where it is damaged."""
    library = hdf5()
    try:
        return library.File(path, "r")
    except OSError as error:
        text = str(error).lower()
        if "truncated" in text:
            key, why = "length", "is truncated: its end is missing"
        elif "signature" in text:
            key, why = "signature", "is no HDF5 file"
        else:
            key, why = None, f"cannot be opened ({error})"
        raise data_error(path, f"{why}.", "Copy or download it again.", key=key) from error


@contextmanager
def _intact(path: Path, part: str) -> Iterator[None]:
    """Turn the many errors that h5py raises for damage inside a file into `DataError`."""
    try:
        yield
    except (RuntimeError, OSError, KeyError, ValueError, TypeError) as error:
        raise data_error(path, f"its {part} is corrupt ({error}).", COPY_AGAIN, key=part) from error


def open_year(path: Path) -> Year:
    """Open a year's file; raise a DataError where its arrays do not have the schema."""
    with opened(path) as file, _intact(path, "table of contents"):
        problems = list(_schema_problems(file))
        if problems:
            message = "\n".join(f"{path}: {problem}" for problem in problems)
            raise DataError(message, key="schema", value=problems, path=path)
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
            dtype=images.dtype.name,
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
    """Return the frames' layout; None where only h5py can read it."""
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


def normalized_boxes(year: Year, boxes: Boxes) -> Iterator[Problem]:
    """Yield a problem where all boxes of a year lie between 0 and 1: fractions of the frame."""
    real = boxes[~_is_padding(boxes)][:, :4]
    with np.errstate(invalid="ignore"):
        inside = real.size and bool(((real >= 0) & (real <= 1)).all())
    if inside:
        yield Problem(
            year.path.name,
            -1,
            f"all {len(real)} boxes lie between 0 and 1: they are fractions of the frame, the "
            f"schema has pixels (multiply y by {year.height} and x by {year.width})",
        )


def box_problems(year: Year, boxes: Boxes) -> Iterator[Problem]:
    """Yield the boxes that the schema does not allow."""
    normalized = list(normalized_boxes(year, boxes))
    if normalized:  # every box would be reported for its fractions
        yield from normalized
        return
    south, west, north, east, kind = np.moveaxis(boxes, -1, 0)
    padding = _is_padding(boxes)
    after_padding = np.zeros_like(padding)
    after_padding[:, 1:] = np.logical_or.accumulate(padding, axis=1)[:, :-1]
    with np.errstate(invalid="ignore"):
        whole = (boxes == np.floor(boxes)).all(axis=-1)
        inside = (south >= 0) & (west >= 0) & (north <= year.height) & (east <= year.width)
        classed = (kind >= 0) & (kind < len(CLASSES))
        sized = (south < north) & (west < east)
    yield from _problems(year, boxes, whole, "is not of whole numbers")
    outside = f"lies outside the frame of {year.height}×{year.width}"
    yield from _problems(year, boxes, inside, outside)
    yield from _problems(year, boxes, sized, "is inverted or empty")
    yield from _problems(year, boxes, classed, f"has no class of 0 to {len(CLASSES) - 1}")
    yield from _problems(year, boxes, ~after_padding, "comes after a row of padding (−1)")


def unusable_boxes(year: Year, boxes: Boxes) -> Iterator[Problem]:
    """Yield the boxes that can't be trained on: normalized, no area, wholly outside, of no class.

    Other fractions, boxes that cross an edge and padding between boxes do no harm.
    """
    yield from normalized_boxes(year, boxes)
    south, west, north, east, kind = np.moveaxis(boxes, -1, 0)
    with np.errstate(invalid="ignore"):
        sized = (south < north) & (west < east) & np.isfinite(boxes).all(axis=-1)
        inside = (north > 0) & (east > 0) & (south < year.height) & (west < year.width)
        classed = np.isin(kind, np.arange(len(CLASSES)))
    yield from _problems(year, boxes, sized, "is inverted or empty")
    outside = f"lies wholly outside the frame of {year.height}×{year.width}"
    yield from _problems(year, boxes, inside | ~sized, outside)
    yield from _problems(year, boxes, classed, f"has no class of 0 to {len(CLASSES) - 1}")


def require_usable_boxes(folder: Path, boxes: Mapping[Year, Boxes]) -> None:
    """Raise `DataError` with the first boxes that can't be trained on."""
    problems = sorted(p for year, rows in boxes.items() for p in unusable_boxes(year, rows))
    if problems:
        examples = "\n  ".join(map(str, problems[:PROBLEMS_SHOWN]))
        more = len(problems) - PROBLEMS_SHOWN
        raise DataError(
            f"{folder}: boxes that can't be trained on:\n  {examples}\n"
            + (f"… and {more} more." if more > 0 else ""),
            key="boxes",
            value=problems,
            path=folder,
            remedy=f"Correct the files; `ai500 data check {folder}` lists all.",
        )


def _is_padding(boxes: Boxes) -> Flags:
    padding: Flags = (boxes == -1).all(axis=-1)
    return padding


def _problems(year: Year, boxes: Boxes, good: Flags, text: str) -> Iterator[Problem]:
    for frame, row in np.argwhere(~good & ~_is_padding(boxes)).tolist():
        values = ", ".join(f"{value:g}" for value in boxes[frame, row])
        yield Problem(year.path.name, frame, f"box {row} ({values}) {text}")
