"""The weather without its events: 16 channels with seasons, latitudes and noise, in SI units.

Composed on a grid of 192 × 288. Winds follow the pressure (geostrophic, with friction below),
moisture and temperature are carried along by them, so that they form tongues and filaments.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ai500.data.climate.schema import CHANNELS
from ai500.workloads.climate.earth import Earth, earth
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
CARRIED_SECONDS = 110_000.0
CARRYING_STEPS = 4


def bump(x: Tensor, centre: float, width: float) -> Tensor:
    """1 at the centre, 1/4 one width away."""
    t = (x - centre) * (1.0 / width)
    s = 1.0 / (t * t + 1.0)
    return s * s


def background(draws: Draws, *, summer: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Channels [16, 192, 288] and a texture [192, 288]; `summer` is 1 in July, −1 in January."""
    ground = earth(device)
    amplitudes = torch.tensor(list(_SPECTRA.values()), device=device)
    noise = dict(zip(_SPECTRA, smooth(draws, amplitudes), strict=True))
    shifted = ground.latitude - 7.0 * summer
    y = shifted * (1.0 / 90.0)
    cold = (y * y) * (1.6 - 0.6 * (y * y))
    pressure = _pressure(ground, noise["pressure"], summer=summer)
    east, north = _geostrophic(ground, pressure)
    # Land is under high pressure in winter, low in summer; a coast is no front, so after the winds.
    pressure = pressure + ground.land * (ground.latitude * (-8.0 * summer))
    polewards = ground.latitude.abs()
    zonal = bump(polewards, 46.0, 15.0) * 6.0 - bump(polewards, 13.0, 10.0) * 6.5
    u850 = east + zonal + noise["gusts east"] * 2.0
    v850 = north + noise["gusts north"] * 2.0
    moisture = bump(shifted, 0.0, 36.0) * 50.0 + 2.0
    moisture = moisture * (noise["moisture"] * 0.28 + 1.0).clamp(min=0.25)
    warmth = cold * -52.0 + noise["warmth"] * (3.2 * cold + 0.8)
    carried = _carried(ground, torch.stack([moisture, warmth]), u850, v850)
    moisture = carried[0] * (1.0 - 0.22 * ground.land)
    heat = ground.land * (y * summer) * 18.0 - ground.height * 0.0055
    surface = 300.5 + (carried[1] + warmth) * 0.5 + heat + noise["ground"] * (ground.land + 0.35)
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
        "T500": 267.5 + cold * -33.0 + (carried[1] - cold * -52.0) * 0.55 + thick * 0.015,
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
    """Subtropical highs, subpolar lows and travelling waves that winter makes stronger, in Pa."""
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
    """Winds along the isobars, in m/s."""
    padded = torch.cat([pressure[:1], pressure, pressure[-1:]])
    north = (padded[2:] - padded[:-2]) * ground.per_metre_north
    east = (pressure.roll(-1, dims=1) - pressure.roll(1, dims=1)) * ground.per_metre_east
    factor = ground.inverse_coriolis * (1.0 / AIR_DENSITY)
    u, v = north * factor * -1.0, east * factor
    # Real winds stay behind the geostrophic ones where those are strong.
    slowed = 1.0 / ((u * u + v * v) * (1.0 / 1600.0) + 1.0)
    return u * slowed, v * slowed


def _carried(ground: Earth, fields: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """What a field becomes when the winds carry it on (semi-Lagrangian, winds held still)."""
    seconds = CARRIED_SECONDS / CARRYING_STEPS
    steps = torch.stack([v * ground.per_metre_north, u * ground.per_metre_east]) * (2.0 * seconds)
    y = torch.arange(ROWS, device=u.device).float()[:, None].expand(ROWS, COLUMNS)
    x = torch.arange(COLUMNS, device=u.device).float()[None, :].expand(ROWS, COLUMNS)
    for _ in range(CARRYING_STEPS):
        step = sampled(steps, y, x)
        y, x = y - step[0], x - step[1]
    return sampled(fields, y, x)


def _barometric(height: Tensor) -> Tensor:
    """Surface pressure over sea-level pressure, to second order in height."""
    return 1.0 - height * 1.19e-4 + (height * height) * 5.2e-9
