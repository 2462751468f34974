"""Figures: round ticks, labels that keep apart, well-formed SVG whatever the names are."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.bagging.sections import epochs_chart, learning_rate_chart, mean_curve
from ai500.report.charts import svg
from ai500.report.charts.dot_chart import DotRow, DotRows
from ai500.report.charts.line_chart import Level
from ai500.report.charts.log_scatter import CLEAR, Dot, Guide, LogScatter
from ai500.report.charts.names import LINE_HEIGHT, text_width
from ai500.report.charts.roofline import Mark, Roof, RooflineChart, Slope
from ai500.report.charts.timeline import Bar, Row, Timeline, lanes_of

HOSTILE = "<script>alert(1)</script>\"'&"
SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(min_value=-1e15, max_value=1e15, allow_nan=False)


def classes(figure: str, tag: str) -> list[str]:
    """Return the classes of all elements of a kind."""
    root = ElementTree.fromstring(figure)
    return [
        element.get("class", "") for element in root.iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    ]


@given(NUMBERS, NUMBERS, st.integers(3, 9))
def test_ticks_are_few_and_enclose_the_values(a: float, b: float, most: int) -> None:
    low, high = sorted((a, b))
    if 0 < high - low < 1e-9 * max(abs(low), abs(high)):
        return  # closer together than labels can show
    ticks = svg.nice_ticks(low, high, most=most)
    margin = 1e-6 * (ticks.high - ticks.low)
    assert ticks.low <= low + margin and high - margin <= ticks.high
    assert 2 <= len(ticks.values) <= most


def test_ticks_have_as_many_decimals_as_they_need() -> None:
    assert svg.nice_ticks(0.1, 0.78).labels == ("0.0", "0.2", "0.4", "0.6", "0.8")
    assert svg.nice_ticks(0, 0.0123, most=7).labels[1] == "0.0025"
    assert svg.nice_ticks(0, 225_000).labels[1] == "50 k"


@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 10, 90])
def test_epochs_are_whole(epochs: int) -> None:
    values = svg.nice_ticks(0, epochs, whole=True).values
    assert all(value == int(value) for value in values)


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (2.2, ("0.0 s", "0.5 s", "1.0 s", "1.5 s", "2.0 s")),
        (49, ("0 s", "10 s", "20 s", "30 s", "40 s")),
        (103, ("0 s", "30 s", "60 s", "90 s")),
        (268, ("0 min", "1 min", "2 min", "3 min", "4 min")),
        (7 * 3600, ("0 h", "2 h", "4 h", "6 h")),
        (8 * 86400, ("0 d", "2 d", "4 d", "6 d", "8 d")),
    ],
)
def test_times_are_labelled_in_human_units(seconds: float, labels: tuple[str, ...]) -> None:
    assert svg.time_ticks(seconds).up_to(seconds).labels == labels


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_labels_keep_apart_and_inside(heights: list[float]) -> None:
    placed = svg.spread(heights, gap=20, low=0, high=110)
    assert all(-1e-9 <= y <= 110 for y in placed)
    ordered = sorted(placed)
    assert all(b - a >= 20 - 1e-9 for a, b in pairwise(ordered))


def test_up_to_32_members_are_lines_and_more_are_a_band() -> None:
    few = {m: [(1, 0.1 * m), (2, 0.2 * m)] for m in range(32)}
    many = {m: [(1, 0.1 * m), (2, 0.2 * m)] for m in range(33)}
    drawn = [epochs_chart(curves, y_title="y", epochs=2).svg("t") for curves in (few, many)]
    assert classes(drawn[0], "polyline").count("member") == 32
    assert classes(drawn[0], "polygon") == []
    assert classes(drawn[1], "polyline").count("member") == 2  # the band's edges
    assert classes(drawn[1], "polygon") == ["band"]


def test_the_mean_is_that_of_the_members_that_came_as_far_as_any() -> None:
    curves = {0: [(1, 0.2), (2, 0.4)], 1: [(1, 0.4), (2, 0.8)], 2: [(1, 9.0)]}
    epochs, means = zip(*mean_curve(curves), strict=True)
    assert epochs == (1, 2)
    assert means == pytest.approx((0.3, 0.6))


def test_levels_are_lines_across_the_figure_with_names() -> None:
    levels = [Level("target 0.8", 0.8, "target")]
    drawn = epochs_chart({0: [(1, 0.5)]}, y_title="y", epochs=1, levels=levels).svg("t")
    assert "target" in classes(drawn, "line")
    assert ">target 0.8<" in drawn


def test_a_single_evaluation_is_a_dot() -> None:
    drawn = epochs_chart({0: [(1, 0.5)]}, y_title="y", epochs=1).svg("t")
    assert "member dot" in classes(drawn, "circle")


def test_overlapping_attempts_lie_side_by_side() -> None:
    def bar(member: int, start: float, end: float) -> Bar:
        return Bar(member, start, end, job_started=None, finished=True)

    row = Row("slot 0", (bar(0, 0, 10), bar(1, 1, 9), bar(2, 10, 12)))
    assert [[bar.member for bar in lane] for lane in lanes_of(row.bars)] == [[0, 2], [1]]


def test_a_timeline_shows_start_up_and_what_did_not_finish() -> None:
    rows = [
        Row("slot 0", (Bar(0, 0, 5, None, finished=False), Bar(0, 8, 10, 6, finished=True))),
    ]
    drawn = Timeline(rows, 10).svg("t")
    assert classes(drawn, "rect") == ["bar broken", "bar"]
    assert classes(drawn, "line").count("startup") == 1


def test_a_start_up_beside_another_member_crosses_neither_bar_nor_number() -> None:
    rows = [Row("slot 0", (Bar(0, 0, 5, None, finished=True), Bar(1, 5, 10, 2, finished=True)))]
    tree = ElementTree.fromstring(Timeline(rows, 10).svg("t"))
    (line,) = [e for e in tree.iter() if e.get("class") == "startup"]
    bars = [e for e in tree.iter() if e.get("class") == "bar"]
    feet = [float(bar.get("y", "")) + float(bar.get("height", "")) for bar in bars]
    assert float(line.get("y1", "")) == float(line.get("y2", "")) > max(feet)


def test_names_from_disk_are_escaped() -> None:
    rows = [Row(HOSTILE, (Bar(0, 0, 1, None, finished=True),))]
    drawn = [
        Timeline(rows, 1).svg(HOSTILE),
        epochs_chart({0: [(1, 0.5)]}, y_title=HOSTILE, epochs=1).svg(HOSTILE),
    ]
    for figure in drawn:
        assert "<script" not in figure
        ElementTree.fromstring(figure)


def test_a_learning_rate_keeps_its_corners() -> None:
    drawn = learning_rate_chart(
        lambda step: 0.4 if step < 12_345 else 0.04, total_steps=225_000, corners=[12_345]
    ).svg("t")
    line = ElementTree.fromstring(drawn).find(".//{*}polyline")
    assert line is not None
    points = [tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()]
    (before, after) = next((a, b) for a, b in pairwise(points) if b[1] > a[1])
    assert after[0] - before[0] < 0.11  # a step, not a slope
    assert ">peak 0.4<" in drawn


@pytest.mark.parametrize("count", [1, 3, 100])
def test_every_row_is_a_dot_and_names_never_touch(count: int) -> None:
    rows = [DotRow(f"trial {number}", [1 + number / 1000]) for number in range(count)]
    drawn = DotRows(rows, "TFLOPS", 1.0, "mean 1").svg("t")
    assert len(classes(drawn, "circle")) == count
    assert ">mean 1<" in drawn
    names = [text for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
             if (text.text or "").startswith("trial")]  # fmt: skip
    heights = [float(text.get("y", "")) for text in names]
    assert all(b - a >= svg.LABEL_GAP - 0.1 for a, b in pairwise(heights))


def x_ticks(chart: RooflineChart) -> list[str]:
    """Return the labels below the plot, but for the axis' title."""
    root = ElementTree.fromstring(chart.svg("a roofline"))
    texts = [text for text in root.iter(f"{SVG}text") if text.get("class") == "tick"]
    return [text.text or "" for text in texts if text.get("text-anchor") == "middle"]


