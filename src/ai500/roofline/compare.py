"""Several runs under one roofline (V2 Fig. 9, §7.4): precisions and compressions in one plot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ai500.core.atomic import write_text
from ai500.core.errors import InputError
from ai500.records import Plan
from ai500.report.charts.roofline import Mark, Roof, RooflineChart, Slope
from ai500.report.formats import flops
from ai500.report.page import Page, render
from ai500.report.section import Figure, Grid, Section, Table
from ai500.roofline.page import measured_at, placement_chart, point_figures
from ai500.roofline.records import Placed, RunPlacement

FILE_NAME = "roofline-compare.html"


def label_of(plan: Plan) -> str:
    """Name a run by what V2 §7.4 varies: precision and compression."""
    sent, precision = plan.communication.precision, plan.hyperparameters.precision
    return precision if sent == "fp32" else f"{precision}, {sent} sent"


def comparison_figures(placements: Mapping[str, RunPlacement]) -> list[Figure]:
    """Return a figure for each model and subject that all runs have, with a mark for each run."""
    first = next(iter(placements.values()))
    figures = []
    for placed in first.placed:
        charts: dict[str, RooflineChart] = {}
        marks: list[Mark] = []
        for label, placement in placements.items():
            kind = (placed.model, placed.subject, placed.ranks, placed.nodes)
            points = {(p.model, p.subject, p.ranks, p.nodes): p for p in placement.placed}
            if kind in points:
                charts[label] = placement_chart(placement, points[kind])
                mark = _limiting(points[kind], charts[label])
                marks.append(replace(mark, name=label + (", COI ∞" if mark.coi is None else "")))
        roofs: dict[str, Roof] = {r.name: r for chart in charts.values() for r in chart.roofs}
        slopes: dict[str, Slope] = {s.name: s for chart in charts.values() for s in chart.slopes}
        chart = RooflineChart(list(roofs.values()), list(slopes.values()), marks)
        title = f"{placed.subject.capitalize()}s, {placed.model} model"
        caption = (
            "Compression moves a run to the right (fewer bytes per operation), a lower precision "
            "raises the ceiling above it (V2 §6, Fig. 9). Each run is at the COI of the links that "
            "limit it."
        )
        figures.append(Figure(title, chart, caption))
    return figures


def _limiting(placed: Placed, chart: RooflineChart) -> Mark:
    """Return the run's mark at the links that allow the fewest FLOPS."""
    reachable = [
        math.inf if not link.bytes_per_second or not (coi := link.coi or link.analytical_coi)
        else coi * link.bytes_per_second
        for link in placed.links
    ]  # fmt: skip
    return chart.marks[reachable.index(min(reachable)) if reachable else 0]


def write_comparison(path: Path, placements: Mapping[str, RunPlacement]) -> None:
    """Write the figures and a table of all points as one self-contained HTML file."""
    first = next(iter(placements.values()))
    workloads = {placement.workload for placement in placements.values()}
    if len(workloads) > 1:
        raise InputError(
            f"--beside: one plot has one workload; these runs have {', '.join(sorted(workloads))}.",
            key="--beside",
            value=sorted(workloads),
            remedy="Name runs of one workload.",
        )
    rows = [
        (label, f"{point.subject}, {point.model}", flops(point.flops), point.bound,
         point_figures(placement, point).get("attainable", flops(point.attainable_flops)))
        for label, placement in placements.items()
        for point in placement.placed
    ]  # fmt: skip
    columns = ("run", "point", "FLOPS", "bound by", "attainable")
    workload = first.workload.replace("_", " ").capitalize()
    heading = f"{workload} under the roofline of {first.ceilings.device_name}"
    page = Page(
        title=heading,
        kicker="HPC AI500 V3.0 · rooflines of several runs (V2 Fig. 9)",
        heading=heading,
        facts=f"{first.ceilings.system.hostname} · {measured_at(first.ceilings)}",
        lead=[],
        sections=[
            Section("", [Grid(comparison_figures(placements))]),
            Section("Points", [Table(columns, rows, numbers=(2, 4))]),
        ],
    )
    write_text(path, render(page))
