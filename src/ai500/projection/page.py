"""The page of a projection, and its points as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from ai500.core.atomic import write_text
from ai500.core.units import human_seconds, human_si
from ai500.projection.answers import Answer
from ai500.projection.model import Projection
from ai500.report.charts.line_chart import LineChart, Series, Style, Value
from ai500.report.charts.svg import Ticks
from ai500.report.formats import flops, known, quality, vflops
from ai500.report.page import Page, render
from ai500.report.section import (
    Block,
    Card,
    Cards,
    Figure,
    Grid,
    Item,
    Items,
    Paragraph,
    Section,
    Table,
)


def write_page(path: Path, answer: Answer) -> None:
    """Write projection.html."""
    write_text(path, render(projection_page(answer)))


def write_csv(path: Path, answer: Answer) -> None:
    """Write one row per projected point, every number in its unit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(Projection)]
    writer.writerow(["curve", *names])
    curves = {
        "chosen": [answer.projection],
        "choices": answer.choices,
        "ensemble": answer.ensemble_sweep,
        "data parallel": answer.data_parallel_sweep,
    }
    for curve, points in curves.items():
        for point in points:
            values = [getattr(point, name) for name in names]
            writer.writerow([curve, *("" if value is None else value for value in values)])
    write_text(path, text.getvalue())


def projection_page(answer: Answer) -> Page:
    """Assemble the page."""
    point = answer.projection
    grown = " (grown beyond its size by the same shape)" if answer.grown else ""
    sections = [_choices(answer), _gains(answer)]
    if answer.ensemble_sweep:
        sections.insert(0, _sweep(answer))
    assumed = [Item(text) for text in answer.assumptions]
    sections.append(
        Section(
            "What was assumed",
            [Items(assumed), Paragraph(f"{answer.system}: {answer.source}")],
        )
    )
    return Page(
        title=f"{answer.run} on {answer.system}",
        kicker=f"HPC AI500 · projection, not a measurement · {answer.workload.replace('_', ' ')} · "
        f"class {answer.problem_class}",
        heading=f"{answer.run} on {answer.system}",
        facts=f"{point.accelerators:,} × {answer.accelerator}{grown} · {point.nodes:,} nodes · "
        f"ai500 {answer.version}",
        lead=[_cards(point), Paragraph(sentence(answer), "lead")],
        sections=sections,
        footer=["A projection is no result: it can't be submitted or ranked."],
    )


def sentence(answer: Answer) -> str:
    """Describe the chosen point and what bounds it."""
    point = answer.projection
    text = (
        f"M = {point.ensemble_size:,} members of P_degree {point.parallel_degree} would run at "
        f"{flops(point.flops)} ({flops(point.low_flops)} to {flops(point.high_flops)}), "
        f"{point.efficiency:.0%} of the same accelerators without communication, evaluation and "
        f"waiting; {point.bound} takes the largest part of the time."
    )
    if answer.wanted_quality is not None:
        best = answer.best
        text += (
            f" No choice reaches quality {answer.wanted_quality:g}."
            if best is None
            else f" Quality {answer.wanted_quality:g} is reached soonest by M = "
            f"{best.ensemble_size:,}, P_degree {best.parallel_degree} "
            f"({best.accelerators:,} accelerators): {human_seconds(best.seconds)}, in steps of "
            f"{best.global_batch_size:,} samples; what a larger batch costs in quality is not "
            "projected."
        )
    return text


def projected_quality(point: Projection) -> str:
    """Format a quality with the scatter of its trials."""
    scatter = point.quality_uncertainty
    return quality(point.quality) + ("" if scatter is None else f" ± {scatter:.4f}")


def _cards(point: Projection) -> Cards:
    mark = ", extrapolated" if point.quality_extrapolated else ""
    return Cards(
        [
            Card(
                "FLOPS",
                flops(point.flops),
                f"{human_si(point.low_flops)} to {human_si(point.high_flops)}",
            ),
            Card(
                "VFLOPS",
                known(point.vflops, vflops, "not known"),
                f"quality {projected_quality(point)}{mark}",
            ),
            Card(
                "time",
                human_seconds(point.seconds),
                f"and {human_seconds(point.staging_seconds)} of staging before it",
            ),
            Card(
                "energy",
                known(point.energy_joules, lambda joules: f"{human_si(joules)}J", "not known"),
                "nodes at their stated power",
            ),
        ]
    )


