"""Fields: the named, typed arrays that every sample of a store has."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ai500.core.errors import DataError

RAGGED = -1
"""First size of a field whose samples differ in length."""
OFFSETS = ".offsets"
"""Suffix of the array that has the bounds of a ragged field's samples."""
ITEM_BYTES = {
    "bool": 1,
    **{f"{kind}{8 * size}": size for kind in ("int", "uint") for size in (1, 2, 4, 8)},
    **{f"float{8 * size}": size for size in (2, 4, 8)},
    **{f"complex{8 * size}": size for size in (8, 16)},
}
"""Bytes of a value by NumPy's name of its type; longer types differ between machines."""
MAX_DIMENSIONS = 31  # NumPy's 32, less the samples' own


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed array of every sample."""

    name: str
    """Identifier: `images`, `tokens`, `labels`, `boxes`."""
    role: Literal["input", "target"]
    dtype: str
    """NumPy's name of a numeric or bool type, little-endian on disk: `uint8`, `float32`."""
    shape: tuple[int, ...]
    """Shape of one sample; a first size of −1: ragged, samples differ in length."""
    limits: tuple[float, float] | None = None
    """Inclusive range of valid values, such as 0 … classes − 1; None: any finite value."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise self._error("name", self.name, "the name is no identifier")
        if self.dtype not in ITEM_BYTES:
            raise self._error("dtype", self.dtype, f"known are {', '.join(ITEM_BYTES)}")
        sizes = self.shape[1:] if self.ragged else self.shape
        if any(size < 1 for size in sizes) or len(self.shape) > MAX_DIMENSIONS:
            raise self._error("shape", self.shape, "sizes are positive; only the first may be −1")
        if self.limits is not None and not self.limits[0] <= self.limits[1]:
            raise self._error("limits", self.limits, "the lower limit comes first")
        if self.limits is not None:  # one spelling in files, whichever numbers were given
            object.__setattr__(self, "limits", (float(self.limits[0]), float(self.limits[1])))

    def _error(self, key: str, value: object, why: str) -> DataError:
        return DataError(
            f"field {self.name!r}: {key} = {value!r}: {why}.", key=f"fields.{key}", value=value
        )

    @property
    def ragged(self) -> bool:
        """True where samples differ in length."""
        return self.shape[:1] == (RAGGED,)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row of the array: of a sample, or of one step of a ragged sample."""
        return self.shape[1:] if self.ragged else self.shape

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the array."""
        return math.prod(self.row_shape) * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        sizes = "×".join("…" if size == RAGGED else str(size) for size in self.shape)
        return f"{self.name} ({self.dtype}{f' {sizes}' if sizes else ''})"


def image_fields(
    height: int, width: int, *, channels: int = 3, classes: int
) -> tuple[Field, Field]:
    """Return the fields of labelled images: uint8 [height, width, channels], and a class."""
    return (
        Field("images", "input", "uint8", (height, width, channels)),
        Field("labels", "target", "int64", (), limits=(0, classes - 1)),
    )


def target_names(fields: Iterable[Field]) -> tuple[str, ...]:
    """Return the names of the targets."""
    return tuple(field.name for field in fields if field.role == "target")


def sample_bytes(fields: Iterable[Field]) -> int:
    """Return the bytes of a sample's fields; the values of ragged ones are not known: 0."""
    return sum(8 if field.ragged else field.row_bytes for field in fields)
