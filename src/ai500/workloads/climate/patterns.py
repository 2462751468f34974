"""Patterns of events in the channels: rational functions of the distance to a centre or axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ai500.data.climate.schema import CHANNELS
from ai500.workloads.climate.background import cosine_of

_CHANNEL = {name: number for number, name in enumerate(CHANNELS)}
_PEAK = 3.0792014356780046  # 1 / max of x / (1 + x²)², which is at x = 1/√3
_ROOT_3 = 3.0**0.5
REACH = 6.5  # a pattern is cut at this many radii of maximum wind, where it is < 0.5 %
BOX_RADII = 3.0  # a cyclone ends where its wind has fallen to a third of its maximum
Footprint = tuple[slice, slice, Tensor]
"""Rows and columns of a window, and True at those of its pixels that an event covers."""


def root(values: Tensor) -> Tensor:
    """Compute the square root, exact to the last bit."""
    # On a CPU torch's own may be an approximation.
    if values.device.type == "cpu":
        return torch.from_numpy(np.sqrt(values.numpy()))
    return values.sqrt()


@dataclass(frozen=True)
class Canvas:
    """The frame's fields [16, height, width], and a texture [height, width]."""

    fields: Tensor
    texture: Tensor

    def window(
        self, south: float, west: float, north: float, east: float
    ) -> tuple[slice, slice, Tensor, Tensor]:
        """Return the rows and columns of an extent, and its pixels' latitudes and longitudes."""
        _, height, width = self.fields.shape
        rows = slice(
            max(0, int((south + 90.0) * (height / 180.0))),
            min(height, max(0, int((north + 90.0) * (height / 180.0)) + 1)),
        )
        columns = slice(
            max(0, int(west * (width / 360.0))),
            min(width, max(0, int(east * (width / 360.0)) + 1)),
        )
        device = self.fields.device
        latitude = torch.arange(rows.start, rows.stop, device=device).float() + 0.5
        longitude = torch.arange(columns.start, columns.stop, device=device).float() + 0.5
        return (
            rows,
            columns,
            latitude[:, None] * (180.0 / height) - 90.0,
            longitude[None, :] * (360.0 / width),
        )

    def add(self, rows: slice, columns: slice, patterns: dict[str, Tensor]) -> None:
        """Add patterns to the channels of a window."""
        for name, pattern in patterns.items():
            self.fields[_CHANNEL[name], rows, columns] += pattern


@dataclass(frozen=True)
class Cyclone:
    """A vortex; `cold` ones have a cold core and fronts."""

    latitude: float
    longitude: float
    cosine: float
    radius: float
    """Radius of maximum wind, in degrees of latitude."""
    wind: float
    """Maximum wind in m/s."""
    turn: float
    """Rotation of the spiral: tangent of half the angle."""
    cold: bool


@dataclass(frozen=True)
class _Frame:
    """Pixels in a cyclone's coordinates: east and polewards in units of √3 radii."""

    east: Tensor
    polewards: Tensor
    near: Tensor
    """1 / (1 + x²)², 1 at the centre."""
    wide: Tensor
    """The same, 1.8 times as wide: clouds extend further than winds."""
    arm: Tensor
    """A spiral arm from 0 to 1."""


