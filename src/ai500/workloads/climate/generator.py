"""Frames of learnable climate: background, events with boxes and masks, noise of the pixels.

A box is the smallest rectangle of whole pixels around
- a cyclone's circle on which its wind has fallen to a third of its maximum: three times the radius
  of maximum wind, because the wind goes as x / (1 + x²/3)² with x in such radii;
- a river's axis, widened on both sides by its half width: there its moisture is a quarter.
Tropical cyclones have winds of 17.5 m/s and more (the meteorological limit), depressions less.
A mask has the pixels inside that circle, or around that axis, of tropical cyclones and of rivers,
DeepCAM's two classes of events; where they overlap, the event that was drawn first counts: the
cyclone. All other events are background.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ai500.data.climate.schema import CHANNELS, MOST_BOXES, Boxes, Frames, Masks
from ai500.workloads.climate.background import background, cosine_of, is_land
from ai500.workloads.climate.noise import Draws, magnified
from ai500.workloads.climate.patterns import (
    BOX_RADII,
    Canvas,
    Cyclone,
    Footprint,
    River,
    paint_cyclone,
    paint_river,
)
from ai500.workloads.climate.recipe import ClimateRecipe

SPLITS = ("train", "validation")
# Amplitude of the pixels' own noise by channel, in the channel's unit.
_GRAIN = {
    "PRECT": 4e-9, "PS": 40.0, "PSL": 40.0, "QREFHT": 2e-4, "T200": 0.3, "T500": 0.3,
    "TMQ": 0.7, "TREFHT": 0.4, "TS": 0.5, "U850": 0.8, "UBOT": 0.8, "V850": 0.8, "VBOT": 0.8,
    "Z1000": 4.0, "Z200": 6.0, "ZBOT": 0.1,
}  # fmt: skip
_LEAST = {"PRECT": 0.0, "QREFHT": 1e-6, "TMQ": 0.1}
DEPRESSION, TROPICAL, EXTRATROPICAL, RIVER = range(4)
MASKS = {TROPICAL: 1, RIVER: 2}
"""Values of the pixels of events in masks; the background has 0."""
TROPICAL_WIND = 17.5
TRIES = 24
EMPTY_SHARE = 0.05
Box = tuple[int, int, int, int, int]
Degrees = tuple[float, float, float, float]
"""South, west, north, east."""


class Frame(NamedTuple):
    """One frame: fields [16, height, width], boxes, and the pixels' classes [height, width]."""

    fields: Tensor
    boxes: list[Box]
    masks: Tensor


def draw(
    recipe: ClimateRecipe, split: str, first: int, last: int, *, device: str | None = None
) -> tuple[Frames, Boxes, Masks]:
    """Draw frames first … last − 1 of a split, their boxes and masks."""
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    frames = np.empty((last - first, len(CHANNELS), recipe.height, recipe.width), np.float32)
    boxes = np.full((last - first, MOST_BOXES, 5), -1, np.float32)
    masks = np.empty((last - first, recipe.height, recipe.width), np.uint8)
    with torch.inference_mode(), _one_thread():
        for row, number in enumerate(range(first, last)):
            frame = draw_frame(recipe, split, number, device=chosen)
            torch.from_numpy(frames[row]).copy_(frame.fields)
            torch.from_numpy(masks[row]).copy_(frame.masks)
            boxes[row, : len(frame.boxes)] = np.array(frame.boxes, np.float32).reshape(-1, 5)
    return frames, boxes, masks


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch to one thread: processes share the frames, fields are too small for threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def draw_frame(recipe: ClimateRecipe, split: str, number: int, *, device: torch.device) -> Frame:
    """Draw one frame."""
    key = (recipe.seed, SPLITS.index(split), number)
    events = Draws(*key, 1)
    summer = _season(events.between(0.0, 1.0))
    coarse, texture = background(Draws(*key, 2), summer=summer, device=device)
    size = {"height": recipe.height, "width": recipe.width}
    fields = torch.empty((len(CHANNELS), *size.values()), device=device)
    for channel, field in enumerate(coarse):
        fields[channel] = magnified(field, **size)
    canvas = Canvas(fields, magnified(texture, **size))
    boxes, masks = draw_events(canvas, events, recipe, summer=summer)
    add_grain(fields, Draws(*key, 3), amount=recipe.noise)
    return Frame(fields, boxes, masks)


