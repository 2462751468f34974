"""Parquet files as tables, by pyarrow.

Columns hold numbers, lists of numbers, or encoded images: binary, or Hugging Face's struct of
`bytes` and `path`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import EnvironmentLacksError
from ai500.data.readers.tables import ColumnType, Values
from ai500.data.store import data_error
from ai500.records.fields import ITEM_BYTES

# Each process holds a row group; files with larger ones are read in order, batch by batch.
MAX_GROUP_BYTES = 1 << 27


def pyarrow(module: str) -> ModuleType:
    """Import a module of pyarrow, or raise `EnvironmentLacksError`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise EnvironmentLacksError(
            "Parquet files need pyarrow, which is not installed here.",
            key="pyarrow",
            remedy="Install it: pip install 'ai500[parquet]'",
        ) from error


def _opened(path: Path) -> Any:
    library = pyarrow("pyarrow.parquet")
    try:
        return library.ParquetFile(path, memory_map=False)
    except FileNotFoundError:
        raise data_error(path, "no such Parquet file.") from None
    except (OSError, ValueError) as error:  # pyarrow's errors are subclasses
        raise data_error(
            path, f"not a readable Parquet file: {error}.", "Copy it again."
        ) from error


@dataclass(frozen=True)
class ParquetTable:
    """One Parquet file."""

    path: Path
    columns: Mapping[str, ColumnType]
    groups: tuple[int, ...]
    """Number of rows of each row group."""
    by_row: bool

    @property
    def files(self) -> Sequence[Path]:
        """The file."""
        return (self.path,)

    def rows(self, column: str) -> int:
        """Return the number of rows of the file."""
        return sum(self.groups)

    def read(self, column: str, first: int, last: int) -> Values:
        """Read rows first … last − 1: their row groups, of which the last ones are kept."""
        if not self.by_row:
            ((values,),) = [next(self.blocks([column], last))]
            return values[first:last]
        pieces: list[Any] = []
        start = 0
        for number, rows in enumerate(self.groups):
            low, high = max(first, start), min(last, start + rows)
            if low < high:
                group = _group(self.path, number, self.path.stat().st_mtime_ns)
                pieces.append(group.column(column).slice(low - start, high - low))
            start += rows
        library = pyarrow("pyarrow")
        chunks = [chunk for piece in pieces for chunk in piece.chunks]
        return self._values(column, library.chunked_array(chunks), first)

    def blocks(self, columns: Sequence[str], rows: int) -> Iterator[list[Values]]:
        """Yield so many rows of some columns at a time."""
        done = 0
        with _opened(self.path) as file:
            try:
                for batch in file.iter_batches(batch_size=rows, columns=list(columns)):
                    yield [self._values(name, batch.column(name), done) for name in columns]
                    done += batch.num_rows
            except OSError as error:
                raise data_error(
                    self.path,
                    f"cannot be read after row {done}: {error}.",
                    "Copy it again.",
                ) from error

    def _values(self, column: str, values: Any, first: int) -> Values:
        """Return the rows of a column as an array, or as a list of arrays or bytes."""
        if values.null_count:
            row = first + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise data_error(
                self.path,
                f"{column} has no value in row {row} ({values.null_count} such rows in a block).",
                "Fill or drop rows without a value first.",
                value=row,
            )
        kind = self.columns[column]
        if kind.dtype == "image":
            rows = values.to_pylist()
            return [row["bytes"] if isinstance(row, dict) else row for row in rows]
        if kind.shape == ():
            return np.asarray(values.to_numpy(zero_copy_only=False))
        if kind.shape is not None:
            flat = values.combine_chunks() if hasattr(values, "combine_chunks") else values
            storage = getattr(flat, "storage", flat)
            return np.asarray(storage.flatten()).reshape(len(values), *kind.shape)
        arrays: list[NDArray[Any]] = []
        for row, value in enumerate(values, first):
            try:
                arrays.append(_array(value.values))
            except ValueError as error:
                raise data_error(
                    self.path,
                    f"{column} in row {row}: {error}.",
                    "Only the first size may differ between samples: pad the others.",
                    value=row,
                ) from error
        return arrays


def _array(values: Any) -> NDArray[Any]:
    """Return a list, or nested lists whose inner ones are equally long, as an array."""
    types, shape = pyarrow("pyarrow.types"), [len(values)]
    while types.is_list(values.type) or types.is_large_list(values.type):
        lengths = np.diff(values.offsets.to_numpy())
        if len(set(lengths.tolist())) > 1:
            raise ValueError(f"inner lists are {lengths.min()} to {lengths.max()} long")
        shape.append(int(lengths[0]) if lengths.size else 0)
        values = values.flatten()
    while types.is_fixed_size_list(values.type):
        shape.append(values.type.list_size)
        values = values.flatten()
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)


class _Group:
    """The columns of a row group that have been read."""

    def __init__(self, path: Path, number: int) -> None:
        self._path, self._number = path, number
        self._columns: dict[str, Any] = {}

    def column(self, name: str) -> Any:
        if name not in self._columns:
            with _opened(self._path) as file:
                try:
                    group = file.read_row_group(self._number, columns=[name])
                except OSError as error:
                    raise data_error(
                        self._path,
                        f"row group {self._number} cannot be read: {error}.",
                        "Copy it again.",
                    ) from error
            self._columns[name] = group.column(name)
        return self._columns[name]


@lru_cache(maxsize=2)  # rows that are read together may lie in two
def _group(path: Path, number: int, modified_ns: int) -> _Group:
    return _Group(path, number)


def parquet_table(path: Path) -> ParquetTable:
    """Open a Parquet file without reading rows."""
    with _opened(path) as file:
        columns = {field.name: _type(field.type) for field in file.schema_arrow}
        metadata = file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        largest = max((group.total_byte_size for group in groups), default=0)
        rows = tuple(group.num_rows for group in groups)
    return ParquetTable(path, columns, rows, by_row=largest <= MAX_GROUP_BYTES)


def _type(kind: Any) -> ColumnType:
    types = pyarrow("pyarrow.types")
    image = types.is_struct(kind) and "bytes" in {member.name for member in kind}
    if image or types.is_binary(kind) or types.is_large_binary(kind):
        return ColumnType("image")
    if getattr(kind, "extension_name", "") == "arrow.fixed_shape_tensor":
        return ColumnType(_number(kind.value_type), tuple(kind.shape))
    if types.is_fixed_size_list(kind) and _number(kind.value_type) in ITEM_BYTES:
        return ColumnType(_number(kind.value_type), (kind.list_size,))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = kind
        while hasattr(inner, "value_type"):
            inner = inner.value_type
        return ColumnType(_number(inner), None)
    return ColumnType(_number(kind))


def _number(kind: Any) -> str:
    """Return NumPy's name of a number's type; otherwise the type's own."""
    names = {"float": "float32", "double": "float64", "halffloat": "float16"}
    text = str(kind)
    return names.get(text, text)


def class_names(path: Path) -> tuple[str, ...]:
    """Return the names of classes that Hugging Face's data sets note for the column `label`."""
    with _opened(path) as file:
        noted = (file.schema_arrow.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(noted)["info"]["features"] if noted else {}
        names = next(features[name]["names"] for name in ("label", "labels") if name in features)
        return tuple(str(name) for name in names)
    except (ValueError, KeyError, TypeError, StopIteration):
        return ()
