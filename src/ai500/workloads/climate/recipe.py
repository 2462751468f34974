"""Learnable climate: what is drawn, and how hard it is. The drawing itself is in `workloads`.

A frame is a function of (seed, split, number) alone: the same bytes on every machine and device.
"""

from __future__ import annotations

from dataclasses import dataclass

from ai500.core.errors import DataError
from ai500.data.climate.schema import HEIGHT, WIDTH, Boxes, Frames

SPLITS = ("train", "validation")
LEAST_HEIGHT, LEAST_WIDTH = 48, 72


@dataclass(frozen=True)
class ClimateRecipe:
    """The parameters of a generated data set; its `repr` is its origin."""

    seed: int
    height: int = HEIGHT
    width: int = WIDTH
    train: int = 0
    validation: int = 0
    event_scale: float = 1.0
    """Size of the events: on a coarse grid they have to be larger to be seen at all."""
    contrast: float = 1.0
    """Strength of the events' patterns in the fields, labels unchanged; smaller is harder."""
    distractors: float = 4.0
    """Mean number a frame of weak vortices and short or dry plumes that carry no label."""
    boundary: float = 0.5
    """Share of the tropical events drawn close to the wind that divides the two classes."""
    noise: float = 1.0
    """Noise of every pixel and channel, as a multiple of its usual size."""

    def __post_init__(self) -> None:
        if self.height < LEAST_HEIGHT or self.width < LEAST_WIDTH:
            raise DataError(
                f"frames of {self.height}×{self.width} are too small for weather: at least "
                f"{LEAST_HEIGHT}×{LEAST_WIDTH}. Full size is {HEIGHT}×{WIDTH}."
            )

    def draw(self, split: str, first: int, last: int) -> tuple[Frames, Boxes]:
        """Frames first … last − 1 of a split and their boxes; on the GPU where there is one."""
        from ai500.workloads.climate.generator import draw

        return draw(self, split, first, last)


SMOKE = ClimateRecipe(
    seed=1979, height=96, width=144, train=384, validation=128, event_scale=1.6, distractors=3.0
)
WORKSTATION = ClimateRecipe(
    seed=1979,
    train=256,
    validation=64,
    contrast=0.6,
    distractors=10.0,
    boundary=0.8,
    noise=2.0,
)
