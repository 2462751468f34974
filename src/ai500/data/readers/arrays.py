"""NumPy's and HDF5's arrays as tables: the first axis counts the samples.

An array with a companion `NAME.offsets` (or `NAME_offsets`: N + 1 whole numbers) is ragged: sample
i is the slice from offset i to offset i + 1.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.climate.years import opened
from ai500.data.readers.tables import ColumnType, Values
from ai500.data.store import data_error
from ai500.records.fields import ITEM_BYTES, RAGGED

OFFSET_SUFFIXES = (".offsets", "_offsets")


@dataclass(frozen=True)
class ArrayPlace:
    """Location and type of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    file: Path
    offset: int = 0
    """First byte of the values in the file."""
    order: str = "C"
    member: str = ""
    """Name in the archive; empty: a file of its own, or values that are stored as they are."""


def type_name(dtype: np.dtype[Any]) -> str:
    """Return NumPy's name of a type, without its byte order."""
    return dtype.name if dtype.name in ITEM_BYTES else str(dtype)


def offsets_of(column: str, arrays: Mapping[str, object]) -> str | None:
    """Return the array with the bounds of a ragged array's samples; None: it is not ragged."""
    names = (column + suffix for suffix in OFFSET_SUFFIXES)
    return next((name for name in names if name in arrays), None)


def array_columns(
    arrays: Mapping[str, tuple[str, tuple[int, ...]]],
) -> dict[str, ColumnType]:
    """Return the columns of arrays, given their types and shapes."""
    bounds = {offsets_of(name, arrays) for name in arrays}
    columns: dict[str, ColumnType] = {}
    for name, (dtype, shape) in arrays.items():
        if name in bounds or not shape:
            continue
        first = (RAGGED,) if offsets_of(name, arrays) else ()
        columns[name] = ColumnType(dtype, (*first, *shape[1:]))
    return columns


def split_rows(values: NDArray[Any], offsets: NDArray[Any]) -> list[NDArray[Any]]:
    """Cut the values of ragged samples apart."""
    return [values[first:last] for first, last in pairwise(offsets)]


def require_offsets(path: Path, name: str, offsets: NDArray[Any], length: int) -> None:
    """Raise `DataError` unless offsets are whole numbers that ascend from 0 to the length."""
    kind_fits = offsets.dtype.kind in "iu" and offsets.ndim == 1 and offsets.size > 1
    if not kind_fits or offsets[0] != 0 or offsets[-1] != length or (np.diff(offsets) < 0).any():
        raise data_error(
            path,
            f"{name} does not cut an array of {length} rows.",
            f"Offsets are N + 1 whole numbers, ascending from 0 to {length}.",
            value=name,
        )


