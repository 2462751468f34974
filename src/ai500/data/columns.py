"""One .npy file of rows: mapped for training, read and written by calls that can report errors."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core import atomic
from ai500.data.store import Indices, data_error

HEADER_BYTES = 128
# A span of rows is read whole while it holds at most this many times the rows asked for.
SPARSE = 4


@dataclass(frozen=True)
class Column:
    """One .npy file of a split."""

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

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
        header = b"\x93NUMPY\x01\x00\x76\x00" + text.ljust(HEADER_BYTES - 11).encode() + b"\n"
        assert len(header) == HEADER_BYTES, f"shape {self.shape} has too many digits"
        return header

    def mapped(self) -> NDArray[Any]:
        """Map the file as a read-only array."""
        if 0 in self.shape:  # no file of zero bytes can be mapped
            return np.empty(self.shape, dtype=self.dtype)
        try:
            array = np.memmap(
                self.path, dtype=self.dtype, mode="r", offset=HEADER_BYTES, shape=self.shape
            )
        except (OSError, ValueError) as error:
            raise data_error(self.path, f"cannot read this file of the store: {error}.") from error
        return array.view(np.ndarray)

    def read(self, indices: Indices) -> NDArray[Any]:
        """Read rows in ascending order: in one sweep where they are dense, else one by one."""
        first, last = int(indices[0]), int(indices[-1]) + 1
        with self._opened() as file:
            if last - first <= SPARSE * indices.size:
                return self._read_span(file, first, last)[indices - first]
            rows = [self._read_span(file, row, row + 1) for row in indices.tolist()]
        return np.concatenate(rows)

    def read_spans(self, starts: Indices, ends: Indices) -> NDArray[Any]:
        """Read rows starts[i] … ends[i] − 1 for each i, concatenated; both are ascending."""
        first, last = int(starts[0]), int(ends[-1])
        spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
        with self._opened() as file:
            if last - first <= SPARSE * int((ends - starts).sum()):
                dense = self._read_span(file, first, last)
                return np.concatenate([dense[start - first : end - first] for start, end in spans])
            return np.concatenate([self._read_span(file, start, end) for start, end in spans])

    @contextmanager
    def _opened(self) -> Iterator[io.FileIO]:
        # Reads instead of mapping: with a map, a failing disk is a fatal signal, not an error.
        try:
            with self.path.open("rb", buffering=0) as file:
                yield file
        except OSError as error:
            raise data_error(self.path, f"cannot read this file: {error.strerror}.") from error

    def _read_span(self, file: io.FileIO, first: int, last: int) -> NDArray[Any]:
        rows = np.empty((last - first, *self.shape[1:]), dtype=self.dtype)
        rest = rows.reshape(-1).view(np.uint8).data
        file.seek(self.offset(first))
        while rest:
            read = file.readinto(rest)
            if not read:
                raise data_error(
                    self.path,
                    f"ends before row {last - 1}: the file was cut off.",
                    key="row",
                    value=last - 1,
                )
            rest = rest[read:]
        return rows

    def write(self, first: int, rows: NDArray[Any]) -> None:
        """Write rows at their place in the file and flush them to the disk."""
        data = np.ascontiguousarray(rows, dtype=self.dtype).reshape(-1).view(np.uint8).data
        offset = self.offset(first)
        # Not through a memory map: there, a full disk is a fatal signal, not an error.
        with atomic.explaining_write_errors(self.path):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                while data:
                    written = os.pwrite(descriptor, data, offset)
                    data, offset = data[written:], offset + written
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def finish(self) -> None:
        """Write the header, cut off what follows the last row, and flush to the disk."""
        with atomic.explaining_write_errors(self.path):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.pwrite(descriptor, self.header(), 0)
                if os.fstat(descriptor).st_size > self.file_bytes:
                    os.ftruncate(descriptor, self.file_bytes)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
