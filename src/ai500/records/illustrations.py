"""Illustrations of a trial: pictures with boxes, charts, a table, as plain data and PNGs.

They are written when a trial is aggregated (`trials/01/pictures/`), so that a report needs neither
the data nor the workload. The workload chooses the pictures and their texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Role = Literal["truth", "ensemble", "member"]


@dataclass(frozen=True)
class Box:
    """A rectangle on a picture; its edges are fractions of the picture's width and height."""

    role: Role
    kind: int
    """Index into the illustrations' `kinds`."""
    left: float
    top: float
    right: float
    bottom: float
    label: str
    """Text beside the box, where there is room; may be empty."""
    tip: str


@dataclass(frozen=True)
class Tick:
    """A label on a picture's edge; `at` is a fraction from its left or top."""

    at: float
    label: str


@dataclass(frozen=True)
class Shading:
    """Colour scale of a picture: a strip of its colours, from low to high."""

    file: str
    text: str


@dataclass(frozen=True)
class Picture:
    """A PNG of the pictures' folder, with the boxes and ticks drawn over it."""

    title: str
    caption: str
    alternative: str
    """Text alternative (HTML `alt`)."""
    file: str
    width: int
    height: int
    boxes: tuple[Box, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    shading: Shading


@dataclass(frozen=True)
class Line:
    """One curve of a chart, with a value for each x."""

    role: Literal["ensemble", "member"]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """Curves over one axis; both axes range from 0 to 1."""

    title: str
    caption: str
    x_title: str
    y_title: str
    x: tuple[float, ...] = ()
    lines: tuple[Line, ...] = ()
    """Curves; empty: `caption` states why there are none."""
    ensemble_text: tuple[str, ...] = ()
    """Short lines beside the chart: summary of the ensemble's curve."""
    members_text: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A class of boxes: its name, and a short name for labels."""

    short: str
    name: str


@dataclass(frozen=True)
class Illustrations:
    """`pictures.json`: the workload's part of a report."""

    title: str
    introduction: tuple[str, ...]
    """Paragraphs of text."""
    kinds: tuple[Kind, ...] = ()
    pictures: tuple[Picture, ...] = ()
    charts: tuple[Chart, ...] = ()
    table_title: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """Rows of the table; the columns after the first are numbers."""


@dataclass(frozen=True)
class Drawn:
    """Illustrations with the PNGs they name."""

    illustrations: Illustrations
    images: Mapping[str, bytes]
