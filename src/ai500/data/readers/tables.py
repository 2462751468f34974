"""Sources with named columns (NumPy, HDF5, Parquet): their rows as samples with fields."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.readers.naming import (
    EXPECTED_NAMES,
    Choice,
    NamedColumn,
    by_choice,
    by_convention,
    listed,
)
from ai500.data.readers.pixels import decode, image_field, read_dtype
from ai500.data.readers.protocol import (
    TRAIN,
    VALIDATION,
    Ignored,
    Part,
    Sample,
    Unreadable,
    joined,
)
from ai500.data.readers.split import Rows, held_out
from ai500.data.resumable_work import Holes
from ai500.data.store import Arrays, data_error
from ai500.records.fields import ITEM_BYTES, RAGGED, Field

PEEKED_ROWS = 64
"""First rows that decide whether a column of lists is ragged."""
# Rows of a split may be far apart: so many bytes are read at once, and the rows sources from them.
BLOCK_BYTES = 1 << 24

Values = NDArray[Any] | list[Any]
"""Rows of a column: one array, or a list of arrays or of encoded images."""


@dataclass(frozen=True)
class ColumnType:
    """Type of a column's rows."""

    dtype: str
    """NumPy's name; `image`: encoded images; otherwise what the file calls it."""
    shape: tuple[int, ...] | None = ()
    """Shape of a row; None: lists, whose lengths the rows show."""


