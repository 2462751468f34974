"""The events of a frame: which there are, where, how strong, and the boxes that name them.

A box is the least rectangle of whole pixels around
- a cyclone's circle on which its wind has fallen to a third of its greatest: three times the radius
  of greatest wind, because the wind goes as x / (1 + x²/3)² with x in such radii;
- a river's axis, widened on both sides by its half width: there its moisture is a quarter.
Tropical cyclones have winds of 17.5 m/s and more (the meteorologists' own limit), depressions less.
"""

from __future__ import annotations

from collections.abc import Callable

from ai500.workloads.climate.earth import cosine_of, is_land
from ai500.workloads.climate.noise import Draws
from ai500.workloads.climate.patterns import Canvas, Cyclone, River, paint_cyclone, paint_river
from ai500.workloads.climate.recipe import ClimateRecipe

DEPRESSION, TROPICAL, EXTRATROPICAL, RIVER = range(4)
TROPICAL_WIND = 17.5
BOX_RADII = 3.0
TRIES = 24
EMPTY_SHARE = 0.05
Box = tuple[int, int, int, int, int]
Degrees = tuple[float, float, float, float]
"""South, west, north, east."""


def draw_events(canvas: Canvas, draws: Draws, recipe: ClimateRecipe, *, summer: float) -> list[Box]:
    """Paint the frame's events and its distractors; the boxes of the events."""
    scene = _Scene(canvas, draws, recipe, summer=summer)
    if draws.between(0, 1) >= EMPTY_SHARE:
        tropical, mid, rivers = 1 + draws.below(3), draws.below(4), draws.below(4)
        if mid + rivers == 0:
            mid = 1
        scene.add(tropical, scene.tropical)
        scene.add(mid, scene.extratropical)
        scene.add(rivers, scene.river)
    decoys = (scene.weak_vortex, scene.weak_low, scene.dry_plume)
    for _ in range(draws.below(int(2 * recipe.distractors) + 1)):
        scene.add(1, decoys[draws.below(len(decoys))])
    return scene.boxes


class _Scene:
    """A frame being filled: nothing is put where something is."""

    def __init__(
        self, canvas: Canvas, draws: Draws, recipe: ClimateRecipe, *, summer: float
    ) -> None:
        self.canvas = canvas
        self.draws = draws
        self.recipe = recipe
        self.summer = summer
        self.taken: list[Degrees] = []
        self.boxes: list[Box] = []

    def add(self, count: int, kind: Callable[[], bool]) -> None:
        """So many of a kind, each where there is room for it; none where there is none."""
        for _ in range(count):
            for _ in range(TRIES):
                if kind():
                    break

    def tropical(self) -> bool:
        """A depression or a cyclone: the same pattern, divided by its wind."""
        near = self.draws.between(0, 1) < self.recipe.boundary
        strong = self.draws.between(0, 1) < 0.5
        if strong:
            wind = self.draws.between(TROPICAL_WIND, 24.0 if near else 55.0)
        else:
            wind = self.draws.between(14.0 if near else 10.0, TROPICAL_WIND)
        return self._vortex(wind, kind=TROPICAL if strong else DEPRESSION)

    def weak_vortex(self) -> bool:
        """Not yet a depression."""
        return self._vortex(self.draws.between(3.0, 7.5), kind=None)

    def _vortex(self, wind: float, *, kind: int | None) -> bool:
        hemisphere = 1.0 if self.draws.between(-1, 1) < 0.35 + 0.6 * self.summer else -1.0
        radius = self.draws.between(1.5, 2.4)
        latitude = hemisphere * self.draws.between(8.0, 28.0)
        return self._cyclone(latitude, radius, wind=wind, kind=kind, over_land=False)

    def extratropical(self) -> bool:
        """A cold-core cyclone with fronts."""
        wind = self.draws.between(15.0, 30.0)
        return self._low(wind, radius=self.draws.between(2.8, 4.6), kind=EXTRATROPICAL)

    def weak_low(self) -> bool:
        """A shallow low without name."""
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
        paint_cyclone(
            self.canvas,
            Cyclone(
                latitude, longitude, cosine, radius, wind * self.recipe.contrast, turn, cold=cold
            ),
        )
        self._settle(extent, kind)
        return True

    def river(self) -> bool:
        """A long, narrow and moist stream out of the subtropics."""
        return self._plume(
            moisture=self.draws.between(15.0, 27.0),
            wind=self.draws.between(10.0, 20.0),
            reach=self.draws.between(18.0, 30.0),
            kind=RIVER,
        )

    def dry_plume(self) -> bool:
        """Too short or too dry to be a river."""
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
        paint_river(self.canvas, plume)
        self._settle(extent, kind)
        return True

    def _room(self, extent: Degrees) -> bool:
        """Inside the frame, and covering little of what is there."""
        south, west, north, east = extent
        if west < 0.0 or east > 360.0 or south < -88.0 or north > 88.0:
            return False
        area = (north - south) * (east - west)
        for other in self.taken:
            tall = min(north, other[2]) - max(south, other[0])
            wide = min(east, other[3]) - max(west, other[1])
            theirs = (other[2] - other[0]) * (other[3] - other[1])
            if tall > 0 and wide > 0 and tall * wide > 0.15 * min(area, theirs):
                return False
        return True

    def _settle(self, extent: Degrees, kind: int | None) -> None:
        self.taken.append(extent)
        if kind is None:
            return
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