def test_a_short_axis_of_a_roofline_has_round_values_between_powers_of_ten() -> None:
    roofs = [Roof("peak", 1e15), Roof("CONV", 8e14)]
    assert x_ticks(RooflineChart(roofs, [Slope("memory", 4.3e12)], [])) == [
        "50", "100", "200", "500",
    ]  # fmt: skip
    far = [Slope("memory", 4.3e12), Slope("network", 2e10)]
    assert x_ticks(RooflineChart(roofs, far, [])) == ["100", "1 k", "10 k", "100 k"]


def test_an_axis_of_bytes_has_no_ticks_where_nothing_is_sent() -> None:
    assert x_ticks(RooflineChart([Roof("peak", 1e15)], [], [Mark("member", None, 1e14)])) == []


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.9, 1.1)), min_size=1, max_size=3))
def test_a_few_dots_do_not_cover_the_name_of_a_line(values: list[tuple[float, float]]) -> None:
    dots = [Dot(x, y, "") for x, y in [*values, (1.0, 0.9), (1e4, 1.1)]]
    line = Guide("10 T", [(30.0, 0.88), (30.0, 1.12)])
    root = ElementTree.fromstring(LogScatter(dots, "x", "y", [line], y_scale="linear").svg("dots"))
    (name,) = [text for text in root.iter(f"{SVG}text") if text.text == "10 T"]
    left, base = float(name.attrib["x"]), float(name.attrib["y"])
    for circle in root.iter(f"{SVG}circle"):
        x, y = float(circle.attrib["cx"]), float(circle.attrib["cy"])
        beside = x + CLEAR <= left or x - CLEAR >= left + text_width("10 T")
        apart = y + CLEAR <= base + 5 - LINE_HEIGHT or y - CLEAR >= base + 5
        assert beside or apart
