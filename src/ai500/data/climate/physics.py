"""Physical plausibility of climate frames: units, ranges, fill values, constant channels.

Values are in SI units, as the simulation (CAM5) writes them. A row of a frame is a latitude, from
south to north; a column is a longitude, eastwards from 0°.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ai500.data.climate.schema import CHANNELS, Frames
from ai500.data.store import Problem

FILL_MAGNITUDE = 1e19
"""Least magnitude of fill values such as 1e20 and netCDF's 9.96921e36."""
FILL_VALUES = (-9999.0, -99999.0)
# Frames are compared by every eighth row: the whole would take as long as reading it.
ROW_STEP = 8


@dataclass(frozen=True)
class Quantity:
    """The meaning of a channel, and the range that its values cannot leave."""

    meaning: str
    unit: str
    low: float
    high: float
    other_units: tuple[tuple[str, float, float], ...] = ()
    """Units that files have by mistake, with the factor and the offset to the channel's own."""

    def holds(self, low: float, high: float) -> bool:
        """Return True where a range of values is possible."""
        return self.low <= low and high <= self.high

    def likely_unit(self, low: float, high: float) -> str | None:
        """Return another unit in which a range of values would be possible."""
        for unit, factor, offset in self.other_units:
            if self.holds(low * factor + offset, high * factor + offset):
                return unit
        return None


_PRESSURE = (("hPa", 100.0, 0.0), ("kPa", 1000.0, 0.0))
_CELSIUS = (("°C", 1.0, 273.15),)
_GEOPOTENTIAL = (("m²/s²", 1 / 9.80665, 0.0), ("dam", 10.0, 0.0), ("km", 1000.0, 0.0))
_RAIN = (("mm/s", 1e-3, 0.0), ("mm/h", 1 / 3.6e6, 0.0), ("mm/day", 1 / 8.64e7, 0.0))
_WIND = (("km/h", 1 / 3.6, 0.0),)
QUANTITIES = {
    # Interpolation in the simulation's output leaves rates and humidities slightly below 0.
    "PRECT": Quantity("precipitation rate", "m/s", -1e-6, 2e-4, _RAIN),
    "PS": Quantity("pressure at the surface", "Pa", 4e4, 1.1e5, _PRESSURE),
    "PSL": Quantity("pressure at sea level", "Pa", 8.5e4, 1.1e5, _PRESSURE),
    "QREFHT": Quantity("specific humidity at 2 m", "kg/kg", -1e-3, 0.05, (("g/kg", 1e-3, 0.0),)),
    "T200": Quantity("temperature at 200 hPa", "K", 160, 270, _CELSIUS),
    "T500": Quantity("temperature at 500 hPa", "K", 180, 310, _CELSIUS),
    "TMQ": Quantity("column water vapour", "kg/m²", -1, 150, ()),
    "TREFHT": Quantity("temperature at 2 m", "K", 160, 350, _CELSIUS),
    "TS": Quantity("temperature of the surface", "K", 150, 370, _CELSIUS),
    "U850": Quantity("eastward wind at 850 hPa", "m/s", -150, 150, _WIND),
    "UBOT": Quantity("eastward wind at the lowest level", "m/s", -150, 150, _WIND),
    "V850": Quantity("northward wind at 850 hPa", "m/s", -150, 150, _WIND),
    "VBOT": Quantity("northward wind at the lowest level", "m/s", -150, 150, _WIND),
    "Z1000": Quantity("height of 1000 hPa", "m", -2000, 1500, _GEOPOTENTIAL),
    "Z200": Quantity("height of 200 hPa", "m", 8000, 14000, _GEOPOTENTIAL),
    "ZBOT": Quantity("height of the lowest level", "m", 0, 500, _GEOPOTENTIAL),
}
"""Wide on purpose: what lies outside has another unit, is another channel, or is damaged."""