def choices_table(points: Sequence[Projection]) -> Table:
    """List every P_degree."""
    rows = [
        (
            f"{point.ensemble_size:,} × {point.parallel_degree:,}",
            f"{point.global_batch_size:,}",
            human_seconds(point.step_seconds),
            human_seconds(point.exposed_seconds),
            flops(point.flops),
            f"{point.efficiency:.1%}",
            projected_quality(point) + ("*" if point.quality_extrapolated else ""),
            known(point.vflops, lambda value: f"{human_si(value)}VFLOPS", "not known"),
            human_seconds(point.seconds),
            point.bound,
        )
        for point in points
    ]
    columns = ("M × P_degree", "batch", "step", "exposed", "FLOPS", "efficiency", "quality",
               "VFLOPS", "time", "bound by")  # fmt: skip
    most = max((point.accelerators for point in points), default=0)
    idle = ", ".join(
        f"{most - point.accelerators:,} at P_degree {point.parallel_degree:,}"
        for point in points
        if point.accelerators < most
    )
    note = "* extrapolated: beyond the run's M, or at another P_degree than the run's."
    if idle:
        note += f" Accelerators that make no whole member are idle: {idle}."
    return Table(columns, rows, numbers=tuple(range(1, 9)), note=note)


def _choices(answer: Answer) -> Section:
    return Section("M and P_degree", [choices_table(answer.choices)])


def _gains(answer: Answer) -> Section:
    rows = [(gain.part, f"{gain.flops_gain:.3f}×", f"{gain.total_gain:.3f}×")
            for gain in answer.gains]  # fmt: skip
    columns = ("doubled", "FLOPS", "speed with staging")
    return Section("What doubling a part would bring", [Table(columns, rows, numbers=(1, 2))])


def _sweep(answer: Answer) -> Section:
    blocks: list[Block] = [
        Grid(
            [
                Figure(
                    "Scaling efficiency",
                    _chart(answer, "efficiency"),
                    "FLOPS per accelerator over that of one accelerator alone (V3 Fig. 9, beyond "
                    "its scale). Areas: uncertainty.",
                ),
                Figure(
                    "FLOPS",
                    _chart(answer, "flops"),
                    "Both axes are logarithmic. Areas: uncertainty.",
                ),
            ]
        )
    ]
    if answer.data_limit is not None:
        text = (
            f"From {answer.data_limit:,} accelerators on, a step of one model by data parallelism "
            "holds more samples than an epoch: its rate is shown, it could not learn."
        )
        blocks.append(Paragraph(text, "warning"))
    return Section("From one node to 100,000 accelerators", blocks)


def _chart(answer: Answer, figure: str) -> LineChart:
    every = [*answer.ensemble_sweep, *answer.data_parallel_sweep]
    logarithmic = figure == "flops"

    def scaled(value: float) -> float:
        return math.log10(value) if logarithmic else value

    def value(point: Projection) -> Value:
        share = point.efficiency / point.flops
        factor = 1.0 if logarithmic else share
        return Value(
            math.log10(point.accelerators),
            scaled(point.flops * factor),
            low=scaled(point.low_flops * factor),
            high=scaled(point.high_flops * factor),
        )

    curves: tuple[tuple[str, Sequence[Projection], Style], ...] = (
        ("ensemble", answer.ensemble_sweep, "ensemble"),
        ("one model", answer.data_parallel_sweep, "mean"),
    )
    series = [
        Series(name, [value(point) for point in points], style, band=True)
        for name, points, style in curves
    ]
    decades = range(math.floor(math.log10(min(point.accelerators for point in every))), 6)
    x_ticks = Ticks(tuple(map(float, decades)), tuple(f"{10**d:,}" for d in decades))
    y_ticks = None
    if logarithmic:
        low = math.floor(math.log10(min(point.low_flops for point in every)))
        high = math.ceil(math.log10(max(point.high_flops for point in every)))
        powers = range(low, high + 1)
        y_ticks = Ticks(tuple(map(float, powers)), tuple(f"{human_si(10.0**p)}" for p in powers))
    return LineChart(
        [item for item in series if item.values],
        "accelerators",
        "FLOPS" if logarithmic else "efficiency",
        x_ticks=x_ticks,
        y_ticks=y_ticks,
        from_zero=not logarithmic,
    )