def paint_cyclone(canvas: Canvas, cyclone: Cyclone) -> Footprint:
    """Add a cyclone's patterns to the fields; return the circle of `BOX_RADII`."""
    half = REACH * cyclone.radius
    half_east = half / cyclone.cosine
    rows, columns, latitude, longitude = canvas.window(
        cyclone.latitude - half,
        cyclone.longitude - half_east,
        cyclone.latitude + half,
        cyclone.longitude + half_east,
    )
    side = 1.0 if cyclone.latitude > 0 else -1.0
    unit = 1.0 / (_ROOT_3 * cyclone.radius)
    east = ((longitude - cyclone.longitude) * (cyclone.cosine * unit)).expand(
        latitude.shape[0], longitude.shape[1]
    )
    polewards = ((latitude - cyclone.latitude) * (side * unit)).expand_as(east)
    square = east * east + polewards * polewards
    inverse = 1.0 / (square + 1.0)
    near = inverse * inverse
    broad = 1.0 / (square * 0.31 + 1.0)
    # The value at the window's edge is subtracted, so that no seam shows.
    edge = REACH * REACH / 3.0
    near = (near - 1.0 / ((1.0 + edge) * (1.0 + edge))).clamp(min=0.0)
    wide = (broad * broad - 1.0 / ((1.0 + 0.31 * edge) * (1.0 + 0.31 * edge))).clamp(min=0.0)
    frame = _Frame(east, polewards, near, wide, _arm(east, polewards, square, turn=cyclone.turn))
    texture = 1.0 + canvas.texture[rows, columns] * 0.22
    speed = near * (cyclone.wind * _PEAK)
    u, v = speed * polewards * -1.0, speed * east * side
    inwards = 0.25
    winds = {
        "U850": u,
        "V850": v,
        "UBOT": (u - speed * east * inwards) * 0.78,
        "VBOT": (v - speed * polewards * (inwards * side)) * 0.78,
    }
    shape = _cold_core if cyclone.cold else _warm_core
    canvas.add(rows, columns, winds | shape(frame, texture, wind=cyclone.wind))
    return rows, columns, square <= BOX_RADII * BOX_RADII / 3.0


def _arm(east: Tensor, polewards: Tensor, square: Tensor, *, turn: float) -> Tensor:
    """Compute one spiral arm: cos(θ − α(r)) with α growing outwards, sharpened."""
    inverse = 1.0 / root(square + 1e-6)
    cosine, sine = east * inverse, polewards * inverse
    t = (square * inverse) * -0.55 + turn
    norm = 1.0 / (t * t + 1.0)
    along = (cosine * (1.0 - t * t) + sine * (t * 2.0)) * norm
    arm = (along * 0.5 + 0.5) * (along * 0.5 + 0.5)
    # The centre has no direction.
    return arm * arm * (square / (square + 0.12))


def _warm_core(frame: _Frame, texture: Tensor, *, wind: float) -> dict[str, Tensor]:
    """Compute a tropical cyclone: low at the ground, warm aloft, rain in bands."""
    near = frame.near
    depth = 22.0 * wind + 1.9 * wind * wind  # Pa: 10 hPa at 17.5 m/s, 57 at 50
    bands = (frame.arm * 1.1 + 0.35) * texture
    wet = near * 0.5 + frame.wide * bands * 0.6
    fall = near * -depth
    return {
        "PSL": fall,
        "PS": fall,
        "Z1000": fall * (1.0 / 11.3),
        "T500": near * (0.11 * wind),
        "T200": near * (0.13 * wind),
        "Z200": near * (1.1 * wind),
        "TMQ": wet * (12.0 + 0.4 * wind),
        "PRECT": wet * (1.3e-8 * wind),
        "QREFHT": near * (2.5e-5 * wind),
        "TREFHT": near * (-0.03 * wind),
        "TS": near * (-0.03 * wind),
        "ZBOT": near * (0.012 * wind),
    }


def _cold_core(frame: _Frame, texture: Tensor, *, wind: float) -> dict[str, Tensor]:
    """Compute an extratropical cyclone: cold aloft, warm ahead of the front, cold behind."""
    near = frame.near
    depth = 95.0 * wind  # Pa: 19 hPa at 20 m/s, 28 at 30
    fall = near * -depth
    ahead = near * (frame.east - frame.polewards * 0.4)
    comma = frame.arm * frame.wide * texture
    return {
        "PSL": fall,
        "PS": fall,
        "Z1000": fall * (1.0 / 11.3),
        "Z200": near * (-11.0 * wind),
        "T500": near * (-0.28 * wind) + ahead * (0.2 * wind),
        "T200": near * (0.16 * wind),
        "TREFHT": ahead * (0.55 * wind),
        "TS": ahead * (0.3 * wind),
        "TMQ": comma * (1.2 * wind) + ahead * (0.35 * wind),
        "QREFHT": ahead * (1.1e-4 * wind),
        "PRECT": comma * (0.9e-8 * wind),
        "ZBOT": ahead * (0.1 * wind),
    }