class Table(Protocol):
    """A file, or a folder of files, with columns of equal length."""

    @property
    def path(self) -> Path:
        """The file or folder."""

    @property
    def files(self) -> Sequence[Path]:
        """The file, or those of the folder."""

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Columns by name."""

    def rows(self, column: str) -> int:
        """Return the number of rows of a column."""

    @property
    def by_row(self) -> bool:
        """True where any rows can be read; otherwise all are read in order."""

    def read(self, column: str, first: int, last: int) -> Values:
        """Read rows first … last − 1 of a column."""

    def blocks(self, columns: Sequence[str], rows: int) -> Iterator[list[Values]]:
        """Yield so many rows of some columns at a time, in order, from the first to the last."""


@dataclass(frozen=True)
class FieldSource:
    """A field and the column that it is read from."""

    field: Field
    column: str
    encoded: bool = False


@dataclass(frozen=True)
class Section:
    """Rows of one table in a split."""

    table: Table
    sources: tuple[FieldSource, ...]
    rows: int


def _sections(
    table: Table, choice: Choice, ignored: Ignored, *, split: str | None
) -> dict[str | None, Section]:
    """Return the columns of a table by split; None: the table says no split."""
    columns = table.columns
    chosen = choice.inputs or choice.targets
    named = by_choice(columns, choice, path=table.path) if chosen else by_convention(list(columns))
    for column in columns:
        if all(entry.column != column for entry in named):
            ignored.add(f"{table.path.name}: {column}")
    roles = {entry.role for entry in named}
    if roles != {"input", "target"}:
        missing = "input" if "input" not in roles else "target"
        raise data_error(
            table.path,
            f"no array is called {missing}s…; there are {listed(list(columns))}.",
            EXPECTED_NAMES,
            value=missing,
        )
    splits: dict[str | None, list[NamedColumn]] = {}
    for entry in named:
        splits.setdefault(entry.split or split, []).append(entry)
    return {name: _section(table, entries, choice) for name, entries in splits.items()}


def _section(table: Table, named: Sequence[NamedColumn], choice: Choice) -> Section:
    sources = [
        _field_source(table, entry, choice)
        for entry in sorted(named, key=lambda entry: (entry.role, entry.name))
    ]
    names = [source.field.name for source in sources]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise data_error(
            table.path,
            f"two arrays become the field {double!r}.",
            "Choose: --input FIELD=NAME --target FIELD=NAME.",
            value=double,
        )
    rows = {source.column: table.rows(source.column) for source in sources}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{column} {count}" for column, count in rows.items())
        raise data_error(
            table.path,
            f"its arrays have different numbers of samples: {counts}.",
            "The first axis counts the samples of every array.",
            value=rows,
        )
    return Section(table, tuple(sources), next(iter(rows.values())))


def _field_source(table: Table, named: NamedColumn, choice: Choice) -> FieldSource:
    column = table.columns[named.column]
    where = f"{table.path}: {named.column}"
    if column.dtype == "image":
        first = _first_image(table, named.column)
        return FieldSource(
            replace(image_field(named.name, first, choice.size), role=named.role),
            named.column,
            encoded=True,
        )
    dtype, shape = column.dtype, column.shape
    if dtype not in ITEM_BYTES:
        raise DataError(
            f"{where} holds {dtype}; a field holds numbers of a fixed size.",
            path=table.path,
            key=named.column,
            value=dtype,
            remedy=_remedy_for(dtype),
        )
    if shape is None or (named.name in choice.ragged and shape[:1] != (RAGGED,)):
        shape = _peeked(table, named.column, ragged=named.name in choice.ragged)
    if shape == (1,) and named.name == "labels":
        shape = ()
    if named.name == "images" and dtype == "uint8":
        shape = _image_shape(shape, where=where)
    if named.name == "labels" and shape == () and np.dtype(dtype).kind in "iub":
        dtype = "int64"  # the type of the workloads' labels
    if 0 in shape:
        raise DataError(
            f"{where} has rows of shape {shape}: there is nothing in them.",
            path=table.path, key=named.column, value=shape,
        )  # fmt: skip
    return FieldSource(Field(named.name, named.role, dtype, shape), named.column)


def _image_shape(shape: tuple[int, ...], *, where: str) -> tuple[int, ...]:
    """Return height, width and channels of pictures, which may come without the last."""
    if len(shape) == 2 and RAGGED not in shape:
        return (*shape, 1)
    if len(shape) == 3 and shape[0] in (1, 3) and shape[2] > 4:
        raise DataError(
            f"{where}: images have shape {shape}, which looks like channels first; needed is "
            "[N, H, W, C].",
            key="images",
            value=shape,
            remedy="Transpose: images.transpose(0, 2, 3, 1).",
        )
    return shape


def _remedy_for(dtype: str) -> str:
    if dtype.startswith(("string", "large_string", "str", "<U", "|S", "object")):
        return "Turn texts into tokens or numbers first; ragged ones need an array of offsets."
    return "Convert it to numbers first."


def _first_image(table: Table, column: str) -> str:
    for first in range(0, table.rows(column), PEEKED_ROWS):
        for number, encoded in enumerate(table.read(column, first, first + PEEKED_ROWS), first):
            try:
                return read_dtype(encoded, f"{table.path.name}: {column} {number}")
            except DataError:
                raise
            except Exception:  # a broken image may raise anything in a decoder
                continue
    return "uint8"


def _peeked(table: Table, column: str, *, ragged: bool) -> tuple[int, ...]:
    """Return the shape of a column of lists by its first rows."""
    rows = table.read(column, 0, min(PEEKED_ROWS, table.rows(column)))
    arrays = [np.asarray(row) for row in rows]
    shapes = {array.shape for array in arrays}
    first = arrays[0].shape
    if len(shapes) == 1 and not ragged:
        return first
    inner = {shape[1:] for shape in shapes}
    if len(inner) > 1 or not first:
        raise data_error(
            table.path,
            f"{column} has rows of shapes {listed([str(shape) for shape in sorted(shapes)])}.",
            "Only the first size may differ between samples: pad the others.",
            value=column,
        )
    return RAGGED, *inner.pop()


@dataclass(frozen=True)
class TableSource:
    """Columns of one or several files as fields, in splits."""

    name: str
    parts: Mapping[str, tuple[Section, ...]]
    """Sections of each split, one after the other."""
    chosen: Mapping[str, Rows]
    """Rows of each split; a split without an entry has all rows of its sections."""
    classes: tuple[str, ...]
    fields: tuple[Field, ...]
    ignored: Ignored = dataclasses.field(default_factory=Ignored)

    @property
    def counts(self) -> dict[str, int]:
        return {
            split: len(self.chosen[split])
            if split in self.chosen
            else sum(section.rows for section in sections)
            for split, sections in self.parts.items()
        }

    @property
    def total(self) -> int | None:
        """Number of samples of all splits."""
        return sum(self.counts.values())

    @property
    def origin(self) -> str:
        digest = hashlib.sha256()
        for split, sections in self.parts.items():
            for section in sections:
                columns = [source.column for source in section.sources]
                state = _state(section.table)
                digest.update(f"{split} {state} {section.rows} {columns}".encode())
        for split, rows in self.chosen.items():
            digest.update(split.encode() + rows.tobytes())
        return f"arrays of {self.name}, rows {digest.hexdigest()}"

    def sample_name(self, split: str, number: int) -> str:
        """Return the file and the row of a sample."""
        row = int(self.chosen[split][number]) if split in self.chosen else number
        for section in self.parts[split]:
            if row < section.rows:
                return f"{section.table.path.name}: row {row}"
            row -= section.rows
        raise IndexError(number)


def _state(table: Table) -> list[tuple[str, int, int]]:
    """Return name, size and time of a table's files: rows of changed files are never mixed."""
    stats = [(file.name, file.stat()) for file in table.files]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


