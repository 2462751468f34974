"""A picture with boxes drawn over it as SVG: sharp on any screen and on paper.

Line styles and labels tell classes apart, colour only helps.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ai500.records.illustrations import Box, Kind, Picture
from ai500.report.charts import svg
from ai500.report.charts.svg import Frame, Point, Scale

LETTER = 0.76 * svg.LARGEST_TEXT
"""Width of a bold capital, the widest letter in a label, in pixels."""
STYLES = 4
"""Line styles of classes in the style sheet; further classes repeat them."""
LEFT, RIGHT, TOP = 50.0, svg.WIDTH - 6.0, 6.0
NO_LABELS = 2.0
"""Left edge of a picture that has no labels beside it, in pixels."""
SAMPLE = 40.0
"""Length of a line in the legend, in pixels."""
TALLEST = 2.0
"""Height of a picture over its width, at most."""
ROLES = ("truth", "member", "ensemble")
"""Order of drawing: the ensemble's boxes are on top."""
Rectangle = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""


@dataclass(frozen=True)
class PictureChart:
    """A picture with its boxes, axes and legend."""

    picture: Picture
    kinds: tuple[Kind, ...]
    image: bytes
    """PNG of the picture."""
    shading: bytes | None
    """PNG of the colour scale."""

    def svg(self, title: str) -> str:
        """Draw the picture."""
        picture = self.picture
        left = LEFT if picture.y_ticks else NO_LABELS
        bottom = TOP + (RIGHT - left) * min(TALLEST, picture.height / picture.width)
        frame = Frame(x=Scale(0, 1, left, RIGHT), y=Scale(1, 0, bottom, TOP))
        parts = [_embedded(self.image, (left, TOP, RIGHT, bottom))]
        parts += [*_ticks(picture, frame), *_boxes(picture.boxes, frame)]
        scale = bottom + (34 if picture.x_ticks else 12)  # top of the colour scale
        if self.kinds:  # only pictures with boxes have a legend
            parts += _legend(self.kinds[:STYLES], top=bottom + 46)
            scale = bottom + 86
        if self.shading is not None:
            parts.append(_embedded(self.shading, (left, scale, left + 130, scale + 12)))
            parts.append(svg.text((left + 142, scale + 11), picture.shading.text, "tick"))
        return svg.document(parts, height=scale + 22, title=title)


def _embedded(png: bytes, area: Rectangle) -> str:
    left, top, right, bottom = area
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<image x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
        f'height="{bottom - top:.1f}" preserveAspectRatio="none" '
        f'href="data:image/png;base64,{data}"/>'
    )


def _ticks(picture: Picture, frame: Frame) -> list[str]:
    parts = []
    for tick in picture.x_ticks:
        x = frame.x(tick.at)
        parts.append(svg.line((x, frame.bottom), (x, frame.bottom + 5), "axis"))
        parts.append(svg.text((x, frame.bottom + 21), tick.label, "tick", anchor="middle"))
    for tick in picture.y_ticks:
        y = frame.y(tick.at)
        parts.append(svg.line((frame.left - 5, y), (frame.left, y), "axis"))
        parts.append(svg.text((frame.left - 8, y + 5), tick.label, "tick", anchor="end"))
    return parts


def _boxes(boxes: Sequence[Box], frame: Frame) -> list[str]:
    """Draw the boxes, and their labels where they hide no other label."""
    parts, labels, taken = [], [], list[Rectangle]()
    for box in sorted(boxes, key=lambda box: ROLES.index(box.role)):
        area = (frame.x(box.left), frame.y(box.top), frame.x(box.right), frame.y(box.bottom))
        parts += _outline(area, box)
        place = _free_place(area, box, frame, taken) if box.label else None
        if place is not None:
            css = f"on-map {box.role} kind-{box.kind % STYLES}"
            labels.append(svg.text(place, box.label, css))
    return parts + labels


def _outline(area: Rectangle, box: Box) -> list[str]:
    left, top, right, bottom = area
    size = (f'x="{left:.1f}" y="{top:.1f}" width="{max(0.0, right - left):.1f}" '
            f'height="{max(0.0, bottom - top):.1f}"')  # fmt: skip
    css = f"box {box.role} kind-{box.kind % STYLES}"
    line = f'<rect {size} class="{css}"><title>{escape(box.tip)}</title></rect>'
    # A dark edge keeps a line visible on any shade.
    return [line] if box.role == "member" else [f'<rect {size} class="edge {box.role}"/>', line]


def _free_place(area: Rectangle, box: Box, frame: Frame, taken: list[Rectangle]) -> Point | None:
    """Find room above a true box, below a predicted one, else elsewhere; None: there is none."""
    left, top, right, bottom = area
    width, height = LETTER * len(box.label), svg.LARGEST_TEXT
    above = [(left, top - 5), (right - width, top - 5)]
    below = [(left, bottom + height - 1), (right - width, bottom + height - 1)]
    middle = (top + bottom) / 2 + 5
    beside = [(right + 4, middle), (left - width - 4, middle)]
    plot = (frame.left, frame.top, frame.right, frame.bottom)
    for x, y in above + below + beside if box.role == "truth" else below + above + beside:
        label = (x, y - height, x + width, y + 3)
        if _within(label, plot) and not any(_touch(label, other) for other in taken):
            taken.append(label)
            return x, y
    return None


def _within(inner: Rectangle, outer: Rectangle) -> bool:
    starts_inside = outer[0] <= inner[0] and outer[1] <= inner[1]
    return starts_inside and inner[2] <= outer[2] and inner[3] <= outer[3]


def _touch(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _legend(kinds: Sequence[Kind], *, top: float) -> list[str]:
    """Explain the lines: the source of a box, and its class."""
    every = range(len(kinds))
    entries: list[tuple[Point, str, Sequence[int], str]] = [
        ((LEFT, top), "truth", [0], "true"),
        ((LEFT + 118, top), "ensemble", every, "ensemble, with score"),
        ((LEFT + 368, top), "member", every, "members"),
        *(
            ((LEFT + 126 * number, top + 24), "ensemble", [number], kind.short[:6])
            for number, kind in enumerate(kinds)
        ),
    ]
    parts = []
    for (x, y), role, styles, name in entries:
        parts += _sample((x, y), role, styles)
        parts.append(svg.text((x + SAMPLE + 8, y + 5), name, "tick"))
    return parts


def _sample(start: Point, role: str, kinds: Sequence[int]) -> list[str]:
    """Draw a piece of line, in the styles of these classes one after the other."""
    x, y = start
    step = SAMPLE / max(1, len(kinds))
    parts = [svg.line(start, (x + SAMPLE, y), f"edge {role}")]
    for index, kind in enumerate(kinds):
        ends = (x + step * index, y), (x + step * (index + 1), y)
        parts.append(svg.line(*ends, f"box {role} kind-{kind}"))
    return parts
