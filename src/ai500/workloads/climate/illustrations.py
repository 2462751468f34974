"""What the report shows of extreme weather: maps with boxes, precision–recall curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ai500.data.climate.schema import CLASSES
from ai500.data.store import Samples
from ai500.records.illustrations import Drawn, Illustrations, Kind, Picture, Shading
from ai500.workloads.climate import painting
from ai500.workloads.detection.curves import COLUMNS, precision_recall_charts
from ai500.workloads.detection.pictures import (
    MAX_MEMBERS,
    ChosenFrame,
    Thresholded,
    apply_threshold,
    choose_frames,
    picture_boxes,
)

KINDS = tuple(
    Kind(short, name) for short, name in zip(("TD", "TC", "ETC", "AR"), CLASSES, strict=True)
)
SHADING = Shading("shading.png", f"0 to {painting.MOST_VAPOUR:g} kg/m² of water vapour")


def illustrations(
    predictions: Mapping[int, NDArray[np.floating]],
    ensemble: NDArray[np.floating],
    *,
    samples: Samples,
) -> Drawn:
    """Of each member's and the ensemble's validation detections [S, D, 6]."""
    labels = samples.labels_of(np.arange(samples.count))
    theirs = {member: apply_threshold(one, labels) for member, one in predictions.items()}
    ours = apply_threshold(ensemble, labels)
    charts, rows = precision_recall_charts(
        list(predictions.values()), ensemble, labels, kinds=KINDS
    )
    pictures, images = [], {}
    for choice in choose_frames(list(theirs.values()), ours, labels):
        frames, _ = samples.rows(np.array([choice.frame]))
        png, width, height = painting.painted(frames[0])
        boxes = picture_boxes(
            choice.frame,
            labels=labels,
            members=theirs,
            ensemble=ours,
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
                x_ticks=painting.LONGITUDES,
                y_ticks=painting.LATITUDES,
                shading=SHADING,
            )
        )
    if pictures:
        images[SHADING.file] = painting.shading_strip()
    record = Illustrations(
        title="What the ensemble finds",
        introduction=_introduction(list(theirs.values()), ours, frames=samples.count),
        kinds=KINDS,
        pictures=tuple(pictures),
        charts=charts,
        table_title="Average precision (AP) by class",
        columns=COLUMNS,
        rows=rows,
    )
    return Drawn(record, images)


def _introduction(
    members: Sequence[Thresholded], ensemble: Thresholded, *, frames: int
) -> tuple[str, ...]:
    names = ", ".join(f"{kind.short} {kind.name}" for kind in KINDS)
    lowest, highest = (f(one.threshold for one in members) for f in (min, max))
    theirs = f"{lowest:.2f}" if lowest == highest else f"{lowest:.2f} to {highest:.2f}"
    drawn = f" Of {len(members):,} members, the first {MAX_MEMBERS} are drawn."
    return (
        f"Frames are those of the validation set ({frames:,}), counted from 0; they are picked for "
        "what their titles say and are not typical. Shades are the water vapour above each place "
        "(TMQ), lines are isobars at sea level (PSL), 8 hPa apart; north is at the top.",
        f"Boxes are drawn from the score that gives their maker the best F1 over all frames: "
        f"{ensemble.threshold:.2f} for the ensemble, {theirs} for the members."
        f"{drawn if len(members) > MAX_MEMBERS else ''} A box is right if it overlaps a "
        f"true one of its class by half (IoU). {names}.",
    )


def _caption(choice: ChosenFrame) -> str:
    missed = choice.events - choice.hits
    alarms = f"{choice.false_alarms} false alarm{'' if choice.false_alarms == 1 else 's'}"
    events = f"{choice.events} true event{'' if choice.events == 1 else 's'}"
    return f"{events}; the ensemble finds {choice.hits}, misses {missed}, and raises {alarms}."
