"""The pictures a workload left of a trial: PNGs with boxes drawn over them, and charts.

Boxes are SVG, sharp on any screen and on paper. Line styles and labels tell classes apart, colour
only helps. What is on disk may come from a stranger: every text is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from ai500.records.illustrations import Box, Chart, Kind, Line, Picture
from ai500.report import svg
from ai500.report.run_data import Contents
from ai500.report.section import Figure, Table
from ai500.report.svg import Frame, Point, Scale

MOST_PICTURES, MOST_CHARTS = 4, 16
LETTER = 0.76 * svg.LARGEST_TEXT
"""Width of a bold capital, the widest in a label."""
STYLES = 4
"""Line styles in the style sheet; more classes begin again."""
LEFT, RIGHT, TOP = 50.0, svg.WIDTH - 6.0, 6.0
SAMPLE = 40.0
"""Length of a line in the legend."""
Rectangle = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True)
class Gallery:
    """The section as the template shows it."""

    title: str
    introduction: Sequence[str]
    pictures: Sequence[Figure]
    charts: Sequence[Figure]
    table_title: str
    table: Table | None


def gallery(contents: Contents) -> Gallery | None:
    """What the shown trial's workload shows of it; None: nothing."""
    if contents.pictures is None:
        return None
    shown, images = contents.pictures.illustrations, contents.pictures.images
    table = Table(shown.columns, shown.rows, tuple(range(1, len(shown.columns))))
    return Gallery(
        shown.title,
        shown.introduction,
        [
            picture_figure(one, kinds=shown.kinds, images=images)
            for one in shown.pictures[:MOST_PICTURES]
        ],
        [chart_figure(one) for one in shown.charts[:MOST_CHARTS]],
        shown.table_title,
        table if shown.rows else None,
    )


def picture_figure(
    picture: Picture, *, kinds: Sequence[Kind], images: Mapping[str, bytes]
) -> Figure:
    """A picture with its boxes, axes and legend."""
    data = images.get(picture.file)
    if data is None or picture.width < 1 or picture.height < 1:
        return Figure(picture.title, None, f"Not shown: no picture in {picture.file}.")
    bottom = TOP + (RIGHT - LEFT) * min(2.0, picture.height / picture.width)
    frame = Frame(x=Scale(0, 1, LEFT, RIGHT), y=Scale(1, 0, bottom, TOP))
    area = (LEFT, TOP, RIGHT, bottom)
    parts = [_embedded(data, area), *_ticks(picture, frame), *_boxes(picture.boxes, frame)]
    parts += _legend(kinds, top=bottom + 46)
    strip = images.get(picture.shading.file)
    if strip is not None:
        parts.append(_embedded(strip, (LEFT, bottom + 86, LEFT + 130, bottom + 98)))
        parts.append(svg.text((LEFT + 142, bottom + 97), picture.shading.text, "tick"))
    drawing = svg.document(parts, height=bottom + 108, title=picture.alternative)
    return Figure(picture.title, Markup(drawing), picture.caption)


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
    """True ones lowest, the ensemble's on top; labels where they hide no other label."""
    parts, labels, taken = [], [], list[Rectangle]()
    order = ("truth", "member", "ensemble")
    for box in sorted(boxes, key=lambda box: order.index(box.role)):
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
    tip = f"<title>{escape(box.tip)}</title>"
    line = f'<rect {size} class="{css}">{tip}</rect>'
    # A dark edge keeps a line visible on any shade.
    return [line] if box.role == "member" else [f'<rect {size} class="edge {box.role}"/>', line]


def _free_place(area: Rectangle, box: Box, frame: Frame, taken: list[Rectangle]) -> Point | None:
    """Above a true box, below a predicted one, or where else there is room; else no label."""
    left, top, right, bottom = area
    width, height = LETTER * len(box.label), svg.LARGEST_TEXT
    above = [(left, top - 5), (right - width, top - 5)]
    below = [(left, bottom + height - 1), (right - width, bottom + height - 1)]
    middle = (top + bottom) / 2 + 5
    beside = [(right + 4, middle), (left - width - 4, middle)]
    for x, y in above + below + beside if box.role == "truth" else below + above + beside:
        mine = (x, y - height, x + width, y + 3)
        inside = _within(mine, (frame.left, frame.top, frame.right, frame.bottom))
        if inside and not any(_touch(mine, other) for other in taken):
            taken.append(mine)
            return x, y
    return None


def _within(one: Rectangle, other: Rectangle) -> bool:
    return other[0] <= one[0] and one[2] <= other[2] and other[1] <= one[1] and one[3] <= other[3]


def _touch(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _legend(kinds: Sequence[Kind], *, top: float) -> list[str]:
    """What the lines mean: who drew a box, and of which class it is."""
    kinds = kinds[:STYLES]
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
    """A piece of line, in the styles of these classes one after the other."""
    x, y = start
    step = SAMPLE / max(1, len(kinds))
    parts = [svg.line(start, (x + SAMPLE, y), f"edge {role}")]
    for place, kind in enumerate(kinds):
        ends = (x + step * place, y), (x + step * (place + 1), y)
        parts.append(svg.line(*ends, f"box {role} kind-{kind}"))
    return parts


def chart_figure(chart: Chart) -> Figure:
    """Curves from 0 to 1 on both axes, the members' thin, the ensemble's thick."""
    lines = [line for line in chart.lines if len(line.values) == len(chart.x)]
    if not lines:
        return Figure(chart.title, None, chart.caption)
    ticks = svg.nice_ticks(0, 1)
    frame = Frame(x=Scale(0, 1, 50, svg.WIDTH - 140), y=Scale(0, 1, 282, 40))
    parts = [
        svg.y_axis(frame, ticks, title=chart.y_title),
        svg.x_axis(frame, ticks, title=chart.x_title),
        *(_curve(line, chart.x, frame) for line in lines),
    ]
    texts: Mapping[str, Sequence[str]] = {
        "ensemble": chart.ensemble_text,
        "member": chart.members_text,
    }
    x, y = frame.right + 14, frame.top + 6
    for role, several in texts.items():
        parts.append(svg.line((x, y), (x + 30, y), role))
        for text in several[:3]:
            y += svg.LABEL_GAP
            parts.append(svg.text((x, y), text, f"{role} label" if role == "ensemble" else "tick"))
        y += 2 * svg.LABEL_GAP
    return Figure(
        chart.title, Markup(svg.document(parts, height=336, title=chart.title)), chart.caption
    )


def _curve(line: Line, x: Sequence[float], frame: Frame) -> str:
    return svg.polyline(frame.points(zip(x, line.values, strict=True)), line.role)
