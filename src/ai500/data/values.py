"""Compares samples with the fields that they are declared to have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.store import Arrays, array_names, data_error, numpy_dtype
from ai500.records.fields import OFFSETS, Field


def require_arrays(
    arrays: Arrays, fields: Sequence[Field], *, count: int, path: Path, samples: str
) -> None:
    """Raise `DataError` unless the arrays are `count` valid samples of these fields.

    `samples` names them in the message.
    """
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
        require_values(arrays[field.name], field, path=path, samples=samples)


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


def require_values(values: NDArray[Any], field: Field, *, path: Path, samples: str) -> None:
    """Raise `DataError` where a value is NaN or infinite, or outside the field's limits."""
    if values.size == 0:
        return
    if values.dtype.kind in "fc" and not (finite := np.isfinite(values)).all():
        raise _invalid(values[~finite], field, "a finite number", path=path, samples=samples)
    if field.limits is None or values.dtype.kind == "c":
        return
    low, high = field.limits
    inside = (values >= low) & (values <= high)
    if not inside.all():
        expected = f"between {low:g} and {high:g}"
        raise _invalid(values[~inside], field, expected, path=path, samples=samples)


def _invalid(
    wrong: NDArray[Any], field: Field, expected: str, *, path: Path, samples: str
) -> DataError:
    value = wrong.reshape(-1)[0].item()
    return data_error(
        path,
        f"{field.name} of {samples} has the value {value}, which is not {expected} "
        f"({wrong.size} such values).",
        "Correct or leave out the samples in the source.",
        key=field.name,
        value=value,
    )
