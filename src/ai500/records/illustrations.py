"""What a workload shows of a trial: pictures with boxes, charts, a table. Plain data and PNGs.

Written when a trial is aggregated (`trials/01/pictures/`), so that a report needs neither the data
nor the workload. Which pictures, and what they say, is the workload's choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Role = Literal["truth", "ensemble", "member"]


@dataclass(frozen=True)
class Box:
    """A rectangle on a picture; its edges are shares of the picture's width and height."""

    role: Role
    kind: int
    """Which of the illustrations' `kinds`."""
    left: float
    top: float
    right: float
    bottom: float
    label: str
    """Set beside it where there is room; may be empty."""
    tip: str


@dataclass(frozen=True)
class Tick:
    """A place on a picture's edge, as a share from its left or top, with its text."""

    at: float
    label: str


@dataclass(frozen=True)
class Shading:
    """What the colours of a picture mean: a strip of them, from low to high."""

    file: str
    text: str


@dataclass(frozen=True)
class Picture:
    """A PNG of the pictures' folder, with what is drawn over it."""

    title: str
    caption: str
    alternative: str
    """What it shows, for those who can't see it."""
    file: str
    width: int
    height: int
    boxes: tuple[Box, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    shading: Shading


@dataclass(frozen=True)
class Line:
    """One curve of a chart, a value for each of the chart's places."""

    role: Literal["ensemble", "member"]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """Curves over one axis; both axes go from 0 to 1."""

    title: str
    caption: str
    x_title: str
    y_title: str
    x: tuple[float, ...]
    lines: tuple[Line, ...]
    """Empty: `caption` says why there is nothing to draw."""
    ensemble_text: tuple[str, ...]
    """Short lines beside the chart, which say what the ensemble's curve comes to."""
    members_text: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """A class of boxes: a short name for labels, and its own."""

    short: str
    name: str


@dataclass(frozen=True)
class Illustrations:
    """`pictures.json`: all that a report shows beside the score's own figures."""

    title: str
    introduction: tuple[str, ...]
    """Paragraphs."""
    kinds: tuple[Kind, ...] = ()
    pictures: tuple[Picture, ...] = ()
    charts: tuple[Chart, ...] = ()
    table_title: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """The table's; the columns after the first are numbers."""


@dataclass(frozen=True)
class Drawn:
    """Illustrations with the PNGs they name."""

    illustrations: Illustrations
    images: Mapping[str, bytes]