def _season(phase: float) -> float:
    """Evaluate a wave from −1 to 1 over the year, made of two parabolas."""
    half = phase * 2.0
    return 4.0 * half * (1.0 - half) if half < 1.0 else -4.0 * (half - 1.0) * (2.0 - half)


def add_grain(fields: Tensor, draws: Draws, *, amount: float) -> None:
    """Add noise to every pixel; rain and moisture stay positive."""
    for channel, name in enumerate(CHANNELS):
        field = fields[channel]
        noise = torch.from_numpy(draws.bytes(field.numel())).to(field.device).view(field.shape)
        # A byte has a standard deviation of 73.9.
        field += noise.float() * (_GRAIN[name] * amount / 73.9)
        if name in _LEAST:
            field.clamp_(min=_LEAST[name])


def draw_events(
    canvas: Canvas, draws: Draws, recipe: ClimateRecipe, *, summer: float
) -> tuple[list[Box], Tensor]:
    """Paint the frame's events and distractors; return boxes and masks of the events."""
    scene = _Scene(canvas, draws, recipe, summer=summer)
    if draws.between(0, 1) >= EMPTY_SHARE:
        tropical, mid, rivers = 1 + draws.below(3), draws.below(4), draws.below(4)
        if mid + rivers == 0:
            mid = 1
        scene.add(tropical, scene.tropical)
        scene.add(mid, scene.extratropical)
        scene.add(rivers, scene.river)
    distractors = (scene.weak_vortex, scene.weak_low, scene.dry_plume)
    for _ in range(draws.below(int(2 * recipe.distractors) + 1)):
        scene.add(1, distractors[draws.below(len(distractors))])
    return scene.boxes, scene.masks


