"""The fixed Earth: latitudes, Coriolis parameter, a stylised land mask and mountains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.workloads.climate.noise import COLUMNS, ROWS, Draws, smooth

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
    """By Taylor series for |degrees| ≤ 90: the machine's own may differ in the last bit."""
    x = degrees * 0.017453292519943295
    square = x * x
    sine, cosine, term = np.zeros_like(x), np.zeros_like(x), np.ones_like(x)
    for order in range(0, 22, 2):
        cosine = cosine + term
        sine = sine + term * x / (order + 1)
        term = -term * square / ((order + 1) * (order + 2))
    return sine, cosine


def cosine_of(degrees: float) -> float:
    """Of one latitude."""
    return float(sine_and_cosine(np.array([degrees]))[1][0])


@dataclass(frozen=True)
class Earth:
    """Columns [192, 1] by latitude from south to north, and fields [192, 288]."""

    latitude: Tensor
    per_metre_north: Tensor
    per_metre_east: Tensor
    """Reciprocals of two grid steps; the eastern one is bounded near the poles."""
    inverse_coriolis: Tensor
    """1/f, tamed near the equator."""
    land: Tensor
    """From 0 at sea to 1 on land, soft at the coast."""
    height: Tensor
    """Of the ground, in metres."""


@cache
def earth(device: torch.device) -> Earth:
    """The same for every seed."""
    latitude = (np.arange(ROWS, dtype=np.float64) + 0.5) * (180 / ROWS) - 90
    sine, cosine = sine_and_cosine(latitude)
    coriolis = TWICE_ROTATION * sine
    tame = TWICE_ROTATION * 0.2
    step_north = 2 * METRES_A_DEGREE * (180 / ROWS)
    step_east = 2 * METRES_A_DEGREE * (360 / COLUMNS) * np.maximum(cosine, 0.3)
    land, height = _land(latitude)

    def column(values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values.astype(np.float32))[:, None].to(device)

    return Earth(
        latitude=column(latitude),
        per_metre_north=column(np.full(ROWS, 1 / step_north)),
        per_metre_east=column(1 / step_east),
        inverse_coriolis=column(coriolis / (coriolis * coriolis + tame * tame)),
        land=land.to(device),
        height=height.to(device),
    )


def _land(latitude: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """Ellipses with ragged coasts, and Antarctica."""
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
    """Whether a place in degrees lies on land."""
    land = earth(torch.device("cpu")).land
    row = min(ROWS - 1, max(0, int((latitude + 90) * (ROWS / 180))))
    return bool(land[row, int(longitude * (COLUMNS / 360)) % COLUMNS] > 0.5)
