"""The weather without its events: 16 channels with seasons, latitudes and noise, in SI units.

Composed on a grid of 192 × 288 over a fixed, stylised Earth. Winds follow the pressure
(geostrophic, with friction near the ground) and advect moisture and temperature, which form tongues
and filaments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.data.climate.schema import CHANNELS
from ai500.workloads.climate.noise import COLUMNS, ROWS, Draws, sampled, smooth

# Amplitudes of six scales, from 30° × 40° down to 0.94° × 1.25°.
_SPECTRA = {
    "pressure": (0.9, 1.5, 1.1, 0.35, 0.08, 0.02),
    "aloft": (1.2, 1.2, 0.6, 0.2, 0.06, 0.02),
    "warmth": (0.8, 1.0, 0.8, 0.4, 0.2, 0.1),
    "moisture": (0.4, 0.9, 1.1, 0.8, 0.5, 0.3),
    "rain": (0.0, 0.4, 0.8, 1.0, 1.0, 0.9),
    "gusts east": (0.2, 0.4, 0.6, 0.5, 0.4, 0.3),
    "gusts north": (0.2, 0.4, 0.6, 0.5, 0.4, 0.3),
    "ground": (0.3, 0.4, 0.5, 0.5, 0.5, 0.5),
    "texture": (0.0, 0.0, 0.3, 0.7, 0.9, 0.9),
}
AIR_DENSITY = 1.15  # kg/m³, near the surface
ADVECTION_SECONDS = 110_000.0
ADVECTION_STEPS = 4
METRES_A_DEGREE = 111_195.0
TWICE_ROTATION = 1.4584e-4

# Latitude, longitude, half height and half width in degrees, and height of the mountains in metres.
_CONTINENTS = (
    (48, 258, 22, 34, 1100),  # North America
    (28, 258, 14, 13, 900),
    (68, 262, 10, 45, 300),
    (73, 320, 10, 15, 2300),  # Greenland
    (-6, 298, 16, 18, 600),  # South America
    (-32, 293, 22, 9, 1300),
    (14, 10, 17, 24, 500),  # Africa
    (-10, 25, 24, 13, 900),
    (50, 20, 10, 24, 400),  # Europe
    (58, 85, 18, 58, 500),  # Asia
    (36, 90, 13, 36, 3600),
    (20, 78, 14, 9, 500),
    (20, 103, 12, 9, 600),
    (64, 145, 12, 38, 700),
    (-25, 134, 11, 18, 300),  # Australia
)


def sine_and_cosine(degrees: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Compute sine and cosine for |degrees| ≤ 90."""
    # By Taylor series: the platform's functions may differ in the last bit.
    x = degrees * 0.017453292519943295
    square = x * x
    sine, cosine, term = np.zeros_like(x), np.zeros_like(x), np.ones_like(x)
    for order in range(0, 22, 2):
        cosine = cosine + term
        sine = sine + term * x / (order + 1)
        term = -term * square / ((order + 1) * (order + 2))
    return sine, cosine


def cosine_of(degrees: float) -> float:
    """Compute the cosine of one latitude."""
    return float(sine_and_cosine(np.array([degrees]))[1][0])


@dataclass(frozen=True)
class Earth:
    """Columns [192, 1] by latitude from south to north, and fields [192, 288]."""

    latitude: Tensor
    """Latitude in degrees."""
    per_metre_north: Tensor
    """Reciprocal of two grid steps northwards."""
    per_metre_east: Tensor
    """Reciprocal of two grid steps eastwards, bounded near the poles."""
    inverse_coriolis: Tensor
    """1/f, regularized near the equator."""
    land: Tensor
    """0 at sea to 1 on land, soft at the coast."""
    height: Tensor
    """Height of the ground in metres."""


