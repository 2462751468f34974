"""The picture of the learning-rate policies in docs/parallelism.md, drawn by the report's own code.

    python docs/images/draw_learning_rate.py

The `full` class at batch 8,192 (V2 Fig. 7a): 0.1 × 8192/256 = 3.2 after 5 epochs of warm-up.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ai500.report.charts import svg
from ai500.report.charts.svg import Frame, Scale
from ai500.train.learning_rate import learning_rate_of, scaled_peak
from ai500.workloads.image_classification import CLASSES

PICTURE = Path(__file__).with_name("learning_rate.svg")
STEPS_PER_EPOCH = 156
STYLE = """<style>
text { font: 14px sans-serif; fill: #1b1f24; } .tick, .axis-title { fill: #57606a; }
.axis { stroke: #57606a; } .grid { stroke: #d5dae0; }
polyline { fill: none; stroke-width: 2.5; } .cosine { stroke: #0060a0; }
.step { stroke: #b84a00; stroke-dasharray: 7 4; } .polynomial { stroke: #1a6b3c; }
.linear { stroke: #57606a; stroke-dasharray: 2 4; }
</style><rect width="100%" height="100%" fill="#ffffff"/>"""


@dataclasses.dataclass(frozen=True)
class Curve:
    """A policy, its name in the picture, and where the name stands (epoch, rate)."""

    css: str
    label: str
    place: tuple[float, float]
    settings: dict[str, object]


CURVES = (
    Curve("cosine", "cosine", (37, 2.45), {"schedule": "cosine"}),
    Curve(
        "step", "step: 30, 60, 80", (22, 3.3), {"schedule": "step", "decay_epochs": (30, 60, 80)}
    ),
    Curve("polynomial", "polynomial 2", (9, 1.55), {"schedule": "polynomial"}),
    Curve("linear", "polynomial 1", (63, 1.25), {"schedule": "polynomial", "decay_power": 1.0}),
)


def drawn() -> str:
    """Draw the picture."""
    full = CLASSES["full"].reference
    peak = scaled_peak(full, global_batch_size=8192)
    frame = Frame(x=Scale(0, full.epochs, 50, svg.WIDTH - 20), y=Scale(0, 3.5, 290, 40))
    parts = [
        STYLE,
        svg.y_axis(frame, svg.nice_ticks(0, 3.5, most=8), title="learning rate"),
        svg.x_axis(frame, svg.nice_ticks(0, 90, most=10), title="epoch"),
    ]
    for one in CURVES:
        hyper = dataclasses.replace(full, **one.settings)  # type: ignore[arg-type]
        rate = learning_rate_of(hyper, peak=peak, steps_per_epoch=STEPS_PER_EPOCH)
        steps = range(0, full.epochs * STEPS_PER_EPOCH, STEPS_PER_EPOCH // 4)
        points = frame.points((step / STEPS_PER_EPOCH, rate(step)) for step in steps)
        epoch, height = one.place
        parts.append(svg.polyline(points, one.css))
        parts.append(svg.text((frame.x(epoch), frame.y(height)), one.label))
    return svg.document(parts, height=345, title="Learning rate of each policy over 90 epochs")


if __name__ == "__main__":
    PICTURE.write_text(drawn() + "\n", encoding="utf-8")
    print(f"wrote {PICTURE}")
