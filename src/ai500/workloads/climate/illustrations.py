"""The report's section of extreme weather: maps with boxes, precision–recall curves.

A map is a small PNG: water vapour as shades, sea-level pressure as lines. Row 0 of a frame is the
South Pole, as CAM5 writes its files; a map has north at its top.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ai500.data.climate.schema import CHANNELS, CLASSES
from ai500.data.store import Samples
from ai500.records.illustrations import Drawn, Illustrations, Kind, Picture, Shading, Tick
from ai500.workloads.detection.curves import COLUMNS, precision_recall_charts
from ai500.workloads.detection.pictures import (
    MAX_MEMBERS,
    ChosenFrame,
    Thresholded,
    apply_threshold,
    choose_frames,
    picture_boxes,
)

WIDTH = 576
SHADES = 64
MOST_VAPOUR = 70.0  # kg/m² of the last shade; fixed, so that maps of all runs compare
ISOBAR_STEP = 800.0  # Pa between two lines
ISOBAR_COLUMNS = 96  # pressure is smoothed to this width: noise of pixels has no isobars
LATITUDES = tuple(
    Tick((90 - degrees) / 180, f"{abs(degrees)}°{'N' if degrees > 0 else 'S' if degrees else ''}")
    for degrees in (60, 30, 0, -30, -60)
)
LONGITUDES = tuple(
    Tick(degrees / 360, f"{min(degrees, 360 - degrees)}°{side}")
    for degrees, side in ((60, "E"), (120, "E"), (180, ""), (240, "W"), (300, "W"))
)

Field = NDArray[np.float32]
KINDS = tuple(
    Kind(short, name) for short, name in zip(("TD", "TC", "ETC", "AR"), CLASSES, strict=True)
)
SHADING = Shading("shading.png", f"0 to {MOST_VAPOUR:g} kg/m² of water vapour")


def illustrations(
    predictions: Mapping[int, NDArray[np.floating]],
    ensemble: NDArray[np.floating],
    *,
    samples: Samples,
) -> Drawn:
    """Draw each member's and the ensemble's validation detections [S, D, 6]."""
    labels = samples.rows(np.arange(samples.count), names=["boxes"])["boxes"]
    combined = apply_threshold(ensemble, labels)
    charts, rows = precision_recall_charts(predictions.values(), ensemble, labels, kinds=KINDS)
    members: dict[int, Thresholded] = {}
    thresholds: list[float] = []

    def thresholded() -> Iterator[Thresholded]:
        for member, detections in predictions.items():
            kept = apply_threshold(detections, labels)
            thresholds.append(kept.threshold)
            if len(members) < MAX_MEMBERS:
                members[member] = kept
            yield kept

    pictures, images = [], {}
    for choice in choose_frames(thresholded(), combined, labels):
        frames = samples.rows(np.array([choice.frame]), names=["images"])["images"]
        png, width, height = map_png(frames[0])
        boxes = picture_boxes(
            choice.frame,
            labels=labels,
            members=members,
            ensemble=combined,
            kinds=KINDS,
            size=frames.shape[2:],
        )
        name = f"frame-{choice.frame:05d}.png"
        images[name] = png
        pictures.append(
            Picture(
                title=f"{choice.reason}: frame {choice.frame:,}",
                caption=_caption(choice),
                alternative=f"Map of the Earth: water vapour, isobars, boxes. {_caption(choice)}",
                file=name,
                width=width,
                height=height,
                boxes=boxes,
                x_ticks=LONGITUDES,
                y_ticks=LATITUDES,
                shading=SHADING,
            )
        )
    if pictures:
        images[SHADING.file] = shading_strip()
    record = Illustrations(
        title="Detections of the ensemble",
        introduction=_introduction(thresholds, combined, frames=samples.count),
        kinds=KINDS,
        pictures=tuple(pictures),
        charts=charts,
        table_title="Average precision (AP) by class",
        columns=COLUMNS,
        rows=rows,
    )
    return Drawn(record, images)


def _introduction(
    thresholds: Sequence[float], ensemble: Thresholded, *, frames: int
) -> tuple[str, ...]:
    names = ", ".join(f"{kind.short} {kind.name}" for kind in KINDS)
    lowest, highest = min(thresholds), max(thresholds)
    bounds = f"{lowest:.2f}" if lowest == highest else f"{lowest:.2f} to {highest:.2f}"
    drawn = f" Of {len(thresholds):,} members, the first {MAX_MEMBERS} are drawn."
    return (
        f"Frames are numbered from 0 in the validation set of {frames:,}; they were chosen for the "
        "property in their titles and are not typical. Shades show the column of water vapour "
        "(TMQ), lines are isobars at sea level (PSL), 8 hPa apart; north is at the top.",
        f"Boxes are drawn above the score threshold with the best F1 over all frames: "
        f"{ensemble.threshold:.2f} for the ensemble, {bounds} for the members."
        f"{drawn if len(thresholds) > MAX_MEMBERS else ''} A box is correct if its IoU with a "
        f"true box of its class is at least 0.5. {names}.",
    )


def _caption(choice: ChosenFrame) -> str:
    missed = choice.events - choice.hits
    alarms = f"{choice.false_alarms} false alarm{'' if choice.false_alarms == 1 else 's'}"
    events = f"{choice.events} true event{'' if choice.events == 1 else 's'}"
    return f"{events}; the ensemble finds {choice.hits}, misses {missed}, and raises {alarms}."


def map_png(frame: Field) -> tuple[bytes, int, int]:
    """Draw a frame [16, height, width]; return the PNG, its width and its height."""
    indices = map_indices(frame)
    height, width = indices.shape
    return encode_png(indices, palette()), width, height


def map_indices(frame: Field) -> NDArray[np.uint8]:
    """Draw a frame in the palette's colours, `WIDTH` pixels wide."""
    rows, columns = frame.shape[1:]
    size = (WIDTH, max(1, round(WIDTH * rows / columns)))
    vapour = _resized(frame[CHANNELS.index("TMQ")][::-1], size)
    pressure = frame[CHANNELS.index("PSL")][::-1]
    coarse = (ISOBAR_COLUMNS, max(2, round(ISOBAR_COLUMNS * rows / columns)))
    pressure = _resized(_resized(pressure, coarse), size)
    shades = np.clip(vapour / MOST_VAPOUR * SHADES, 0, SHADES - 1).astype(np.uint8)
    indices: NDArray[np.uint8] = shades + SHADES * _isobars(pressure)
    return indices