@cache
def earth(device: torch.device) -> Earth:
    """Build the Earth, the same for every seed."""
    latitude = (np.arange(ROWS, dtype=np.float64) + 0.5) * (180 / ROWS) - 90
    sine, cosine = sine_and_cosine(latitude)
    coriolis = TWICE_ROTATION * sine
    floor = TWICE_ROTATION * 0.2
    step_north = 2 * METRES_A_DEGREE * (180 / ROWS)
    step_east = 2 * METRES_A_DEGREE * (360 / COLUMNS) * np.maximum(cosine, 0.3)
    land, height = _land(latitude)

    def column(values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values.astype(np.float32))[:, None].to(device)

    return Earth(
        latitude=column(latitude),
        per_metre_north=column(np.full(ROWS, 1 / step_north)),
        per_metre_east=column(1 / step_east),
        inverse_coriolis=column(coriolis / (coriolis * coriolis + floor * floor)),
        land=land.to(device),
        height=height.to(device),
    )


def _land(latitude: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """Build the land mask and heights: ellipses with ragged coasts, and Antarctica."""
    longitude = (np.arange(COLUMNS) + 0.5) * (360 / COLUMNS)
    noise = smooth(
        Draws(1979, 7),
        torch.tensor([[0.0, 0.1, 0.3, 0.4, 0.3, 0.2], [0.0, 0.3, 0.5, 0.5, 0.4, 0.4]]),
    )
    ragged = noise.double().numpy()
    inside = np.repeat((-68 - latitude)[:, None] / 9, COLUMNS, axis=1)
    height = 2600 * np.clip((-70 - latitude)[:, None] / 12, 0, 1) * np.ones((1, COLUMNS))
    for centre, middle, tall, wide, mountains in _CONTINENTS:
        east = np.abs(longitude - middle)
        east = np.minimum(east, 360 - east) / wide
        north = (latitude - centre) / tall
        within = 1 - north[:, None] * north[:, None] - east[None, :] * east[None, :]
        inside = np.maximum(inside, within)
        height = np.maximum(height, mountains * np.clip(within, 0, 1))
    land = np.clip((inside + 0.55 * ragged[0]) * 3 + 0.5, 0, 1)
    height = height * land * np.clip(1 + 0.7 * ragged[1], 0.1, 1.3)
    return torch.from_numpy(land.astype(np.float32)), torch.from_numpy(height.astype(np.float32))


def is_land(latitude: float, longitude: float) -> bool:
    """Return True where a place in degrees lies on land."""
    land = earth(torch.device("cpu")).land
    row = min(ROWS - 1, max(0, int((latitude + 90) * (ROWS / 180))))
    return bool(land[row, int(longitude * (COLUMNS / 360)) % COLUMNS] > 0.5)


def bump(x: Tensor, centre: float, width: float) -> Tensor:
    """Evaluate a bump: 1 at the centre, 1/4 one width away."""
    t = (x - centre) * (1.0 / width)
    s = 1.0 / (t * t + 1.0)
    return s * s


def background(draws: Draws, *, summer: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Compose channels [16, 192, 288] and a texture [192, 288].

    `summer` is 1 in July, −1 in January.
    """
    ground = earth(device)
    amplitudes = torch.tensor(list(_SPECTRA.values()), device=device)
    noise = dict(zip(_SPECTRA, smooth(draws, amplitudes), strict=True))
    shifted = ground.latitude - 7.0 * summer
    y = shifted * (1.0 / 90.0)
    cold = (y * y) * (1.6 - 0.6 * (y * y))
    pressure = _pressure(ground, noise["pressure"], summer=summer)
    east, north = _geostrophic(ground, pressure)
    # Land has high pressure in winter, low in summer; added after the winds: a coast is no front.
    pressure = pressure + ground.land * (ground.latitude * (-8.0 * summer))
    polewards = ground.latitude.abs()
    zonal = bump(polewards, 46.0, 15.0) * 6.0 - bump(polewards, 13.0, 10.0) * 6.5
    u850 = east + zonal + noise["gusts east"] * 2.0
    v850 = north + noise["gusts north"] * 2.0
    moisture = bump(shifted, 0.0, 36.0) * 50.0 + 2.0
    moisture = moisture * (noise["moisture"] * 0.28 + 1.0).clamp(min=0.25)
    warmth = cold * -52.0 + noise["warmth"] * (3.2 * cold + 0.8)
    advected = _advected(ground, torch.stack([moisture, warmth]), u850, v850)
    moisture = advected[0] * (1.0 - 0.22 * ground.land)
    heat = ground.land * (y * summer) * 18.0 - ground.height * 0.0055
    surface = 300.5 + (advected[1] + warmth) * 0.5 + heat + noise["ground"] * (ground.land + 0.35)
    wet = moisture * (1.0 / 50.0)
    rising = (noise["rain"] * 0.8 + wet * 1.1 - 0.75 + noise["moisture"] * 0.35).clamp(min=0.0)
    friction = 0.72 - 0.22 * ground.land
    turn = ground.latitude * (1.0 / 90.0)
    z1000 = (pressure - 100_000.0) * (1.0 / (AIR_DENSITY * 9.81))
    thick = noise["aloft"] * (70.0 * cold + 18.0)
    channels = {
        "PRECT": (rising * rising) * (wet + 0.15) * 2.2e-7,
        "PS": pressure * _barometric(ground.height),
        "PSL": pressure,
        "QREFHT": wet * 0.0178 / (wet * 0.62 + 0.38) * (1.0 - 0.12 * ground.land),
        "T200": 219.0 + cold * (2.0 + 5.0 * summer * y) - thick * 0.02 + noise["warmth"] * 0.8,
        "T500": 267.5 + cold * -33.0 + (advected[1] - cold * -52.0) * 0.55 + thick * 0.015,
        "TMQ": moisture,
        "TREFHT": surface,
        "TS": surface + 0.7 + ground.land * (noise["ground"] * 2.2) + heat * 0.08,
        "U850": u850,
        "UBOT": (u850 - v850 * turn * 0.5) * friction,
        "V850": v850,
        "VBOT": (v850 + u850 * turn * 0.5) * friction,
        "Z1000": z1000,
        "Z200": 12_430.0 + cold * -1_350.0 + z1000 * 0.8 + thick * 1.6,
        "ZBOT": surface * 0.2195 + noise["gusts east"] * 0.12,
    }
    return torch.stack([channels[name] for name in CHANNELS]), noise["texture"]


def _pressure(ground: Earth, noise: Tensor, *, summer: float) -> Tensor:
    """Compose subtropical highs, subpolar lows and waves stronger in winter, in Pa."""
    polewards = ground.latitude.abs()
    south = (ground.latitude < 0.0).float()
    winter = 1.0 + ground.latitude * (1.0 / 90.0) * (-0.3 * summer)
    mean = (
        101_000.0
        + bump(polewards, 32.0, 12.0) * 1_050.0
        - bump(polewards, 63.0, 13.0) * (1_000.0 + south * 1_500.0)
    )
    waves = (bump(polewards, 52.0, 26.0) * 620.0 + 120.0) * winter
    return mean + noise * waves


def _geostrophic(ground: Earth, pressure: Tensor) -> tuple[Tensor, Tensor]:
    """Compute winds along the isobars, in m/s."""
    padded = torch.cat([pressure[:1], pressure, pressure[-1:]])
    north = (padded[2:] - padded[:-2]) * ground.per_metre_north
    east = (pressure.roll(-1, dims=1) - pressure.roll(1, dims=1)) * ground.per_metre_east
    factor = ground.inverse_coriolis * (1.0 / AIR_DENSITY)
    u, v = north * factor * -1.0, east * factor
    # Real winds are slower than geostrophic ones where those are strong.
    slowed = 1.0 / ((u * u + v * v) * (1.0 / 1600.0) + 1.0)
    return u * slowed, v * slowed


def _advected(ground: Earth, fields: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Advect fields by constant winds (semi-Lagrangian)."""
    seconds = ADVECTION_SECONDS / ADVECTION_STEPS
    steps = torch.stack([v * ground.per_metre_north, u * ground.per_metre_east]) * (2.0 * seconds)
    y = torch.arange(ROWS, device=u.device).float()[:, None].expand(ROWS, COLUMNS)
    x = torch.arange(COLUMNS, device=u.device).float()[None, :].expand(ROWS, COLUMNS)
    for _ in range(ADVECTION_STEPS):
        step = sampled(steps, y, x)
        y, x = y - step[0], x - step[1]
    return sampled(fields, y, x)


def _barometric(height: Tensor) -> Tensor:
    """Compute surface pressure over sea-level pressure, to second order in height."""
    return 1.0 - height * 1.19e-4 + (height * height) * 5.2e-9