@dataclass(frozen=True)
class NumpyTable:
    """Arrays of .npy files, or of a .npz."""

    path: Path
    places: Mapping[str, ArrayPlace]

    @property
    def files(self) -> Sequence[Path]:
        """The archive, or the files of the arrays."""
        return sorted({place.file for place in self.places.values()})

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        return array_columns(
            {name: (type_name(place.dtype), place.shape) for name, place in self.places.items()}
        )

    @property
    def by_row(self) -> bool:
        """True where samples can be read one by one: no array is compressed."""
        return not any(place.member for place in self.places.values())

    def rows(self, column: str) -> int:
        """Return the number of samples of an array."""
        bounds = offsets_of(column, self.places)
        return self.places[bounds].shape[0] - 1 if bounds else self.places[column].shape[0]

    def read(self, column: str, first: int, last: int) -> Values:
        """Read samples first … last − 1; of a compressed array everything before them, too."""
        if not self.by_row:
            ((values,),) = _take(self.blocks([column], last), 1)
            return values[first:last]
        bounds = offsets_of(column, self.places)
        values = self._mapped(column)
        if bounds is None:
            return np.array(values[first:last])
        offsets = np.asarray(self._mapped(bounds)[first : last + 1], np.int64)
        return split_rows(np.array(values[offsets[0] : offsets[-1]]), offsets - offsets[0])

    def _mapped(self, column: str) -> NDArray[Any]:
        place = self.places[column]
        if 0 in place.shape:
            return np.empty(place.shape, place.dtype)
        try:
            order: Any = place.order
            array = np.memmap(
                place.file,
                place.dtype,
                "r",
                offset=place.offset,
                shape=place.shape,
                order=order,
            )
        except (OSError, ValueError) as error:
            raise data_error(
                place.file,
                f"{column} cannot be read ({error}).",
                "Copy the file again.",
            ) from error
        return array.view(np.ndarray)

    def blocks(self, columns: Sequence[str], rows: int) -> Iterator[list[Values]]:
        """Yield so many samples of each column at a time, inflating as they are read."""
        count = self.rows(columns[0])
        if self.by_row:
            for first in range(0, count, rows):
                last = min(count, first + rows)
                yield [self.read(column, first, last) for column in columns]
            return
        with ExitStack() as stack, _explained(self.path):
            streams = [_Member(stack, self.places[column]) for column in columns]
            bounds = [self._all_offsets(column) for column in columns]
            for first in range(0, count, rows):
                last = min(count, first + rows)
                yield [
                    stream.take(last - first)
                    if offsets is None
                    else split_rows(
                        stream.take(int(offsets[last] - offsets[first])),
                        offsets[first : last + 1] - offsets[first],
                    )
                    for stream, offsets in zip(streams, bounds, strict=True)
                ]

    def _all_offsets(self, column: str) -> NDArray[Any] | None:
        bounds = offsets_of(column, self.places)
        if bounds is None:
            return None
        place = self.places[bounds]
        with ExitStack() as stack, _explained(self.path):
            return _Member(stack, place).take(place.shape[0])

    def checked(self) -> NumpyTable:
        """Return the table; raise `DataError` where an array's offsets do not cut it."""
        for column, place in self.places.items():
            bounds = offsets_of(column, self.places)
            if bounds is not None:
                offsets = self._all_offsets(column)
                require_offsets(self.path, bounds, np.asarray(offsets), place.shape[0])
        return self


def _take(blocks: Iterator[list[Values]], number: int) -> list[list[Values]]:
    return [next(blocks) for _ in range(number)]


