"""Compares samples with the fields that they are declared to have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.data.store import Arrays, array_names, data_error, numpy_dtype
from ai500.records.fields import OFFSETS, Field


def require_arrays(
    arrays: Arrays, fields: Sequence[Field], *, numbers: Sequence[int], path: Path, samples: str
) -> None:
    """Raise `DataError` unless the arrays are valid samples of these fields.

    `samples` names them in the message, which counts them by `numbers`.
    """
    count = len(numbers)
    names = [name for field in fields for name in array_names(field)]
    if sorted(arrays) != sorted(names):
        raise data_error(
            path,
            f"{samples} have the arrays {', '.join(sorted(arrays))}; the fields need "
            f"{', '.join(sorted(names))}.",
            "Return an array for each field; a ragged one also needs NAME.offsets.",
            key="fields",
            value=sorted(arrays),
        )
    for field in fields:
        _require_type(arrays, field, count=count, path=path, samples=samples)
        rows: Sequence[int] | NDArray[np.int64] = numbers
        if field.ragged:
            rows = np.repeat(numbers, np.diff(arrays[field.name + OFFSETS]))
        require_values(arrays[field.name], field, numbers=rows, path=path, samples=samples)


def _require_type(arrays: Arrays, field: Field, *, count: int, path: Path, samples: str) -> None:
    values = arrays[field.name]
    if values.dtype != numpy_dtype(field):
        raise data_error(
            path,
            f"{field.name} of {samples} is {values.dtype}; the field is {field.dtype}.",
            f"Convert it, astype({field.dtype!r}), if that loses nothing, or declare the field "
            f"as {values.dtype}.",
            key=f"{field.name}.dtype",
            value=str(values.dtype),
        )
    rows = count
    if field.ragged:
        offsets = arrays[field.name + OFFSETS]
        _require_offsets(offsets, field, count=count, rows=len(values), path=path, samples=samples)
        rows = len(values)
    if values.shape != (rows, *field.row_shape):
        raise data_error(
            path,
            f"{field.name} of {samples} has shape {values.shape}; the field needs "
            f"{(rows, *field.row_shape)}.",
            "Give every sample the shape of the field, or declare the field with the "
            "samples' shape; a first size of −1 allows any length.",
            key=f"{field.name}.shape",
            value=values.shape,
        )


def _require_offsets(
    offsets: NDArray[Any], field: Field, *, count: int, rows: int, path: Path, samples: str
) -> None:
    fits = offsets.dtype == np.int64 and offsets.shape == (count + 1,)
    if not (fits and offsets[0] == 0 and offsets[-1] == rows and (np.diff(offsets) >= 0).all()):
        raise data_error(
            path,
            f"{field.name}{OFFSETS} of {samples} are not the bounds of {count} samples in {rows} "
            "rows.",
            f"Give int64 [{count + 1}] that begins with 0, ends with {rows} and never decreases.",
            key=field.name + OFFSETS,
            value=offsets.shape,
        )


def require_values(
    values: NDArray[Any],
    field: Field,
    *,
    numbers: Sequence[int] | NDArray[np.int64],
    path: Path,
    samples: str,
) -> None:
    """Raise `DataError` where a value is NaN or infinite, or outside the field's limits.

    `numbers` has the number of each row for the message.
    """
    if values.size == 0:
        return
    valid: NDArray[np.bool_] = np.ones(1, bool)
    expected = ""
    if values.dtype.kind in "fc":
        valid, expected = np.isfinite(values), "a finite number"
    if np.all(valid) and field.limits is not None and values.dtype.kind != "c":
        low, high = field.limits
        valid, expected = (values >= low) & (values <= high), f"between {low:g} and {high:g}"
    if np.all(valid):
        return
    place = [int(axis) for axis in np.unravel_index(np.argmin(valid), values.shape)]
    value, count = values[tuple(place)].item(), int(values.size - np.count_nonzero(valid))
    raise data_error(
        path,
        f"{field.name} of {samples} has the value {value}, which is not {expected}; it is the "
        f"first such value of {count} there, in number {numbers[place[0]]}.",
        "Correct or leave out the samples in the source.",
        key=field.name,
        value=value,
    )
