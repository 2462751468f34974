"""Boxes held against the schema: what `ai500 data check` names, and what training refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.climate.schema import CLASSES, Boxes
from ai500.data.climate.years import Year

PROBLEMS_TOLD = 3
Flags = NDArray[np.bool_]


@dataclass(frozen=True, order=True)
class Problem:
    """Something that is not as the schema says."""

    file: str
    frame: int
    """−1: of the file, or of the folder as a whole."""
    text: str

    def __str__(self) -> str:
        where = self.file and f"{self.file}: "
        return f"{where}{f'frame {self.frame}: ' if self.frame >= 0 else ''}{self.text}"


def box_problems(year: Year, boxes: Boxes) -> Iterator[Problem]:
    """Boxes outside, inverted, of no class, badly padded; one look at all, a closer at the bad."""
    south, west, north, east, kind = np.moveaxis(boxes, -1, 0)
    padding = _padding(boxes)
    after = np.zeros_like(padding)
    after[:, 1:] = np.logical_or.accumulate(padding, axis=1)[:, :-1]
    with np.errstate(invalid="ignore"):
        whole = (boxes == np.floor(boxes)).all(axis=-1)
        inside = (south >= 0) & (west >= 0) & (north <= year.height) & (east <= year.width)
        classed = (kind >= 0) & (kind < len(CLASSES))
        sized = (south < north) & (west < east)
    yield from _named(year, boxes, whole, "is not of whole numbers")
    outside = f"lies outside the frame of {year.height}×{year.width}"
    yield from _named(year, boxes, inside, outside)
    yield from _named(year, boxes, sized, "is inverted or empty")
    yield from _named(year, boxes, classed, f"has no class of 0 to {len(CLASSES) - 1}")
    yield from _named(year, boxes, ~after, "comes after a row of padding (−1)")


def unusable_boxes(year: Year, boxes: Boxes) -> Iterator[Problem]:
    """Boxes that can't be learned: no area, wholly outside, of no class.

    Fractions, boxes that reach over an edge and padding in between do no harm.
    """
    south, west, north, east, kind = np.moveaxis(boxes, -1, 0)
    with np.errstate(invalid="ignore"):
        sized = (south < north) & (west < east) & np.isfinite(boxes).all(axis=-1)
        inside = (north > 0) & (east > 0) & (south < year.height) & (west < year.width)
        classed = np.isin(kind, np.arange(len(CLASSES)))
    yield from _named(year, boxes, sized, "is inverted or empty")
    outside = f"lies wholly outside the frame of {year.height}×{year.width}"
    yield from _named(year, boxes, inside | ~sized, outside)
    yield from _named(year, boxes, classed, f"has no class of 0 to {len(CLASSES) - 1}")


def require_usable_boxes(folder: Path, boxes: Mapping[Year, Boxes]) -> None:
    """An error with the first boxes that training could not use."""
    problems = sorted(p for year, rows in boxes.items() for p in unusable_boxes(year, rows))
    if problems:
        told = "\n  ".join(map(str, problems[:PROBLEMS_TOLD]))
        more = len(problems) - PROBLEMS_TOLD
        raise DataError(
            f"{folder}: boxes that can't be trained on:\n  {told}\n"
            f"{f'… and {more} more. ' if more > 0 else ''}"
            f"Correct the files; `ai500 data check {folder}` names all."
        )


def _padding(boxes: Boxes) -> Flags:
    padding: Flags = (boxes == -1).all(axis=-1)
    return padding


def _named(year: Year, boxes: Boxes, good: Flags, text: str) -> Iterator[Problem]:
    for frame, row in np.argwhere(~good & ~_padding(boxes)).tolist():
        values = ", ".join(f"{value:g}" for value in boxes[frame, row])
        yield Problem(year.path.name, frame, f"box {row} ({values}) {text}")
