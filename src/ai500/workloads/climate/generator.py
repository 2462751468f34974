"""Frames of learnable climate: background, events, noise of the pixels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ai500.data.climate.schema import CHANNELS, MOST_BOXES, Boxes, Frames
from ai500.workloads.climate.background import background
from ai500.workloads.climate.events import draw_events
from ai500.workloads.climate.noise import Draws, magnified
from ai500.workloads.climate.patterns import Canvas
from ai500.workloads.climate.recipe import ClimateRecipe

SPLITS = ("train", "validation")
# Amplitude of the pixels' own noise by channel, in the channel's unit.
_GRAIN = {
    "PRECT": 4e-9, "PS": 40.0, "PSL": 40.0, "QREFHT": 2e-4, "T200": 0.3, "T500": 0.3,
    "TMQ": 0.7, "TREFHT": 0.4, "TS": 0.5, "U850": 0.8, "UBOT": 0.8, "V850": 0.8, "VBOT": 0.8,
    "Z1000": 4.0, "Z200": 6.0, "ZBOT": 0.1,
}  # fmt: skip
_LEAST = {"PRECT": 0.0, "QREFHT": 1e-6, "TMQ": 0.1}


def draw(
    recipe: ClimateRecipe, split: str, first: int, last: int, *, device: str | None = None
) -> tuple[Frames, Boxes]:
    """Frames first … last − 1 of a split and their boxes."""
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    frames = np.empty((last - first, len(CHANNELS), recipe.height, recipe.width), np.float32)
    boxes = np.full((last - first, MOST_BOXES, 5), -1, np.float32)
    with torch.inference_mode(), _one_thread():
        for row, number in enumerate(range(first, last)):
            fields, found = draw_frame(recipe, split, number, device=chosen)
            torch.from_numpy(frames[row]).copy_(fields)
            boxes[row, : len(found)] = np.array(found, np.float32).reshape(-1, 5)
    return frames, boxes


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Processes share out the frames; threads that share out a small field only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def draw_frame(
    recipe: ClimateRecipe, split: str, number: int, *, device: torch.device
) -> tuple[Tensor, list[tuple[int, int, int, int, int]]]:
    """One frame [16, height, width] and its boxes."""
    key = (recipe.seed, SPLITS.index(split), number)
    events = Draws(*key, 1)
    summer = _season(events.between(0.0, 1.0))
    coarse, texture = background(Draws(*key, 2), summer=summer, device=device)
    size = {"height": recipe.height, "width": recipe.width}
    fields = torch.empty((len(CHANNELS), *size.values()), device=device)
    for channel, field in enumerate(coarse):
        fields[channel] = magnified(field, **size)
    canvas = Canvas(fields, magnified(texture, **size))
    boxes = draw_events(canvas, events, recipe, summer=summer)
    add_grain(fields, Draws(*key, 3), amount=recipe.noise)
    return fields, boxes


def _season(phase: float) -> float:
    """A wave from −1 to 1 over the year, made of two parabolas."""
    half = phase * 2.0
    return 4.0 * half * (1.0 - half) if half < 1.0 else -4.0 * (half - 1.0) * (2.0 - half)


def add_grain(fields: Tensor, draws: Draws, *, amount: float) -> None:
    """Noise of every pixel, and no negative rain or moisture after it."""
    for channel, name in enumerate(CHANNELS):
        field = fields[channel]
        noise = torch.from_numpy(draws.bytes(field.numel())).to(field.device).view(field.shape)
        # A byte has a standard deviation of 73.9.
        field += noise.float() * (_GRAIN[name] * amount / 73.9)
        if name in _LEAST:
            field.clamp_(min=_LEAST[name])