class TableReader(TableSource):
    """Reads rows of tables by number."""

    def part(self, split: str, first: int, last: int) -> Part:
        """Return the call that reads samples first … last − 1 of a split."""
        everything = np.arange(first, last, dtype=np.int64)
        rows = self.chosen[split][first:last] if split in self.chosen else everything
        pieces: list[tuple[Section, Rows]] = []
        start = 0
        for section in self.parts[split]:
            inside = rows[(rows >= start) & (rows < start + section.rows)] - start
            if inside.size:
                pieces.append((section, inside))
            start += section.rows
        return partial(_read_pieces, self.fields, pieces)


class TableStream(TableSource):
    """Reads tables from the first row to the last: those that can only be read in order."""

    def samples(self) -> Iterator[tuple[str, Sample | Unreadable]]:
        """Yield each row as a sample; of rows that are divided, in the order of the file."""
        if self.chosen:
            held = set(self.chosen[VALIDATION].tolist())
            for number, sample in enumerate(self._rows(TRAIN)):
                yield (VALIDATION if number in held else TRAIN), sample
            return
        for split in self.parts:
            for sample in self._rows(split):
                yield split, sample

    def _rows(self, split: str) -> Iterator[Sample | Unreadable]:
        for section in self.parts[split]:
            columns = [source.column for source in section.sources]
            step = max(1, min(1024, BLOCK_BYTES // _row_bytes(section.sources)))
            first = 0
            for block in section.table.blocks(columns, step):
                rows = np.arange(first, first + len(block[0]), dtype=np.int64)
                first += len(rows)
                broken: dict[int, str] = {}
                arrays: dict[str, Values] = {}
                for source, values in zip(section.sources, block, strict=True):
                    if source.encoded:
                        values = _decoded(source, values, rows, section, broken)
                    arrays[source.field.name] = _converted(source, values)
                for place, row in enumerate(rows.tolist()):
                    if place in broken:
                        yield Unreadable(f"{section.table.path.name}: row {row}", broken[place])
                    else:
                        # A copy: a view would keep its whole block in memory.
                        yield {name: np.array(values[place]) for name, values in arrays.items()}


def _row_bytes(sources: Sequence[FieldSource]) -> int:
    # A ragged or encoded row is sources for 64 KiB.
    return sum(
        1 << 16 if source.encoded or source.field.ragged else max(1, source.field.row_bytes)
        for source in sources
    )


def _converted(source: FieldSource, rows: Values) -> Values:
    """Bring rows to the shape of their field; raise `DataError` where one does not fit."""
    shape = source.field.shape
    if isinstance(rows, np.ndarray):
        return rows.reshape(len(rows), *shape) if not source.field.ragged else rows
    arrays = [np.asarray(row, dtype=source.field.dtype) for row in rows]
    for number, array in enumerate(arrays):
        actual = array.shape[1:] if source.field.ragged else array.shape
        if actual != source.field.row_shape:
            raise DataError(
                f"{source.column}: a row has shape {array.shape} (number {number} of its block); "
                f"the first rows have {shape}.",
                key=source.column,
                value=array.shape,
                remedy=f"If samples differ in length: --ragged {source.field.name}.",
            )
    return arrays


def _read_pieces(
    fields: tuple[Field, ...], pieces: Sequence[tuple[Section, Rows]]
) -> tuple[Arrays, Holes]:
    """Read rows of tables as arrays of fields."""
    columns: dict[str, list[Values]] = {field.name: [] for field in fields}
    holes: Holes = []
    done = 0
    for section, rows in pieces:
        blocks: dict[str, Values] = {}
        broken: dict[int, str] = {}
        for source in section.sources:
            values = _rows_of(section.table, source, rows)
            if source.encoded:
                values = _decoded(source, values, rows, section, broken)
            blocks[source.field.name] = values
        for source in section.sources:
            # A row whose image is damaged is left out of every column.
            kept = _without(blocks[source.field.name], broken)
            columns[source.field.name].append(_converted(source, kept))
        holes += [(done + place, why) for place, why in broken.items()]
        done += len(rows)
    arrays: Arrays = {}
    for field in fields:
        parts = columns[field.name]
        if not field.ragged and all(isinstance(part, np.ndarray) for part in parts):
            arrays |= joined(field, np.concatenate(parts))
        else:
            arrays |= joined(field, list(chain.from_iterable(parts)))
    return arrays, sorted(holes)


def _without(values: Values, places: Mapping[int, str]) -> Values:
    if not places:
        return values
    if isinstance(values, np.ndarray):
        return np.delete(values, list(places), axis=0)
    return [value for place, value in enumerate(values) if place not in places]


def _decoded(
    source: FieldSource,
    values: Values,
    rows: Rows,
    section: Section,
    broken: dict[int, str],
) -> list[NDArray[Any]]:
    """Decode images; `broken` gets the places of damaged ones, which stay in the list as zeros."""
    size, dtype = source.field.shape[0], source.field.dtype
    images: list[NDArray[Any]] = []
    for place, (encoded, row) in enumerate(zip(values, rows.tolist(), strict=True)):
        name = f"{section.table.path.name}: {source.column} {row}"
        try:
            images.append(decode(encoded, size=size, dtype=dtype, name=name))
        except (MemoryError, DataError):
            raise
        except Exception as error:  # a broken image may raise anything in a decoder
            broken[place] = f"{type(error).__name__}: {error}"
            images.append(np.zeros(source.field.shape, dtype))
    return images


def _rows_of(table: Table, source: FieldSource, rows: Rows) -> Values:
    """Read rows of a column in ascending order, a bounded span at a time."""
    step = max(1, BLOCK_BYTES // _row_bytes([source]))
    blocks: list[Values] = []
    for _, group in groupby(rows.tolist(), key=lambda row: row // step):
        numbers = np.fromiter(group, np.int64)
        first, last = int(numbers[0]), int(numbers[-1]) + 1
        span = table.read(source.column, first, last)
        places = numbers - first
        if isinstance(span, np.ndarray):
            blocks.append(span if len(places) == len(span) else span[places])
        else:
            blocks.append([span[place] for place in places.tolist()])
    if all(isinstance(block, np.ndarray) for block in blocks):
        return np.concatenate(blocks) if len(blocks) != 1 else blocks[0]
    return list(chain.from_iterable(blocks))


def table_source(
    name: str,
    tables: Sequence[tuple[str | None, Table]],
    *,
    choice: Choice,
    fraction: float,
    seed: int = 0,
    class_names: tuple[str, ...] = (),
) -> TableReader | TableStream:
    """Return the source of tables, each with the split that its file's name says."""
    ignored = Ignored()
    parts: dict[str | None, list[Section]] = {}
    for split, table in tables:
        for name_of_split, section in _sections(table, choice, ignored, split=split).items():
            parts.setdefault(name_of_split, []).append(section)
    _use_test(parts, ignored)
    if None in parts and len(parts) > 1:
        parts[TRAIN] = parts.pop(None) + parts.get(TRAIN, [])
    if VALIDATION not in parts and TRAIN in parts:
        parts[None] = parts.pop(TRAIN)
    if not parts.get(None) and not parts.get(TRAIN):
        raise data_error(tables[0][1].path, "has no training samples.", EXPECTED_NAMES)
    sections = [section for group in parts.values() for section in group]
    fields = _common_fields(sections)
    labels = {split: _labels(group, fields) for split, group in parts.items()}
    chosen: dict[str, Rows] = {}
    splits: dict[str, tuple[Section, ...]]
    if None in parts:
        whole = tuple(parts[None])
        rows = sum(section.rows for section in whole)
        numbers = labels[None]
        kinds = np.zeros(rows, np.int64) if numbers is None else numbers
        train, held = held_out(map(str, range(rows)), labels=kinds, fraction=fraction, seed=seed)
        chosen, splits = (
            {TRAIN: train, VALIDATION: held},
            {TRAIN: whole, VALIDATION: whole},
        )
    else:
        splits = {split: tuple(parts[split]) for split in (TRAIN, VALIDATION)}
    known = [values for values in labels.values() if values is not None]
    classes = _class_names(known, class_names, path=tables[0][1].path)
    fields = tuple(
        replace(field, limits=(0, len(classes) - 1))
        if field.name == "labels" and classes
        else field
        for field in fields
    )
    kind = TableReader if all(section.table.by_row for section in sections) else TableStream
    return kind(name, splits, chosen, classes, fields, ignored)


def _use_test(parts: dict[str | None, list[Section]], ignored: Ignored) -> None:
    """Validate with a test split where there is no validation split; otherwise leave it out."""
    if "test" not in parts:
        return
    test = parts.pop("test")
    if parts and VALIDATION not in parts:
        parts[VALIDATION] = test
        return
    for section in test:
        for source in section.sources:
            ignored.add(f"{section.table.path.name}: {source.column}")


def _common_fields(sections: Sequence[Section]) -> tuple[Field, ...]:
    """Return the fields of all sections; raise `DataError` where they differ."""
    first = sections[0]
    fields = tuple(source.field for source in first.sources)
    for section in sections[1:]:
        other = tuple(source.field for source in section.sources)
        if other != fields:
            names = "; ".join(", ".join(map(str, group)) for group in (fields, other))
            raise data_error(
                section.table.path,
                f"its fields differ from those of {first.table.path.name}: {names}.",
                "All files and splits need the same arrays, types and shapes.",
                value=[field.name for field in other],
            )
    return fields


def _labels(sections: Sequence[Section], fields: Sequence[Field]) -> NDArray[np.int64] | None:
    """Read the classes of all samples; None: no field has classes."""
    if not any(
        field.name == "labels" and not field.shape and field.dtype == "int64" for field in fields
    ):
        return None
    blocks: list[NDArray[np.int64]] = []
    for section in sections:
        (label_source,) = (source for source in section.sources if source.field.name == "labels")
        if section.table.by_row:
            values = section.table.read(label_source.column, 0, section.rows)
            blocks.append(np.asarray(values, np.int64).reshape(section.rows))
        else:
            read = section.table.blocks([label_source.column], 1 << 16)
            blocks += [np.asarray(values, np.int64).reshape(len(values)) for (values,) in read]
    return np.concatenate(blocks)


def _class_names(
    labels: Sequence[NDArray[np.int64]], declared: tuple[str, ...], *, path: Path
) -> tuple[str, ...]:
    if not labels:
        return ()
    values = np.unique(np.concatenate(labels))
    number = len(declared) or len(values)
    if int(values[0]) < 0 or int(values[-1]) >= number:
        raise data_error(
            path,
            f"labels run from {values[0]} to {values[-1]}; {number} classes have labels 0 to "
            f"{number - 1}, without gaps.",
            "Renumber them: numpy.unique(labels, return_inverse=True).",
            value=int(values[-1]),
        )
    return declared or tuple(str(label) for label in range(number))
