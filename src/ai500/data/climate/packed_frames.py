"""Checks climate frames in a packed store: the channels of a year, with a class for every pixel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ai500.data.climate.physics import Tally, impossible
from ai500.data.climate.schema import mask_fields
from ai500.data.store import Problem, StoredSplit
from ai500.records.fields import Field

FRAMES_PER_BLOCK = 4
IMAGES = "images"


def frame_problems(fields: Sequence[Field], splits: Mapping[str, StoredSplit]) -> Iterator[Problem]:
    """Yield what is physically impossible; nothing in a store of other fields."""
    images = next((field for field in fields if field.name == IMAGES), None)
    if images is None or len(images.shape) != 3:  # channels, latitudes, longitudes
        return
    _, height, width = images.shape
    if set(fields) != set(mask_fields(height, width)):
        return
    tallies = []
    for split in splits.values():
        tally = Tally(split.name, count=split.count, height=height, width=width)
        for first in range(0, split.count, FRAMES_PER_BLOCK):
            numbers = np.arange(first, min(split.count, first + FRAMES_PER_BLOCK))
            tally.add(split.rows(numbers, names=[IMAGES])[IMAGES], corner=(first, 0, 0, 0))
        tallies.append(tally)
    yield from impossible(tallies)