@dataclass(frozen=True)
class River:
    """A plume whose axis leads from `foot` degrees of latitude `reach` degrees polewards."""

    hemisphere: float
    foot: float
    reach: float
    start: float
    """Longitude of the foot."""
    lean: float
    """Degrees of longitude from the foot to the head, eastwards."""
    bend: float
    half_width: float
    """Degrees across the axis at which its moisture is a quarter."""
    moisture: float
    wind: float

    def extent(self) -> tuple[float, float, float, float]:
        """Return south, west, north and east of the axis, widened by the half width."""
        # lean · s + 4 bend · s (1 − s) has its extremes at the ends or where its slope is 0.
        places = [0.0, 1.0]
        if self.bend:
            places.append(min(1.0, max(0.0, 0.5 + self.lean / (8.0 * self.bend))))
        across = [self.lean * s + 4.0 * self.bend * s * (1.0 - s) for s in places]
        wide = self.half_width / cosine_of(self.foot + 0.5 * self.reach)
        near, far = self.foot - self.half_width, self.foot + self.reach + self.half_width
        south, north = (near, far) if self.hemisphere > 0 else (-far, -near)
        return south, self.start + min(across) - wide, north, self.start + max(across) + wide


def paint_river(canvas: Canvas, river: River) -> Footprint:
    """Add a river's patterns to the fields; return the pixels within half a width of its axis."""
    south, west, north, east = river.extent()
    margin = 3.0 * river.half_width
    rows, columns, latitude, longitude = canvas.window(
        south - margin, west - 2.0 * margin, north + margin, east + 2.0 * margin
    )
    s = (latitude * river.hemisphere - river.foot) * (1.0 / river.reach)
    inside = s.clamp(0.0, 1.0)
    axis = inside * river.lean + (inside * (1.0 - inside)) * (4.0 * river.bend) + river.start
    cosine = cosine_of(river.foot + 0.5 * river.reach)
    # Degrees of arc eastwards per degree polewards: the axis's slope, then its length.
    slope = ((1.0 - inside * 2.0) * (4.0 * river.bend) + river.lean) * (cosine / river.reach)
    length = 1.0 / root(slope * slope + 1.0)
    beyond = (s - inside) * (river.reach / river.half_width)
    distance = (longitude - axis) * (cosine / river.half_width) * length
    inverse = 1.0 / (distance * distance + beyond * beyond + 1.0)
    profile = (inverse * inverse - 0.004).clamp(min=0.0)
    moist = profile * (1.0 + canvas.texture[rows, columns] * 0.25)
    along = profile * river.wind
    u, v = along * (slope * length), along * (length * river.hemisphere)
    canvas.add(
        rows,
        columns,
        {
            "TMQ": moist * river.moisture,
            "QREFHT": profile * (1.1e-4 * river.moisture),
            "PRECT": (moist * (inside * 0.7 + 0.3)) * (6.0e-9 * river.moisture),
            "U850": u,
            "V850": v,
            "UBOT": u * 0.7,
            "VBOT": v * 0.7,
            "TREFHT": profile * (0.1 * river.moisture),
            "T500": profile * (0.06 * river.moisture),
            "Z200": profile * (1.2 * river.moisture),
        },
    )
    covered = distance * distance + beyond * beyond <= 1.0
    # Where the axis leans, its ends would be wider than the box.
    covered &= (latitude >= south) & (latitude <= north)
    covered &= (longitude >= west) & (longitude <= east)
    return rows, columns, covered