class _Scene:
    """A frame being filled; events hardly overlap."""

    def __init__(
        self, canvas: Canvas, draws: Draws, recipe: ClimateRecipe, *, summer: float
    ) -> None:
        self.canvas = canvas
        self.draws = draws
        self.recipe = recipe
        self.summer = summer
        self.taken: list[Degrees] = []
        self.boxes: list[Box] = []
        self.masks = torch.zeros_like(canvas.texture, dtype=torch.uint8)

    def add(self, count: int, kind: Callable[[], bool]) -> None:
        """Add `count` events of a kind; one that finds no room in TRIES draws is left out."""
        for _ in range(count):
            for _ in range(TRIES):
                if kind():
                    break

    def tropical(self) -> bool:
        """Add a depression or a cyclone: one pattern, classified by its wind."""
        near = self.draws.between(0, 1) < self.recipe.boundary
        strong = self.draws.between(0, 1) < 0.5
        if strong:
            wind = self.draws.between(TROPICAL_WIND, 24.0 if near else 55.0)
        else:
            wind = self.draws.between(14.0 if near else 10.0, TROPICAL_WIND)
        return self._vortex(wind, kind=TROPICAL if strong else DEPRESSION)

    def weak_vortex(self) -> bool:
        """Add a distractor: a vortex too weak for a depression."""
        return self._vortex(self.draws.between(3.0, 7.5), kind=None)

    def _vortex(self, wind: float, *, kind: int | None) -> bool:
        hemisphere = 1.0 if self.draws.between(-1, 1) < 0.35 + 0.6 * self.summer else -1.0
        radius = self.draws.between(1.5, 2.4)
        latitude = hemisphere * self.draws.between(8.0, 28.0)
        return self._cyclone(latitude, radius, wind=wind, kind=kind, over_land=False)

    def extratropical(self) -> bool:
        """Add a cold-core cyclone with fronts."""
        wind = self.draws.between(15.0, 30.0)
        return self._low(wind, radius=self.draws.between(2.8, 4.6), kind=EXTRATROPICAL)

    def weak_low(self) -> bool:
        """Add a distractor: a shallow low."""
        return self._low(self.draws.between(5.0, 10.0), radius=self.draws.between(2.4, 4.0))

    def _low(self, wind: float, *, radius: float, kind: int | None = None) -> bool:
        hemisphere = 1.0 if self.draws.below(2) else -1.0
        latitude = hemisphere * self.draws.between(35.0, 62.0)
        return self._cyclone(latitude, radius, wind=wind, kind=kind, over_land=True, cold=True)

    def _cyclone(
        self,
        latitude: float,
        radius: float,
        *,
        wind: float,
        kind: int | None,
        over_land: bool,
        cold: bool = False,
    ) -> bool:
        radius *= self.recipe.event_scale
        longitude = self.draws.between(0.0, 360.0)
        cosine = cosine_of(latitude)
        half = BOX_RADII * radius
        wide = half / cosine
        extent = (latitude - half, longitude - wide, latitude + half, longitude + wide)
        turn = self.draws.between(-0.4, 0.4)
        if not self._room(extent) or (not over_land and is_land(latitude, longitude)):
            return False
        footprint = paint_cyclone(
            self.canvas,
            Cyclone(
                latitude, longitude, cosine, radius, wind * self.recipe.contrast, turn, cold=cold
            ),
        )
        self._occupy(extent, kind, footprint)
        return True

    def river(self) -> bool:
        """Add a long, narrow, moist stream out of the subtropics."""
        return self._plume(
            moisture=self.draws.between(15.0, 27.0),
            wind=self.draws.between(10.0, 20.0),
            reach=self.draws.between(18.0, 30.0),
            kind=RIVER,
        )

    def dry_plume(self) -> bool:
        """Add a distractor: a plume too short or too dry for a river."""
        short = self.draws.below(2)
        return self._plume(
            moisture=self.draws.between(12.0, 18.0) if short else self.draws.between(4.0, 9.0),
            wind=self.draws.between(1.0, 7.0),
            reach=self.draws.between(4.0, 8.0) if short else self.draws.between(14.0, 26.0),
            kind=None,
        )

    def _plume(self, *, moisture: float, wind: float, reach: float, kind: int | None) -> bool:
        hemisphere = 1.0 if self.draws.below(2) else -1.0
        foot = self.draws.between(18.0, 30.0)
        lean = reach * self.draws.between(0.5, 1.9)
        bend = lean * self.draws.between(-0.35, 0.35)
        start = self.draws.between(0.0, 360.0)
        scale = self.recipe.event_scale
        half_width = self.draws.between(2.4, 3.6) * (1.0 + (scale - 1.0) * 0.6)
        plume = River(
            hemisphere, foot, reach, start, lean, bend, half_width,
            moisture * self.recipe.contrast, wind * self.recipe.contrast,
        )  # fmt: skip
        extent = plume.extent()
        if not self._room(extent):
            return False
        self._occupy(extent, kind, paint_river(self.canvas, plume))
        return True

    def _room(self, extent: Degrees) -> bool:
        """Return True where an extent lies inside the frame and overlaps little else."""
        south, west, north, east = extent
        if west < 0.0 or east > 360.0 or south < -88.0 or north > 88.0:
            return False
        area = (north - south) * (east - west)
        for other in self.taken:
            tall = min(north, other[2]) - max(south, other[0])
            wide = min(east, other[3]) - max(west, other[1])
            other_area = (other[2] - other[0]) * (other[3] - other[1])
            if tall > 0 and wide > 0 and tall * wide > 0.15 * min(area, other_area):
                return False
        return True

    def _occupy(self, extent: Degrees, kind: int | None, footprint: Footprint) -> None:
        self.taken.append(extent)
        if kind is None:
            return
        if kind in MASKS:
            self._mark(footprint, MASKS[kind])
        south, west, north, east = extent
        rows, columns = self.recipe.height / 180.0, self.recipe.width / 360.0
        self.boxes.append(
            (
                max(0, int((south + 90.0) * rows)),
                max(0, int(west * columns)),
                min(self.recipe.height, -int(-(north + 90.0) * rows // 1)),
                min(self.recipe.width, -int(-east * columns // 1)),
                kind,
            )
        )

    def _mark(self, footprint: Footprint, value: int) -> None:
        """Give an event's pixels their class, where they have none yet."""
        rows, columns, covered = footprint
        free = self.masks[rows, columns] == 0
        self.masks[rows, columns] += (covered & free) * value
