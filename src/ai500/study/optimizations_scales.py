"""V3 Fig. 8, V2 Figs. 4 and 12 over scales, and V2 Table 8: parts of the study of optimizations.

V2 Fig. 12 scales one model by data parallelism: with `parallel.degree` as large as the system, M is
1 at every scale.
"""

from __future__ import annotations

from collections.abc import Sequence

from ai500.metrics.quality import improvement
from ai500.report.charts.line_chart import LineChart, Series, Style, Value
from ai500.report.section import Figure, Paragraph, Section, Table
from ai500.study.published import V2_EFFICIENCY, V2_PRECISION_LOSS, V2_TABLE_8
from ai500.study.records import PointResult
from ai500.workloads.protocol import load_workload

Line = tuple[str, str]
"""Precision and communication precision of a line."""
BASELINE: Line = ("fp32", "fp32")
STYLES: tuple[Style, ...] = ("ensemble", "mean", "target", "theoretical", "member")
GPUS_PER_NODE = 8  # of the papers' nodes


def lines_over_scales(points: Sequence[PointResult]) -> dict[Line, list[PointResult]]:
    """Return the points of each precision and compression, by ascending scale."""
    lines: dict[Line, dict[int, PointResult]] = {}
    for point in points:
        line = lines.setdefault((point.precision, point.communication_precision), {})
        line[point.score.system_scale] = point
    return {
        line: [by_scale[scale] for scale in sorted(by_scale)]
        for line, by_scale in lines.items()
        if len(by_scale) > 1
    }


def line_name(line: Line) -> str:
    """Name a line by its precision, and by that of compressed gradients."""
    precision, gradients = line
    return precision if gradients == "fp32" else f"{precision}, {gradients} sent"


def scale_figures(points: Sequence[PointResult], *, workload: str) -> list[Figure]:
    """Plot FLOPS over scale, and the quality that each line loses against FP32 (V2 Fig. 4).

    `points` vary precision, compression and scale, and nothing else.
    """
    lines = lines_over_scales(points)
    return [
        flops_figure(lines),
        efficiency_figure(lines, workload=workload),
        *loss_figures(lines, workload=workload),
    ]


def flops_figure(lines: dict[Line, list[PointResult]]) -> Figure:
    """Plot V3 Fig. 8 and V2 Fig. 12 a–f: a line for each precision and compression."""
    series = [
        Series(
            line_name(line),
            [Value(p.score.system_scale, p.flops / 1e9, p.timing_valid) for p in points],
            STYLES[number % len(STYLES)],
        )
        for number, (line, points) in enumerate(lines.items())
    ]
    chart = LineChart(series, x_title="accelerators", y_title="GFLOPS")
    return Figure("FLOPS over scale", chart, "A line for each precision and compression.")


def efficiency(points: Sequence[PointResult]) -> list[Value]:
    """Return FLOPS / (scale × FLOPS per accelerator at the smallest scale)."""
    first = points[0]
    each = first.flops / first.score.system_scale
    return [
        Value(
            point.score.system_scale,
            point.flops / (point.score.system_scale * each),
            point.timing_valid and first.timing_valid,
        )
        for point in points
    ]


def efficiency_figure(lines: dict[Line, list[PointResult]], *, workload: str) -> Figure:
    """Plot the efficiencies of V2 §7.4, with V2's own for FP32."""
    series = [
        Series(line_name(line), efficiency(points), STYLES[number % len(STYLES)])
        for number, (line, points) in enumerate(lines.items())
    ]
    caption = "FLOPS per accelerator over that at the smallest scale of the line."
    if published := V2_EFFICIENCY.get(workload):
        values = [Value(GPUS_PER_NODE * nodes, share) for nodes, share in published.items()]
        series.append(Series("V2: fp32", values, "member", published=True))
        caption += " Grey: V2 §7.4, FP32, data parallelism on V100, against 8 GPUs."
    chart = LineChart(series, x_title="accelerators", y_title="efficiency")
    return Figure("Efficiency over scale", chart, caption)


def loss_figures(lines: dict[Line, list[PointResult]], *, workload: str) -> list[Figure]:
    """Plot V2 Fig. 4, right: quality lost against FP32 at the same scale, with V2's values."""
    baseline = {point.score.system_scale: point for point in lines.get(BASELINE, ())}
    direction = load_workload(workload).quality_direction
    series = []
    for number, (line, points) in enumerate(lines.items()):
        values = [
            Value(
                point.score.system_scale,
                100
                * improvement(
                    baseline[point.score.system_scale].ensemble_quality,
                    over=point.ensemble_quality,
                    direction=direction,
                ),
            )
            for point in points
            if line != BASELINE and point.score.system_scale in baseline
        ]
        if values:
            series.append(Series(line_name(line), values, STYLES[number % len(STYLES)]))
    if not series:
        return []
    caption = "Against FP32 without compression at the same scale. Above 0: worse."
    if workload == "image_classification":
        published = [
            Value(GPUS_PER_NODE * nodes, 100 * loss) for nodes, loss in V2_PRECISION_LOSS.items()
        ]
        series.append(Series("V2: mixed", published, "member", published=True))
        caption += " Grey: V2 Fig. 4, mixed precision of ResNet-50 on V100."
    name = f"Quality lost over scale, points of {next(iter(baseline.values())).score.quality_name}"
    chart = LineChart(series, x_title="accelerators", y_title="points lost")
    return [Figure(name, chart, caption)]


def undecayed_section(baseline: PointResult, undecayed: PointResult, *, workload: str) -> Section:
    """Show V2 Table 8: the gain of dropping batch norm's decay, beside V2's."""
    gain = 100 * (undecayed.ensemble_quality - baseline.ensemble_quality)
    factor, decayed = undecayed.score.penalty_coefficient, baseline.score.penalty_coefficient
    valid = f"{factor / decayed:.3f}" if decayed else "–"
    rows = [(f"here, {baseline.score.system_scale} accelerators", f"{gain:+.2f}", valid)]
    if workload == "image_classification":
        rows += [
            (f"V2 Table 8, {gpus} GPUs", f"{100 * gained:+.2f}", f"{ratio:.2f}")
            for gpus, (gained, ratio) in V2_TABLE_8.items()
        ]
    note = (
        "SGD without weight decay on batch norm’s γ and β and on biases (V2 §5.4). Gains of VFLOPS "
        "are those of the quality factor alone. It is a change of layer 8 that the rule “weight "
        "decay on everything” finds: such a run is no valid result at the hardware level."
    )
    columns = ("system", "quality, points", "VFLOPS / with decay, at equal FLOPS")
    table = Table(columns, rows, numbers=(1, 2))
    return Section("Weight decay on batch norm", [Paragraph(note), table])
