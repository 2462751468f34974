"""The learnable images of classes `smoke` and `workstation`: the same bytes on every machine.

A class is one outline (disc, square, …) filled with one pattern (bars, checks, …). Position, size,
tilt, colours, pattern phase and shading change from image to image; smaller figures lie beneath
it, a strip covers a part of it and noise covers everything. The background and the smaller figures
use the same outlines and patterns, so only both together in the large figure give the label.
Labels are exact in both splits: nuisance makes it hard, not mislabelling.

Integer arithmetic only. Every number is a hash of (seed, split, image, slot), so an image depends
neither on its neighbours nor on the platform's random numbers, mathematical library or rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.core.randomness import hashes, mix
from ai500.data.generated import Generated
from ai500.data.store import Arrays
from ai500.records.fields import Field, image_fields

Words = NDArray[np.uint64]
Integers = NDArray[np.int32]
Mask = NDArray[np.bool_]

SPLITS = ("train", "validation")
RADIUS = 64  # of every figure, in the units of its own frame
SUBPIXELS = 16  # positions and sizes are in sixteenths of a pixel
PIXELS_PER_BLOCK = 1 << 16  # painted at once: small enough for a core's own cache


class _Draws:
    """Integers of one block of images, slot after slot; each image has its own stream."""

    def __init__(self, keys: Words) -> None:
        self.keys = keys
        self.slot = 0

    def between(self, *ranges: tuple[int, int]) -> Integers:
        """Draw a column per range, uniform over it, both ends included: [images, ranges]."""
        slots = np.arange(self.slot, self.slot + len(ranges), dtype=np.uint64)
        self.slot += len(ranges)
        low = np.array([low for low, _ in ranges], np.int32)
        size = np.array([high - low + 1 for low, high in ranges], np.uint64)
        words = hashes(self.keys, slots) >> np.uint64(32)
        return ((words * size) >> np.uint64(32)).astype(np.int32) + low


def _roundness(u: Integers, v: Integers) -> Integers:
    return u * u + v * v


def _mushroom(u: Integers, v: Integers) -> Mask:
    cap = (v < 4) & (_roundness(u, v) < 60 * 60)
    stem = (v > -60) & (v < 58) & (np.abs(u) < 20)
    return cap | stem


# Each outline is symmetric in u, so that a mirrored image keeps its label.
OUTLINES: tuple[tuple[str, Callable[[Integers, Integers], Mask]], ...] = (
    ("disc", lambda u, v: _roundness(u, v) < 58 * 58),
    ("square", lambda u, v: np.maximum(np.abs(u), np.abs(v)) < 51),
    ("triangle", lambda u, v: (v < 48) & (2 * np.abs(u) - v < 66)),
    ("plus", lambda u, v: (np.minimum(np.abs(u), np.abs(v)) < 22) & (_roundness(u, v) < 64 * 64)),
    ("hourglass", lambda u, v: (np.abs(u) < np.abs(v) + 8) & (np.abs(v) < 54)),
    ("diamond", lambda u, v: np.abs(u) + np.abs(v) < 70),
    ("ring", lambda u, v: np.abs(_roundness(u, v) - 2450) < 1350),
    ("crescent", lambda u, v: (_roundness(u, v) < 62 * 62) & (_roundness(u, v + 36) > 44 * 44)),
    ("mushroom", _mushroom),
    ("arrow", lambda u, v: (v < 60) & (np.abs(u) < np.where(v < 0, v + 62, 22))),
)


@dataclass(frozen=True, slots=True)
class _Weave:
    """Position of each pixel in its figure, and the number of its half period."""

    u: Integers
    v: Integers
    column: Integers
    row: Integers
    rate: Integers

    def stripes(self, height: Integers) -> Mask:
        return (((height * self.rate) >> 12) & 1).astype(np.bool_)


# Each pattern is symmetric in u, but for which of its two colours is which.
PATTERNS: tuple[tuple[str, Callable[[_Weave], Mask]], ...] = (
    ("bars", lambda weave: (weave.column & 1).astype(np.bool_)),
    ("rungs", lambda weave: (weave.row & 1).astype(np.bool_)),
    ("checks", lambda weave: ((weave.column ^ weave.row) & 1).astype(np.bool_)),
    ("rings", lambda weave: weave.stripes(np.maximum(np.abs(weave.u), np.abs(weave.v)))),
    ("chevrons", lambda weave: weave.stripes(weave.v + np.abs(weave.u))),
    ("dots", lambda weave: (weave.column & weave.row & 1).astype(np.bool_)),
    ("quarters", lambda weave: (weave.u ^ weave.v) < 0),
    ("halves", lambda weave: weave.v < 0),
    ("lozenges", lambda weave: weave.stripes(np.abs(weave.u) + np.abs(weave.v))),
    ("plain", lambda weave: np.zeros(weave.u.shape, np.bool_)),
)


@dataclass(frozen=True, slots=True)
class _Figures:
    """One figure for each image of a block; every field has shape [images, 1]."""

    outline: Integers
    pattern: Integers
    x: Integers
    y: Integers
    radius: Integers
    tilt: Integers
    phase_u: Integers
    phase_v: Integers
    half_period: Integers

    def frame(self, *, height: int, width: int) -> tuple[Integers, Integers]:
        """Compute pixel centres in the figures' frames, each of shape [images, height, width]."""
        # With t = tilt / 64, (1 − t²) / (1 + t²) and 2t / (1 + t²) are the cosine and the sine.
        square = self.tilt * self.tilt
        cosine = (256 * (4096 - square)) // (4096 + square)
        sine = (256 * 128 * self.tilt) // (4096 + square)
        across = (cosine * 1024) // self.radius
        down = (sine * 1024) // self.radius
        x = np.arange(width, dtype=np.int32)[None, :] * SUBPIXELS + SUBPIXELS // 2 - self.x
        y = np.arange(height, dtype=np.int32)[None, :] * SUBPIXELS + SUBPIXELS // 2 - self.y
        u = ((x * across)[:, None, :] + (y * down)[:, :, None]) >> 12
        v = ((y * across)[:, :, None] - (x * down)[:, None, :]) >> 12
        return u, v

    def weave(self, u: Integers, v: Integers) -> Mask:
        """Return True where a pixel of the figure has the second colour."""
        rate = (4096 // self.half_period)[:, :, None]
        column = ((u + self.phase_u[:, :, None]) * rate) >> 12
        row = ((v + self.phase_v[:, :, None]) * rate) >> 12
        second = np.empty(u.shape, np.bool_)
        for kind in np.unique(self.pattern):
            at = np.flatnonzero(self.pattern[:, 0] == kind)
            second[at] = PATTERNS[kind][1](_Weave(u[at], v[at], column[at], row[at], rate[at]))
        return second

    def cover(self, u: Integers, v: Integers) -> Mask:
        """Return True for the pixels inside the figure."""
        inside = np.empty(u.shape, np.bool_)
        for kind in np.unique(self.outline):
            at = np.flatnonzero(self.outline[:, 0] == kind)
            inside[at] = OUTLINES[kind][1](u[at], v[at])
        return inside


@dataclass(frozen=True, slots=True)
class LearnableImages(Generated):
    """A set of images made from its seed; an image is a pure function of (split, index)."""

    seed: int
    height: int
    width: int
    outlines: int
    patterns: int
    train: int
    validation: int
    tilt: int
    """Largest rotation of the labelled figure: 2 · arctan(tilt / 64) either way."""
    distractors: int
    contrast: int
    """Least difference of the labelled figure's two colours in each channel."""
    clutter: int
    """Largest difference of the two colours of the background and of the other figures."""
    noise: int
    """Largest noise of a pixel, in grey levels either way."""

    @property
    def classes(self) -> int:
        return self.outlines * self.patterns

    def name(self, label: int) -> str:
        """Return a readable name of a class, such as "checks disc"."""
        outline, pattern = divmod(label, self.patterns)
        return f"{PATTERNS[pattern][0]} {OUTLINES[outline][0]}"

    def count(self, split: str) -> int:
        """Return the number of images in a split."""
        if split not in SPLITS:
            raise DataError(
                f"no split {split!r} in the learnable images.",
                key="split",
                value=split,
                remedy=f"Use one of {SPLITS}.",
            )
        return self.train if split == "train" else self.validation

    @property
    def fields(self) -> tuple[Field, ...]:
        """`images` [height, width, 3] and `labels`."""
        return image_fields(self.height, self.width, classes=self.classes)

    def draw(self, split: str, first: int, last: int) -> Arrays:
        """Draw images [last − first, height, width, 3] and labels, independent of chunking."""
        count = self.count(split)
        if not 0 <= first <= last <= count:
            raise DataError(
                f"images {first} to {last} of {split} asked for; it has 0 to {count}.",
                key=split,
                value=(first, last),
            )
        images = np.empty((last - first, self.height, self.width, 3), np.uint8)
        labels = self.labels(split, first, last)
        block = max(1, PIXELS_PER_BLOCK // (self.height * self.width))
        keys = self._keys(split, np.arange(first, last, dtype=np.uint64))
        for start in range(0, last - first, block):
            rows = slice(start, start + block)
            images[rows] = self._paint(keys[rows], labels[rows])
        return {"images": images, "labels": labels}

    def labels(self, split: str, first: int, last: int) -> NDArray[np.int64]:
        """Return labels: every `classes` consecutive images have each label once."""
        index = np.arange(first, last, dtype=np.uint64)
        classes = np.uint64(self.classes)
        start = self._keys(split, (index // classes) + np.uint64(1 << 40))
        return ((index + start % classes) % classes).astype(np.int64)

    def _keys(self, split: str, index: Words) -> Words:
        stream = np.array([self.seed * len(SPLITS) + SPLITS.index(split)], np.uint64)
        keys: Words = hashes(mix(stream), index)[0]
        return keys

    def _paint(self, keys: Words, labels: NDArray[np.int64]) -> NDArray[np.uint8]:
        draws = _Draws(keys)
        background, distractor = (64, 140), (28, 56)
        figures = [
            self._figures(draws, radius=radius, tilt=64)
            for radius in (background, *[distractor] * self.distractors)
        ]
        figures.append(self._labelled(draws, labels))
        layer = np.empty((len(keys), self.height, self.width), np.uint8)
        for depth, figure in enumerate(figures):
            u, v = figure.frame(height=self.height, width=self.width)
            colour = figure.weave(u, v).view(np.uint8) + np.uint8(2 * depth)
            if depth == 0:
                layer[:] = colour
            else:
                np.copyto(layer, colour, where=figure.cover(u, v))
        layer[self._strip(draws)] = 2 * len(figures)
        palette = self._palette(draws, figures=len(figures) + 1)
        return self._expose(draws, palette, layer)

    def _figures(self, draws: _Draws, *, radius: tuple[int, int], tilt: int) -> _Figures:
        """Draw random figures; a radius is in 256ths of the image's height."""
        height, width = self.height * SUBPIXELS, self.width * SUBPIXELS
        columns = draws.between(
            (0, self.outlines - 1),
            (0, self.patterns - 1),
            (0, width),
            (0, height),
            (height * radius[0] // 256, height * radius[1] // 256),
            (-tilt, tilt),
            (0, RADIUS),
            (0, RADIUS),
            (14, 24),
        )
        return _Figures(*(columns[:, [column]] for column in range(columns.shape[1])))

    def _labelled(self, draws: _Draws, labels: NDArray[np.int64]) -> _Figures:
        drawn = self._figures(draws, radius=(72, 112), tilt=self.tilt)
        kind = labels.astype(np.int32)[:, None]
        return replace(
            drawn,
            outline=kind // self.patterns,
            pattern=kind % self.patterns,
            x=_inside(drawn.x, drawn.radius, self.width * SUBPIXELS),
            y=_inside(drawn.y, drawn.radius, self.height * SUBPIXELS),
        )

    def _strip(self, draws: _Draws) -> Mask:
        """Return True for the pixels of one straight strip across each image."""
        figure = self._figures(draws, radius=(20, 64), tilt=64)
        across, _ = figure.frame(height=self.height, width=self.width)
        return np.abs(across) < RADIUS // 4

    def _palette(self, draws: _Draws, *, figures: int) -> NDArray[np.int16]:
        """Draw two colours per figure: shape [images, 2 × figures, 3]."""
        channels = 3 * figures
        first = draws.between(*[(0, 255)] * channels)
        clutter, contrast = (0, self.clutter), (self.contrast, 2 * self.contrast)
        # The strip is the last of the figures, the labelled one stands before it.
        step = draws.between(*[clutter] * (channels - 6), *[contrast] * 3, *[clutter] * 3)
        second = np.where(first < 128, first + step, first - step)
        pairs = np.stack([first, second]).reshape(2, -1, figures, 3)
        return pairs.transpose(1, 2, 0, 3).reshape(-1, 2 * figures, 3).astype(np.int16)

    def _expose(
        self, draws: _Draws, palette: NDArray[np.int16], layer: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        """Apply colours, shading from one side, and noise."""
        images, height, width = layer.shape
        slope = draws.between((-40, 40), (-40, 40))
        shade_x = slope[:, :1] * (np.arange(width, dtype=np.int32) * 2 - width) // width
        shade_y = slope[:, 1:] * (np.arange(height, dtype=np.int32) * 2 - height) // height
        shade = (shade_y[:, :, None] + shade_x[:, None, :]).astype(np.int16)
        words = -(-height * width * 3 // 8)
        slots = np.arange(1 << 20, (1 << 20) + words, dtype=np.uint64)
        # Little-endian by name: the bytes of a word have one order on every machine.
        noise = hashes(draws.keys, slots).astype("<u8").view(np.int8)[:, : height * width * 3]
        grain = noise.reshape(images, height, width, 3).astype(np.int16)
        grain *= np.int16(self.noise)
        grain >>= 7
        grain += shade[..., None]
        for image in range(images):
            grain[image] += palette[image][layer[image]]
        return np.clip(grain, 0, 255).astype(np.uint8)


def _inside(drawn: Integers, radius: Integers, extent: int) -> Integers:
    """Move a coordinate drawn from 0 … extent so that the figure stays in the image."""
    margin = np.minimum(radius * 7 // 8, extent // 2)
    moved: Integers = margin + drawn * (extent - 2 * margin) // extent
    return moved


SMOKE = LearnableImages(
    seed=500,
    height=24,
    width=24,
    outlines=4,
    patterns=3,
    train=4_032,
    validation=2_016,
    tilt=10,
    distractors=1,
    contrast=64,
    clutter=40,
    noise=24,
)
WORKSTATION = replace(
    SMOKE, height=256, width=256, outlines=6, patterns=5, train=25_600, validation=5_000
)
