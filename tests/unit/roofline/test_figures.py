"""Figures and pages of a roofline: what they show, and that no two labels overlap."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ai500.report.charts import svg
from ai500.report.charts.roofline import Mark, Roof, RooflineChart, Slope, layout
from ai500.report.section import Paragraph, Table
from ai500.roofline import page as pages
from ai500.roofline.page import record_chart, record_roofs, record_slopes
from ai500.roofline.records import Advice, Placed, RunPlacement, units_of_node
from tests.support.synthetic_roofline import synthetic_roofline


def test_a_nodes_figure_has_roofs_and_slopes_of_the_whole_node() -> None:
    """Kernels ran on one of four accelerators whose links were measured."""
    record = synthetic_roofline()
    assert (record.units, units_of_node(record)) == (1, 4)
    slopes = {slope.name: slope.bytes_per_second for slope in record_slopes(record)}
    roofs = {roof.name: roof.flops for roof in record_roofs(record, share=units_of_node(record))}
    assert slopes["memory"] == pytest.approx(4 * 5e12)
    # 50 TFLOPS of each, 150 GB/s from each: where they meet, four are as one.
    assert roofs["GEMM FP32"] / slopes["links inside"] == pytest.approx(50e12 / 150e9)
    assert "whole node of 4 accelerators" in pages.machine_figure(record).caption
    assert "200 T" in record_chart(record).svg("any")
    assert units_of_node(replace(record, unit="core", units=8)) == 1


def test_far_below_its_roof_no_roof_is_blamed_alone() -> None:
    point = Placed("single node", "member", 1, 2, 4e12, "GEMM FP32", 1e13, None, (), 1e13,
                   "computation", "computation", ())  # fmt: skip
    assert "something else limits it; see `ai500 profile`" in pages.sentence(point)
    assert "neither" not in pages.sentence(replace(point, flops=6e12))


def test_a_run_above_its_roof_doubts_the_ceilings_and_concludes_nothing() -> None:
    """2.69 times the ceiling was once printed as a fact; 1.02 times is within the noise."""
    advice = Advice("training in fp16", "x", 1, 2, "computation", 2.0, 3.0, "training in fp16: y")
    point = Placed("single node", "member", 1, 2, 2.69e13, "GEMM FP32", 1e13, None, (), 1e13,
                   "not known", "not known", (advice,))  # fmt: skip
    placement = a_placement(point)
    assert "ceilings were measured too low" in pages.sentence(point)
    assert "bounds it" not in pages.sentence(point)
    figures = pages.point_figures(placement, point)
    assert figures["attained / attainable"] == "above its roof: ceilings in doubt"
    assert pages.advice_blocks(placement) == []
    near = replace(point, flops=1.01e13)
    assert not near.above_roof and replace(point, flops=1.03e13).above_roof
    assert len(pages.advice_blocks(a_placement(near))) == 1


def test_changes_without_a_gain_are_one_sentence() -> None:
    gains = [("A", 1.5), ("B", 1.0), ("C", 0.5), ("D", None)]
    advice = tuple(Advice(n, "x", 1, 2, "computation", gain, gain, f"{n}: y") for n, gain in gains)
    point = Placed("single node", "member", 1, 1, 5e12, "GEMM FP32", 1e13, None, (), 1e13,
                   "computation", "computation", advice)  # fmt: skip
    table, sentence = pages.advice_blocks(a_placement(point))
    assert isinstance(table, Table) and [row[0] for row in table.rows] == ["A", "D"]
    assert sentence == Paragraph("Nothing to gain for the member from B, C.")
    ensemble = replace(point, subject="ensemble")
    of_both = pages.nothing_to_gain([point, ensemble])
    assert of_both == "Nothing to gain for the member and the ensemble from B, C."
    other = replace(ensemble, advice=advice[1:2])
    assert pages.nothing_to_gain([point, other]) == (
        "Nothing to gain for the member from B, C; for the ensemble from B."
    )


def a_placement(point: Placed, **changes: object) -> RunPlacement:
    placement = RunPlacement(
        run="run", workload="image_classification", precision="fp32", kernel_precision="fp32",
        convention="matmul", score_convention="aiperf", score_flops=1.0, traffic_source="none",
        warnings=(), placed=(point,), ceilings=synthetic_roofline(),
    )  # fmt: skip
    return replace(placement, **changes)  # type: ignore[arg-type]


def test_only_the_runs_precision_is_drawn_and_memory_has_a_roofline_of_its_own() -> None:
    point = Placed("single node", "member", 1, 2, 4e13, "GEMM FP32", 1e14, None, (), 1e14,
                   "computation", "computation", ())  # fmt: skip
    placement = a_placement(point)
    assert "BF16" not in pages.placement_chart(placement, point).svg("")
    without = pages.placement_figures(placement)[-1]
    assert "memory traffic was not measured" in without.caption
    assert isinstance(without.chart, RooflineChart) and not without.chart.marks
    counted = pages.placement_figures(a_placement(point, memory_bytes_per_second=1e12))[-1]
    # 20 TFLOPS on each of two accelerators that move 1 TB/s each, of 5 measured.
    assert isinstance(counted.chart, RooflineChart)
    assert counted.chart.marks == [Mark("member", 20.0, 2e13)]
    assert "(20% of the measured bandwidth) at 20 FLOP per byte" in counted.caption
    assert "FLOP per byte of memory traffic" in counted.chart.svg("")


rates = st.floats(1e8, 1e18)


@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])  # shrinking takes minutes
@given(
    roofs=st.lists(rates, min_size=1, max_size=14),
    slopes=st.lists(st.floats(1e6, 1e14), max_size=3),
    marks=st.lists(st.tuples(st.floats(0.1, 1e9), rates), max_size=3),
)
def test_no_labels_of_a_roofline_overlap(
    roofs: list[float], slopes: list[float], marks: list[tuple[float, float]]
) -> None:
    drawn = layout(
        [Roof(f"GEMM BF{number}", flops) for number, flops in enumerate(roofs)],
        [Slope(f"links {number}", rate) for number, rate in enumerate(slopes)],
        [Mark(f"point {number}", coi, flops) for number, (coi, flops) in enumerate(marks)],
    )
    for upper, other in itertools.combinations(drawn.labels, 2):
        assert not upper.box.meets(other.box), (upper.text, other.text)
    assert len(drawn.labels) == len(roofs) + len(slopes) + len(marks)
    for label in drawn.labels:
        assert label.box.left >= drawn.frame.left
        assert label.box.right <= svg.WIDTH + 1e-6
        assert label.box.top >= 0
        assert label.box.bottom <= drawn.frame.bottom + 10


def test_a_point_that_sends_nothing_stands_at_the_right_edge() -> None:
    drawn = layout([Roof("GEMM", 1e12)], [], [Mark("member, COI ∞", None, 1e11)])
    assert drawn.dots[0][0] == drawn.frame.right
    assert math.isfinite(drawn.dots[0][1])


def test_pages_escape_what_machines_are_called(tmp_path: Path) -> None:
    pages.write_page(tmp_path / "page.html", synthetic_roofline(complete=False), None)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>GPU</b>" not in text
    assert "&lt;b&gt;GPU&lt;/b&gt;" in text
    assert "Partial" in text
    assert "not derivable" in text
    assert "it is a test" in text
    assert "peak BF16" in record_chart(synthetic_roofline()).svg("any")