class _Member:
    """A stream of an array's values: of a member of a .npz, compressed or not."""

    def __init__(self, stack: ExitStack, place: ArrayPlace) -> None:
        self._place = place
        if place.order != "C" and len(place.shape) > 1:
            raise data_error(
                place.file,
                f"{place.member or 'an array'} is compressed and in Fortran order.",
                "Save it with numpy.savez, or numpy.ascontiguousarray first.",
            )
        if place.member:
            archive = stack.enter_context(zipfile.ZipFile(place.file))
            self._file: IO[bytes] = stack.enter_context(archive.open(place.member))
            _read_header(self._file)
        else:
            self._file = stack.enter_context(place.file.open("rb"))
            self._file.seek(place.offset)

    def take(self, rows: int) -> NDArray[Any]:
        """Read the next rows."""
        place = self._place
        size = rows * prod(place.shape[1:]) * place.dtype.itemsize
        data = bytearray()
        while len(data) < size:
            block = self._file.read(size - len(data))
            if not block:
                raise EOFError("it ends too early")
            data += block
        return np.frombuffer(data, place.dtype).reshape(rows, *place.shape[1:])


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, Fortran order and type of an array in .npy format."""
    version = npy_format.read_magic(file)
    read = (
        npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    )
    shape, fortran, dtype = read(file)
    return shape, fortran, dtype


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise data_error(path, "no such file of arrays.") from None
    except DataError:
        raise
    except (
        OSError,
        ValueError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
    ) as error:
        raise data_error(
            path,
            f"not a readable .npy or .npz of numbers: {error}.",
            "Save it again with numpy.save or numpy.savez; if it was cut off, copy it again.",
        ) from error


def npy_table(files: Mapping[str, Path], *, path: Path) -> NumpyTable:
    """Open .npy files, each of which is a column."""
    places: dict[str, ArrayPlace] = {}
    for name, file in files.items():
        with _explained(file), file.open("rb") as opened_file:
            shape, fortran, dtype = _read_header(opened_file)
            offset = opened_file.tell()
        if dtype.kind == "O":
            dtype = np.dtype("O")
        places[name] = ArrayPlace(dtype, shape, file, offset, "F" if fortran else "C")
    return NumpyTable(path, places).checked()


def npz_table(path: Path) -> NumpyTable:
    """Open a .npz: its arrays are read in place where they are not compressed."""
    places: dict[str, ArrayPlace] = {}
    with _explained(path), zipfile.ZipFile(path) as archive, path.open("rb") as raw:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as stream:
                shape, fortran, dtype = _read_header(stream)
            stored = member.compress_type == zipfile.ZIP_STORED
            offset = 0
            if stored:
                raw.seek(member.header_offset + 26)
                lengths = np.frombuffer(raw.read(4), "<u2")
                raw.seek(member.header_offset + 30 + int(lengths.sum()))
                _read_header(raw)
                offset = raw.tell()
            places[member.filename.removesuffix(".npy")] = ArrayPlace(
                dtype,
                shape,
                path,
                offset,
                "F" if fortran else "C",
                "" if stored else member.filename,
            )
    return NumpyTable(path, places).checked()


@dataclass(frozen=True)
class Hdf5Table:
    """Data sets of an HDF5 file, at its top or in groups such as `train`."""

    path: Path
    sets: Mapping[str, tuple[str, tuple[int, ...], bool]]
    """Type, shape, and whether rows have a variable length, by name."""

    by_row = True

    @property
    def files(self) -> Sequence[Path]:
        """The file."""
        return (self.path,)

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        columns = array_columns(
            {name: (dtype, shape) for name, (dtype, shape, _) in self.sets.items()}
        )
        return {
            name: ColumnType(column.dtype, (RAGGED,)) if self.sets[name][2] else column
            for name, column in columns.items()
        }

    def rows(self, column: str) -> int:
        """Return the number of samples of a data set."""
        bounds = offsets_of(column, self.sets)
        return self.sets[bounds][1][0] - 1 if bounds else self.sets[column][1][0]

    def read(self, column: str, first: int, last: int) -> Values:
        """Read samples first … last − 1."""
        bounds = offsets_of(column, self.sets)
        with opened(self.path) as file:
            try:
                if bounds is not None:
                    offsets = np.asarray(file[bounds][first : last + 1], np.int64)
                    values = file[column][offsets[0] : offsets[-1]]
                    return split_rows(values, offsets - offsets[0])
                rows = file[column][first:last]
            except OSError as error:
                raise data_error(
                    self.path,
                    f"{column} cannot be read ({error}).",
                    "Copy the file again.",
                ) from error
        return list(rows) if self.sets[column][2] else np.asarray(rows)

    def blocks(self, columns: Sequence[str], rows: int) -> Iterator[list[Values]]:
        """Yield so many samples of each column at a time."""
        count = self.rows(columns[0])
        for first in range(0, count, rows):
            last = min(count, first + rows)
            yield [self.read(column, first, last) for column in columns]


def hdf5_table(path: Path) -> Hdf5Table:
    """Open an HDF5 file; names of data sets in groups have a slash."""
    if not path.is_file():
        raise data_error(path, "no such file of arrays.")
    sets: dict[str, tuple[str, tuple[int, ...], bool]] = {}

    def visit(name: str, item: Any) -> None:
        if not hasattr(item, "shape") or not item.shape:
            return
        inner = item.dtype.metadata.get("vlen") if item.dtype.metadata else None
        if isinstance(inner, np.dtype):
            sets[name] = type_name(inner), tuple(item.shape), True
        else:
            dtype = "string" if inner is not None else type_name(item.dtype)
            sets[name] = dtype, tuple(item.shape), False

    with opened(path) as file:
        file.visititems(visit)
        for name, (_, shape, _) in sets.items():
            bounds = offsets_of(name, sets)
            if bounds is not None:
                require_offsets(path, bounds, np.asarray(file[bounds][:]), shape[0])
    return Hdf5Table(path, sets)