def shading_strip() -> bytes:
    """Draw all shades from low to high, for the legend."""
    return encode_png(np.arange(SHADES, dtype=np.uint8)[None], palette())


def _resized(field: Field, size: tuple[int, int]) -> Field:
    finite = np.nan_to_num(np.ascontiguousarray(field, dtype=np.float32))
    image = Image.fromarray(finite).resize(size, Image.Resampling.BICUBIC)
    return np.asarray(image, dtype=np.float32)


def _isobars(pressure: Field) -> NDArray[np.uint8]:
    """Return 1 where the next pixel to the right or below lies in another band."""
    return outlines(np.floor(pressure / ISOBAR_STEP))


def outlines(band: NDArray[Any]) -> NDArray[np.uint8]:
    """Return 1 where the next pixel to the right or below has another value."""
    lines = np.zeros(band.shape, dtype=np.uint8)
    lines[:, :-1] |= band[:, 1:] != band[:, :-1]
    lines[:-1] |= band[1:] != band[:-1]
    return lines


def encode_png(indices: NDArray[np.uint8], colours: NDArray[np.uint8]) -> bytes:
    """Encode a picture of palette indices."""
    image = Image.fromarray(indices)
    image.putpalette(colours.tobytes())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def palette() -> NDArray[np.uint8]:
    """Return sRGB [128, 3]: the shades from dry to moist, then the same under an isobar.

    Even steps of OKLab's lightness (Ottosson 2020), from dark blue to pale sand; weak colours, so
    that boxes in strong ones stand out.
    """
    share = np.linspace(0.0, 1.0, SHADES)
    lightness = 0.24 + 0.70 * share
    chroma, hue = 0.055, np.radians(262.0 - 175.0 * share)
    shades = _srgb(lightness, chroma * np.cos(hue), chroma * np.sin(hue))
    towards = np.where(share < 0.55, 255.0, 0.0)[:, None]
    both = np.concatenate([shades, shades * 0.70 + towards * 0.30])
    rounded: NDArray[np.uint8] = np.rint(both).astype(np.uint8)
    return rounded


def _srgb(
    lightness: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Convert OKLab to sRGB [n, 3] from 0 to 255."""
    cones = np.stack(
        [
            lightness + 0.3963377774 * a + 0.2158037573 * b,
            lightness - 0.1055613458 * a - 0.0638541728 * b,
            lightness - 0.0894841775 * a - 1.2914855480 * b,
        ],
        axis=1,
    )
    to_linear = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = np.clip(cones**3 @ to_linear.T, 0.0, 1.0)
    bright = 1.055 * linear ** (1 / 2.4) - 0.055
    srgb: NDArray[np.float64] = 255 * np.where(linear <= 0.0031308, 12.92 * linear, bright)
    return srgb
