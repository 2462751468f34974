"""Generated samples for what runs before the timed window [D18], in every framework.

V2 §5.3.2 begins the window with the read of the first training batch. Compilation, the choice of
algorithms and warm-up need inputs of a step's shapes and types, not samples: none is read here.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ai500.data.store import Arrays
from ai500.records.fields import OFFSETS, Field

RAGGED_ROWS = 16
"""Rows of a generated sample of a ragged field."""
INTEGERS = 256
"""Generated integers without limits are below this: they fit every type."""


def generated_samples(fields: Iterable[Field], count: int) -> Arrays:
    """Generate valid samples of these fields from their declarations alone."""
    generator = np.random.default_rng(count)
    arrays: Arrays = {}
    for field in fields:
        rows = count * (RAGGED_ROWS if field.ragged else 1)
        arrays[field.name] = _values(field, rows, generator)
        if field.ragged:
            arrays[field.name + OFFSETS] = np.arange(count + 1, dtype=np.int64) * RAGGED_ROWS
    return arrays


def _values(field: Field, rows: int, generator: np.random.Generator) -> np.ndarray:
    shape, dtype = (rows, *field.row_shape), np.dtype(field.dtype)
    if dtype.kind in "iu":
        low, high = field.limits or (0, INTEGERS - 1)
        top = min(int(high), int(low) + INTEGERS - 1, np.iinfo(dtype).max)
        return generator.integers(int(low), top, shape, dtype=dtype, endpoint=True)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape, dtype=np.int8).astype(dtype)
    low, high = field.limits or (0.0, 1.0)
    values = generator.uniform(low, high, shape)
    if field.role == "target" and field.limits is None:
        values = np.sort(values, axis=-1)  # as corners of a box, the first are the lower ones
    return values.astype(dtype)
