"""Frames of the learnable climate with a class for every pixel, as DeepCAM labels CAM5's.

The frames are those of Extreme Weather Analytics with the same seed and recipe. Masks have
DeepCAM's three classes: a tropical cyclone is the circle on which its wind has fallen to a third of
its maximum, an atmospheric river the pixels within half its width of its axis, where its moisture
is at least a quarter of that on the axis; all else is background. Depressions and extratropical
cyclones are background too, and the events most easily mistaken for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ai500.data.climate.schema import HEIGHT, WIDTH
from ai500.data.climate.schema import PIXEL_CLASSES as PIXEL_CLASSES
from ai500.data.climate.schema import mask_fields as mask_fields
from ai500.data.generated import Generated
from ai500.data.store import Arrays
from ai500.records import ProblemClass
from ai500.records.fields import Field
from ai500.workloads.climate import recipe as recipes
from ai500.workloads.climate.recipe import ClimateRecipe

EVENTS = PIXEL_CLASSES[1:]
# Mean and standard deviation of each channel in the schema's units, of 64 frames of the learnable
# climate at its full contrast, rounded. They are constants, so that a store needs no
# statistics; CAM5's climate is close enough for the batch norms that follow.
NORMALIZATION = {
    "PRECT": (4.659e-08, 1.7e-07), "PS": (97420, 7500), "PSL": (100800, 970),
    "QREFHT": (0.007944, 0.0054), "T200": (219.7, 2.2), "T500": (253.7, 11),
    "TMQ": (16.9, 17), "TREFHT": (277, 20), "TS": (277.5, 21), "U850": (0.3524, 8.6),
    "UBOT": (0.3196, 5.9), "V850": (-0.004551, 5.7), "VBOT": (-0.05704, 4.1), "Z1000": (69.47, 86),
    "Z200": (11920, 480), "ZBOT": (60.8, 4.5),
}  # fmt: skip


@dataclass(frozen=True)
class SegmentedClimate(Generated):
    """A source of frames and masks; a sample is a pure function of (split, number)."""

    recipe: ClimateRecipe

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of a frame of the recipe's size."""
        return mask_fields(self.recipe.height, self.recipe.width)

    def draw(self, split: str, first: int, last: int) -> Arrays:
        """Draw frames first … last − 1 of a split."""
        from ai500.workloads.climate.generator import draw

        # Many processes draw: on a GPU each would have a context of its own.
        frames, _, masks = draw(self.recipe, split, first, last, device="cpu")
        return {"images": frames, "masks": masks}


def event_bytes(problem_class: ProblemClass) -> int:
    """Return the bytes of a frame's predictions: one for each event and pixel."""
    _, height, width = problem_class.input_shape
    return len(EVENTS) * height * width


SOURCES = {
    # The events of extreme_weather's classes, on coarser grids.
    "smoke": SegmentedClimate(
        replace(recipes.SMOKE, height=64, width=96, train=256, validation=64)
    ),
    "workstation": SegmentedClimate(
        replace(recipes.WORKSTATION, height=HEIGHT // 3, width=WIDTH // 3)
    ),
}
"""Sources of the classes with generated data."""
