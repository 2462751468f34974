"""The pictures that a workload left of a trial: PNGs with boxes drawn over them, and charts.

The files may come from a stranger: an image is a PNG of that very folder, or is left out, and
every text is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ai500.core.errors import AI500Error, InputError
from ai500.core.reading import open_regular
from ai500.records import run_folder
from ai500.records.illustrations import Chart, Illustrations, Kind, Picture
from ai500.records.run_folder import TrialFolder
from ai500.report.charts import svg
from ai500.report.charts.line_chart import Legend, LineChart, curve
from ai500.report.charts.picture_chart import PictureChart
from ai500.report.run_data import RunData
from ai500.report.section import Block, Figure, Grid, Paragraph, Section, Table

PNG = b"\x89PNG\r\n\x1a\n"
LARGEST_IMAGE_BYTES = 300_000
MOST_IMAGES = 4
"""Together with LARGEST_IMAGE_BYTES it keeps a report under 2 MB."""
MOST_PICTURES, MOST_CHARTS = 4, 16
LEGEND_LINES = 3


def picture_section(run: RunData) -> Section | None:
    """Show the pictures of the shown trial; None: the workload or an older version left none."""
    trial = run.trial_folder
    if not trial.pictures_record.exists():
        return None
    try:
        record = run_folder.read(Illustrations, trial.pictures_record)
    except AI500Error as error:
        return Section("Pictures", [Paragraph(f"Not shown: {error}")])
    images = _images(trial, record)
    figures: list[Figure | Table] = [
        picture_figure(picture, kinds=record.kinds, images=images)
        for picture in record.pictures[:MOST_PICTURES]
    ]
    if record.rows:
        numbers = tuple(range(1, len(record.columns)))
        figures.append(Table(record.columns, record.rows, numbers, title=record.table_title))
    blocks: list[Block] = [Paragraph(text) for text in record.introduction]
    blocks += [Grid(figures)] if figures else []
    charts = [chart_figure(chart) for chart in record.charts[:MOST_CHARTS]]
    blocks += [Grid(charts)] if charts else []
    return Section(record.title, blocks)


def _images(trial: TrialFolder, record: Illustrations) -> dict[str, bytes]:
    """Read the images that can be shown, by file name."""
    pairs = ((picture.file, picture.shading.file) for picture in record.pictures)
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    images = {name: _image(trial, name) for name in names[:MOST_IMAGES]}
    return {name: data for name, data in images.items() if data}


def _image(trial: TrialFolder, name: str) -> bytes | None:
    path = trial.pictures / name
    try:
        if path.parent != trial.pictures or path.is_symlink():
            return None
        with open_regular(path) as file:
            data = file.read(LARGEST_IMAGE_BYTES + 1)
    except (OSError, ValueError, InputError):
        return None
    return data if data.startswith(PNG) and len(data) <= LARGEST_IMAGE_BYTES else None


def picture_figure(
    picture: Picture, *, kinds: Sequence[Kind], images: Mapping[str, bytes]
) -> Figure:
    """Show a picture with its boxes, axes and legend."""
    data = images.get(picture.file)
    if data is None or picture.width < 1 or picture.height < 1:
        return Figure(picture.title, None, f"Not shown: no picture in {picture.file}.")
    chart = PictureChart(picture, tuple(kinds), data, images.get(picture.shading.file))
    return Figure(picture.title, chart, picture.caption, picture.alternative)


def chart_figure(chart: Chart) -> Figure:
    """Show curves from 0 to 1 on both axes, the members' thin, the ensemble's thick."""
    lines = [line for line in chart.lines if len(line.values) == len(chart.x)]
    if not lines:
        return Figure(chart.title, None, chart.caption)
    ticks = svg.nice_ticks(0, 1)
    drawn = LineChart(
        [curve(list(zip(chart.x, line.values, strict=True)), line.role) for line in lines],
        x_title=chart.x_title,
        y_title=chart.y_title,
        x_ticks=ticks,
        y_ticks=ticks,
        legend=[
            Legend("ensemble", chart.ensemble_text[:LEGEND_LINES]),
            Legend("member", chart.members_text[:LEGEND_LINES]),
        ],
    )
    return Figure(chart.title, drawn, chart.caption)
