"""The report's section of cosmology: slices of volumes, and the error of each parameter."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ai500.data.store import Samples
from ai500.records.illustrations import Drawn, Illustrations, Picture, Shading, Tick
from ai500.workloads.learnable_volumes import PARAMETERS, SCALE

PIXELS = 288
"""Width of a time's slice in a picture, at least."""
GAP = 6
"""White columns between the slices of two times, in pixels."""
RANGE = 4.0
"""Density contrasts from −4 to 4 standard deviations have different shades."""
SHADING = Shading("shading.png", f"density contrast from −{RANGE:g} to {RANGE:g}")


def illustrations(
    predictions: Mapping[int, NDArray[np.floating]],
    *,
    ensemble: NDArray[np.floating],
    samples: Samples,
) -> Drawn:
    """Draw the volumes whose parameters the ensemble estimates best and worst."""
    truth = samples.rows(np.arange(samples.count), names=["parameters"])["parameters"]
    errors = np.abs(ensemble - truth)
    order = errors.mean(axis=1).argsort()
    images = {SHADING.file: _png(np.linspace(0, 255, 64).astype(np.uint8)[None])}
    pictures = []
    for title, number in (("Best estimate", order[0]), ("Worst estimate", order[-1])):
        volumes = samples.rows(np.array([number]), names=["volumes"])["volumes"][0]
        name = f"volume-{number:05d}.png"
        strip = slices(volumes)
        images[name] = _png(strip)
        pictures.append(
            Picture(
                title=f"{title}: volume {number:,}",
                caption=_caption(truth[number], ensemble[number]),
                alternative="Slices through the middle of the volume at its four times.",
                file=name,
                width=strip.shape[1],
                height=strip.shape[0],
                boxes=(),
                x_ticks=_time_ticks(len(volumes), width=strip.shape[1]),
                y_ticks=(),
                shading=SHADING,
            )
        )
    member_errors = np.array([np.abs(rows - truth).mean(axis=0) for rows in predictions.values()])
    rows = tuple(
        (name, f"{errors[:, column].mean():.4f}", f"{member_errors[:, column].mean():.4f}")
        for column, name in enumerate(PARAMETERS)
    )
    record = Illustrations(
        title="Estimates of the ensemble",
        introduction=(
            f"Slices of two of the {samples.count:,} validation volumes at their four times, from "
            "left to right, and the mean absolute error of each parameter. Parameters range from "
            "−1 to 1: the best constant estimate errs by 0.5.",
        ),
        pictures=tuple(pictures),
        table_title="Mean absolute error by parameter",
        columns=("parameter", "ensemble", "members' mean"),
        rows=rows,
    )
    return Drawn(record, images)


def slices(volumes: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Draw the middle slice of each time side by side, GAP white columns apart."""
    middle = volumes[:, volumes.shape[1] // 2] / SCALE
    shades = np.clip((middle + RANGE) / (2 * RANGE) * 255, 0, 255).astype(np.uint8)
    zoom = max(1, PIXELS // shades.shape[1] // 2)
    enlarged = shades.repeat(zoom, axis=1).repeat(zoom, axis=2)
    apart = np.pad(enlarged, ((0, 0), (0, 0), (0, GAP)), constant_values=255)
    return np.concatenate(list(apart), axis=1)[:, :-GAP]


def _time_ticks(times: int, *, width: int) -> tuple[Tick, ...]:
    """Label the middle of each time's slice."""
    pitch = (width + GAP) / times
    return tuple(
        Tick((pitch * number + (pitch - GAP) / 2) / width, f"time {number + 1}")
        for number in range(times)
    )


def _caption(truth: NDArray[np.floating], estimate: NDArray[np.floating]) -> str:
    pairs = zip(PARAMETERS, truth, estimate, strict=True)
    text = "; ".join(f"{name} {true:+.2f}, estimated {value:+.2f}" for name, true, value in pairs)
    return text.replace("-", "−")


def _png(shades: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(shades).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