class Tally:
    """Collects the extremes of each frame's channels; threads may add parts in any order."""

    def __init__(self, file: str, *, count: int, height: int, width: int) -> None:
        self.file, self.count, self.height, self.width = file, count, height, width
        shape = (count, len(CHANNELS))
        self._lock = threading.Lock()
        self._low = np.full(shape, np.inf)
        self._high = np.full(shape, -np.inf)
        self._not_finite = np.zeros(shape, np.int64)
        self._fills = np.zeros(shape, np.int64)
        self._fill_values: dict[int, float] = {}
        self._prints = np.zeros(shape, np.uint64)

    def add(self, values: Frames, *, corner: Sequence[int] = (0, 0, 0, 0)) -> None:
        """Add values [frames, channels, rows, columns] that begin at a corner of the year."""
        first_frame, first_channel, top, left = corner
        for frame, fields in enumerate(values, first_frame):
            for channel, field in enumerate(fields, first_channel):
                if frame < self.count and channel < len(CHANNELS):
                    inside = field[: self.height - top, : self.width - left]
                    self._add_field(frame, channel, inside, top, left)

    def _add_field(
        self, frame: int, channel: int, field: NDArray[np.float32], top: int, left: int
    ) -> None:
        low, high = float(field.min()), float(field.max())
        not_finite = fills = 0
        fill_value = 0.0
        # The common case needs two passes; NaN fails every comparison.
        if not (max(FILL_VALUES) < low and high < FILL_MAGNITUDE):
            finite = np.isfinite(field)
            filled = finite & ((np.abs(field) >= FILL_MAGNITUDE) | np.isin(field, FILL_VALUES))
            not_finite, fills = int((~finite).sum()), int(filled.sum())
            fill_value = float(field[filled][0]) if fills else 0.0
            rest = field[finite & ~filled]
            low = float(rest.min(initial=np.inf))
            high = float(rest.max(initial=-np.inf))
        mark = fingerprint(field, top=top, left=left, width=self.width)
        with self._lock:
            self._low[frame, channel] = min(low, self._low[frame, channel])
            self._high[frame, channel] = max(high, self._high[frame, channel])
            self._not_finite[frame, channel] += not_finite
            self._fills[frame, channel] += fills
            if fills:
                self._fill_values.setdefault(channel, fill_value)
            # Of an array, not of a number: only the sums of arrays wrap around without a warning.
            self._prints[frame, channel : channel + 1] += mark

    def add_unwritten(self, corner: Sequence[int], shape: Sequence[int], value: float) -> None:
        """Add a chunk that was never written: all its values are the fill value of the file."""
        cells = np.s_[corner[0] : corner[0] + shape[0], corner[1] : corner[1] + shape[1]]
        rows = min(shape[2], self.height - corner[2])
        columns = min(shape[3], self.width - corner[3])
        with self._lock:
            if not np.isfinite(value):
                self._not_finite[cells] += rows * columns
            elif abs(value) >= FILL_MAGNITUDE or value in FILL_VALUES:
                self._fills[cells] += rows * columns
                for channel in range(corner[1], min(len(CHANNELS), corner[1] + shape[1])):
                    self._fill_values.setdefault(channel, value)
            else:
                self._low[cells] = np.minimum(self._low[cells], value)
                self._high[cells] = np.maximum(self._high[cells], value)

    def duplicates(self, earlier: Sequence[Tally]) -> Iterator[Problem]:
        """Yield the frames that an earlier frame, of this file or another, equals."""
        known = {
            key: f"frame {frame} of {tally.file}"
            for tally in earlier
            for frame, key in tally._keys()
        }
        for frame, key in self._keys():
            if key in known:
                yield Problem(self.file, frame, f"is the same as {known[key]}")
            known.setdefault(key, f"frame {frame}")

    def _keys(self) -> Iterator[tuple[int, bytes]]:
        """Yield a key of every frame whose channels are not all constant."""
        for frame in np.flatnonzero((self._low < self._high).any(axis=1)).tolist():
            yield frame, self._prints[frame].tobytes()

    def problems(self) -> Iterator[Problem]:
        """Yield what is not possible: NaN by frame, the rest once for each channel."""
        for frame, channel in np.argwhere(self._not_finite).tolist():
            count = int(self._not_finite[frame, channel])
            values = "value is" if count == 1 else "values are"
            text = f"{CHANNELS[channel]}: {count} {values} NaN or infinite"
            yield Problem(self.file, frame, text)
        for channel, name in enumerate(CHANNELS):
            yield from self._fill_problem(channel, name)
            constant = self._low[:, channel] == self._high[:, channel]
            if constant.any():
                frames = np.flatnonzero(constant)
                value = self._low[frames[0], channel]
                text = f"{name}: constant ({value:g}){_more(len(frames))}"
                yield Problem(self.file, int(frames[0]), text)
            yield from self._range_problem(channel, name, ~constant)

    def _fill_problem(self, channel: int, name: str) -> Iterator[Problem]:
        frames = np.flatnonzero(self._fills[:, channel])
        if frames.size:
            count = int(self._fills[frames[0], channel])
            values = "value is" if count == 1 else "values are"
            text = f"{name}: {count} {values} {self._fill_values[channel]:g}, a fill value"
            yield Problem(self.file, int(frames[0]), text + _more(len(frames)))

    def _range_problem(
        self, channel: int, name: str, chosen: NDArray[np.bool_]
    ) -> Iterator[Problem]:
        low = float(self._low[chosen, channel].min(initial=np.inf))
        high = float(self._high[chosen, channel].max(initial=-np.inf))
        quantity = QUANTITIES[name]
        if low > high or quantity.holds(low, high):
            return
        unit = quantity.likely_unit(low, high)
        like = f"; they look like {unit}" if unit else ""
        yield Problem(
            self.file,
            -1,
            f"{name}: values from {low:g} to {high:g}; {quantity.meaning} is {quantity.low:g} to "
            f"{quantity.high:g} {quantity.unit}{like}",
        )


def impossible(tallies: Sequence[Tally]) -> Iterator[Problem]:
    """Yield what is not possible in any of the files, and frames that occur twice."""
    for number, tally in enumerate(tallies):
        yield from tally.problems()
        yield from tally.duplicates(tallies[:number])


def _more(frames: int) -> str:
    return f" (and in {frames - 1} more frames)" if frames > 1 else ""


@lru_cache(maxsize=4)
def _weights(width: int) -> NDArray[np.uint64]:
    """Return an odd number for each place in a block of rows, which their sum tells apart."""
    generator = np.random.Generator(np.random.Philox(key=width))
    numbers = generator.integers(0, 2**64, (64, width), dtype=np.uint64)
    return numbers | np.uint64(1)


def fingerprint(
    field: NDArray[np.float32], *, top: int = 0, left: int = 0, width: int
) -> np.uint64:
    """Return a number of a part of a field; the numbers of all its parts add up to the field's.

    The sum depends neither on how a file is cut into chunks nor on the order of the parts.
    """
    skipped = -top % ROW_STEP
    bits = np.ascontiguousarray(field[skipped::ROW_STEP], np.float32).view(np.uint32)
    rows = (top + skipped) // ROW_STEP + np.arange(len(bits))
    weights = _weights(width)[rows % 64, left : left + bits.shape[1]]
    # A factor for each block of 64 rows, so that the same weights at other rows count otherwise.
    factors = (2 * (rows // 64) + 1).astype(np.uint64)[:, None]
    with np.errstate(over="ignore"):
        total: np.uint64 = (bits.astype(np.uint64) * (weights * factors)).sum(dtype=np.uint64)
    return total
