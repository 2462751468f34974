"""The report's section of climate segmentation: maps with masks, and each class's IoU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ai500.data.store import Samples
from ai500.records.illustrations import Drawn, Illustrations, Picture
from ai500.workloads.climate.illustrations import (
    LATITUDES,
    LONGITUDES,
    SHADING,
    encode_png,
    map_indices,
    outlines,
    palette,
    shading_strip,
)
from ai500.workloads.climate.segmented import EVENTS, PIXEL_CLASSES
from ai500.workloads.intersection_over_union import class_ious, predicted_classes

CONSIDERED = 512
"""Frames among which pictures are chosen, from the first one: `full` has 15,158."""
COLOURS = np.array([[255, 255, 255], [255, 120, 0], [255, 0, 200]], np.uint8)
"""Outlines of true masks, of predicted cyclones and of predicted rivers."""


def illustrations(
    predictions: Mapping[int, NDArray[Any]], *, ensemble: NDArray[Any], samples: Samples
) -> Drawn:
    """Draw the frames whose events the ensemble segments best and worst."""
    numbers = np.arange(min(samples.count, CONSIDERED))
    masks = samples.rows(numbers, names=["masks"])["masks"]
    ensemble = ensemble[: len(numbers)]
    images, pictures = {}, []
    for title, number in _best_and_worst(ensemble, masks).items():
        frame = samples.rows(np.array([number]), names=["images"])["images"][0]
        chosen = predicted_classes(ensemble[number : number + 1])[0]
        name = f"frame-{number:05d}.png"
        images[name], width, height = mask_png(frame, masks[number], chosen)
        caption = _caption(ensemble[number : number + 1], masks[number : number + 1])
        pictures.append(
            Picture(
                title=f"{title}: frame {number:,}",
                caption=caption,
                alternative=f"Map of the Earth with outlines of masks. {caption}",
                file=name,
                width=width,
                height=height,
                boxes=(),
                x_ticks=LONGITUDES,
                y_ticks=LATITUDES,
                shading=SHADING,
            )
        )
    if pictures:
        images[SHADING.file] = shading_strip()
    of_members = np.mean(
        [class_ious(rows[: len(numbers)], masks) for rows in predictions.values()], axis=0
    )
    ious = zip(PIXEL_CLASSES, class_ious(ensemble, masks), of_members, strict=True)
    record = Illustrations(
        title="Segmentation by the ensemble",
        introduction=(
            "Outlines of true events are white, those of the ensemble's cyclones orange and of its "
            "rivers magenta. Shades show the column of water vapour (TMQ), thin lines are isobars "
            "at sea level (PSL), 8 hPa apart; north is at the top.",
            f"IoU is the intersection over the union of the pixels of a class, here over "
            f"{len(numbers):,} of {samples.count:,} validation frames.",
        ),
        pictures=tuple(pictures),
        table_title="IoU by class",
        columns=("class", "ensemble", "members' mean"),
        rows=tuple((name, f"{best:.4f}", f"{mean:.4f}") for name, best, mean in ious),
    )
    return Drawn(record, images)


def _best_and_worst(ensemble: NDArray[np.uint8], masks: NDArray[Any]) -> dict[str, int]:
    """Return the frames with the highest and the lowest mean IoU of their events."""
    means = {}
    for number in np.flatnonzero(masks.any(axis=(1, 2))):
        ious = class_ious(ensemble[number : number + 1], masks[number : number + 1])
        means[int(number)] = float(np.nanmean(ious[1:]))
    if not means:
        return {}
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    return {"Best segmentation": best} | ({"Worst segmentation": worst} if worst != best else {})


def mask_png(
    frame: NDArray[np.float32], truth: NDArray[Any], chosen: NDArray[np.uint8]
) -> tuple[bytes, int, int]:
    """Draw a frame [16, height, width] with both masks; return the PNG, its width and height."""
    indices = map_indices(frame)
    height, width = indices.shape
    first = len(palette())
    indices[_outline(truth, (width, height)) > 0] = first
    for event in range(1, len(PIXEL_CLASSES)):
        indices[_outline(chosen == event, (width, height)) > 0] = first + event
    return encode_png(indices, np.concatenate([palette(), COLOURS])), width, height


def _outline(mask: NDArray[Any], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return 1 on the outlines of a mask at a picture's size, with north at the top."""
    northwards = np.ascontiguousarray(mask[::-1], dtype=np.uint8)
    enlarged = Image.fromarray(northwards).resize(size, Image.Resampling.NEAREST)
    return outlines(np.asarray(enlarged))


def _caption(ensemble: NDArray[np.uint8], masks: NDArray[Any]) -> str:
    """Return the IoU of each class of events in a frame."""
    ious = class_ious(ensemble, masks)[1:]
    texts = ("none" if np.isnan(iou) else f"IoU {iou:.2f}" for iou in ious)
    return "; ".join(f"{name}: {text}" for name, text in zip(EVENTS, texts, strict=True))
