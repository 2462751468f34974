"""Samples of many types and shapes, fixed and ragged, whose values follow from their numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ai500.data.store import Arrays
from ai500.records.fields import ITEM_BYTES, Field

COUNTS = {"train": 700, "validation": 90}
SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 3), (1, 2, 2, 2))


def fixed_fields() -> tuple[Field, ...]:
    """Return a field of each type, their shapes in turn."""
    return tuple(
        Field(f"field_{dtype}", "target" if number % 3 else "input", dtype, SHAPES[number % 4])
        for number, dtype in enumerate(ITEM_BYTES)
    )


RAGGED_FIELDS = (
    Field("tokens", "input", "uint16", (-1,), limits=(0, 5000)),
    Field("boxes", "target", "float32", (-1, 5)),
    Field("parameters", "target", "float64", (4,)),
)


@dataclass(frozen=True)
class Mixed:
    """A source of samples with these fields."""

    fields: tuple[Field, ...]
    seed: int = 3

    def draw(self, split: str, first: int, last: int) -> Arrays:
        arrays: Arrays = {}
        for place, field in enumerate(self.fields):
            samples = [self._sample(split, number, place, field) for number in range(first, last)]
            if not field.ragged:
                arrays[field.name] = np.stack(samples)
                continue
            lengths = [len(sample) for sample in samples]
            arrays[field.name] = np.concatenate(samples)
            arrays[f"{field.name}.offsets"] = np.cumsum([0, *lengths], dtype=np.int64)
        return arrays

    def _sample(self, split: str, number: int, place: int, field: Field) -> NDArray[np.generic]:
        random = np.random.default_rng([self.seed, len(split), number, place])
        # Every seventh ragged sample is empty.
        length = (int(random.integers(1, 20)) if number % 7 else 0,) if field.ragged else ()
        values = random.integers(0, 100, (*length, *field.row_shape))
        return np.asarray(values, dtype=field.dtype)


def expected(source: Mixed, split: str, indices: NDArray[np.int64]) -> Arrays:
    """Return these samples as a split's `rows` must return them."""
    parts = [source.draw(split, number, number + 1) for number in indices.tolist()]
    rows: Arrays = {}
    for field in source.fields:
        rows[field.name] = np.concatenate([part[field.name] for part in parts])
        if field.ragged:
            lengths = [len(part[field.name]) for part in parts]
            rows[f"{field.name}.offsets"] = np.cumsum([0, *lengths], dtype=np.int64)
    return rows
