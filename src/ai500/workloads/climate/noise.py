"""Random numbers of a frame, and smooth noise at several scales on the global grid."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROWS, COLUMNS = 192, 288
"""Grid on which weather is composed: 0.94° × 1.25°; frames are interpolated from it."""
LEVELS = 6
COARSEST = (ROWS >> (LEVELS - 1), COLUMNS >> (LEVELS - 1))
_NORMAL = 3**0.5 / 65536  # scales a sum of four 16-bit numbers to variance 1


class Draws:
    """A stream of numbers by (seed, split, frame, purpose); NumPy fixes both algorithms."""

    def __init__(self, *key: int) -> None:
        self._philox = np.random.Philox(np.random.SeedSequence(list(key)))

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw 64-bit words."""
        return self._philox.random_raw(count)

    def between(self, low: float, high: float) -> float:
        """Draw a uniform number in [low, high)."""
        return low + (high - low) * (int(self.words(1)[0] >> np.uint64(11)) * 2.0**-53)

    def below(self, count: int) -> int:
        """Draw an integer from 0 to count − 1."""
        return (int(self.words(1)[0]) >> 32) * count >> 32

    def normals(self, *shape: int) -> NDArray[np.float32]:
        """Draw approximately normal numbers of mean 0 and variance 1."""
        size = int(np.prod(shape))
        parts = self.words(size).astype("<u8").view("<u2").reshape(size, 4).astype(np.int32)
        total = parts[:, 0] + parts[:, 1] + parts[:, 2] + parts[:, 3] - 131_070
        return (total.astype(np.float32) * np.float32(_NORMAL)).reshape(shape)

    def bytes(self, count: int) -> NDArray[np.int8]:
        """Draw uniform integers from −128 to 127."""
        return self.words(-(-count // 8)).astype("<u8").view(np.int8)[:count]


def smooth(draws: Draws, amplitudes: Tensor) -> Tensor:
    """Draw noise fields [K, 192, 288] with `amplitudes` [K, levels], coarsest level first."""
    fields = len(amplitudes)
    rows, columns = COARSEST
    grid = torch.zeros(fields, rows, columns, device=amplitudes.device)
    for level in range(LEVELS):
        if level:
            grid = _finer(grid)
        fresh = torch.from_numpy(draws.normals(fields, rows << level, columns << level))
        grid = grid + fresh.to(grid.device) * amplitudes[:, level, None, None]
    return _softened(grid)


def _finer(grid: Tensor) -> Tensor:
    """Double the resolution by quadratic B-splines (Chaikin); longitude is periodic."""
    south, north = _shifted_rows(grid)
    grid = torch.stack([_weighted(grid, south), _weighted(grid, north)], dim=2).flatten(1, 2)
    west, east = grid.roll(1, dims=2), grid.roll(-1, dims=2)
    return torch.stack([_weighted(grid, west), _weighted(grid, east)], dim=3).flatten(2, 3)


def _softened(grid: Tensor) -> Tensor:
    """Average over neighbours, so that the finest level is no checkerboard."""
    south, north = _shifted_rows(grid)
    grid = grid * 0.5 + (south + north) * 0.25
    return grid * 0.5 + (grid.roll(1, dims=2) + grid.roll(-1, dims=2)) * 0.25


def _weighted(near: Tensor, far: Tensor) -> Tensor:
    return near * 0.75 + far * 0.25


def _shifted_rows(grid: Tensor) -> tuple[Tensor, Tensor]:
    """Shift rows to the south and to the north; the polar rows repeat."""
    south = torch.cat([grid[:, :1], grid[:, :-1]], dim=1)
    north = torch.cat([grid[:, 1:], grid[:, -1:]], dim=1)
    return south, north


def sampled(fields: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Interpolate fields [K, 192, 288] bilinearly at places [192, 288] in grid steps."""
    y = y.clamp(0.0, ROWS - 1.0)
    row, column = y.floor(), x.floor()
    down, right = y - row, x - column
    first = row.long()
    second = (first + 1).clamp(max=ROWS - 1)
    west = column.long().remainder(COLUMNS)
    east = (west + 1).remainder(COLUMNS)
    flat = fields.flatten(1)

    def at(rows: Tensor, columns: Tensor) -> Tensor:
        return flat[:, (rows * COLUMNS + columns).flatten()].view(len(flat), *y.shape)

    near = at(first, west) * (1.0 - right) + at(first, east) * right
    far = at(second, west) * (1.0 - right) + at(second, east) * right
    return near * (1.0 - down) + far * down


def magnified(field: Tensor, *, height: int, width: int) -> Tensor:
    """Enlarge a field [192, 288] to the frame's size by cubic B-splines, without overshoot."""
    rows, row_weights = _taps(height, ROWS, wraps=False, device=field.device)
    columns, column_weights = _taps(width, COLUMNS, wraps=True, device=field.device)
    tall = field[rows[0]] * row_weights[0][:, None]
    for tap in range(1, 4):
        tall = tall + field[rows[tap]] * row_weights[tap][:, None]
    whole = tall.index_select(1, columns[0]) * column_weights[0]
    for tap in range(1, 4):
        whole += tall.index_select(1, columns[tap]) * column_weights[tap]
    return whole


@cache
def _taps(size: int, cells: int, *, wraps: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return, for each of `size` pixels, its four cells and their weights."""
    place = (np.arange(size) + 0.5) * (cells / size) - 0.5
    first = np.floor(place)
    t = place - first
    index = np.stack([first + tap for tap in (-1, 0, 1, 2)]).astype(np.int64)
    index = index % cells if wraps else index.clip(0, cells - 1)
    weights = np.stack(
        [
            (1 - t) * (1 - t) * (1 - t) / 6,
            (4 - 6 * t * t + 3 * t * t * t) / 6,
            (1 + 3 * t + 3 * t * t - 3 * t * t * t) / 6,
            t * t * t / 6,
        ]
    )
    return (
        torch.from_numpy(index).to(device),
        torch.from_numpy(weights.astype(np.float32)).to(device),
    )
