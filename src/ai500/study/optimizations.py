"""V3 Fig. 8, V2 Figs. 4 and 7, V2 Table 8: gains of optimizations, and their costs in quality.

Precisions and compression are compared with the baseline, over several scales where asked
(`optimizations_scales.py`). The learning-rate policy is compared at a large batch, with and without
linear scaling and warm-up. Dropping batch norm's weight decay gains quality and breaks a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ai500.core.errors import InputError
from ai500.metrics.quality import improvement
from ai500.records import Hyperparameters, require
from ai500.records.precision import PRECISIONS
from ai500.report.charts.dot_chart import DotRow, DotRows
from ai500.report.charts.line_chart import LineChart, Series, Style, Value
from ai500.report.section import Figure, Paragraph, Section, Table
from ai500.study.definition import Point, Study, StudyContext, StudyOptions, View, hollow_note
from ai500.study.optimizations_scales import scale_figures, undecayed_section
from ai500.study.published import SPEEDUPS, V2_POLICY_QUALITY, V2_PRECISION_LOSS
from ai500.study.records import PointResult, StudyResult
from ai500.train import learning_rate
from ai500.workloads.protocol import load_workload, sample_noun

BASELINE = "fp32"
# Gradients are sent as FP16 instead of FP32, as in V3 §4.4.2.
COMPRESSION = "fp16"
UNDECAYED = "no-batch-norm-decay"
# Steps of an epoch: at `smoke`, with 7, no policy learned well (docs/studies.md has the numbers).
MIN_STEPS = 12
# Point → label, and one that is short enough for the right edge of a figure.
POLICY = {
    "large-batch": ("scaled, warm-up", "both"),
    "large-batch-no-warm-up": ("scaled, no warm-up", "scaled only"),
    "large-batch-unscaled": ("unscaled, warm-up", "warm-up only"),
    "large-batch-neither": ("unscaled, no warm-up", "neither"),
}
STYLES: tuple[Style, ...] = ("ensemble", "mean", "target", "theoretical")


def make_points(context: StudyContext, options: StudyOptions) -> list[Point]:
    """Return the baseline, every precision, compression, both, batch norm without decay and the
    four policies; then precisions and compression at each of the scales."""
    common = size_at(context, context.accelerators)
    baseline = {**common, "train.precision": BASELINE}
    points = [*compared_points(context, common), *_undecayed(context, baseline)]
    points += _policies(context, baseline)
    for scale in options.scales:
        if scale > context.accelerators:
            raise InputError(
                f"--scales {scale}: the system has {context.accelerators} accelerators.",
                key="--scales",
                value=scale,
                remedy=f"Name numbers up to {context.accelerators}.",
            )
        if scale != context.accelerators:
            points += [
                replace(point, name=f"{point.name}-{scale}", label=f"{point.label} on {scale}")
                for point in compared_points(context, size_at(context, scale))
            ]
    return points


def size_at(context: StudyContext, scale: int) -> dict[str, Any]:
    """Return the settings of M and P_degree on `scale` accelerators."""
    degree = min(context.config.parallel.degree or context.per_node, scale)
    return {"ensemble.size": scale // degree, "parallel.degree": degree, "system.scale": scale}


def compared_points(context: StudyContext, common: dict[str, Any]) -> list[Point]:
    """Return every precision, and with several ranks compression alone and with mixed precision."""
    points = [
        Point(name, name, {**common, "train.precision": name}, optional=name != BASELINE)
        for name in PRECISIONS
    ]
    if common["parallel.degree"] == 1:
        return points
    compressed = {**common, "communication.precision": COMPRESSION}
    mixed = "mixed-bf16" if context.plan.device == "cpu" else "mixed-fp16"
    return [
        *points,
        Point("compression", f"{COMPRESSION} gradients",
              {**compressed, "train.precision": BASELINE}),
        Point("both", f"{mixed}, {COMPRESSION} gradients",
              {**compressed, "train.precision": mixed}, optional=True),
    ]  # fmt: skip


def _undecayed(context: StudyContext, baseline: dict[str, Any]) -> list[Point]:
    """Return V2 Table 8 as a point, for workloads whose reference is SGD."""
    if context.plan.hyperparameters.optimizer != "sgd":
        return []
    overrides = {**baseline, "train.optimizer": "sgd_no_vector_decay"}
    return [Point(UNDECAYED, "no decay of batch norm", overrides)]


def _policies(context: StudyContext, common: dict[str, Any]) -> list[Point]:
    """Return the policies at the largest batch that leaves enough steps in an epoch."""
    plan = context.plan_for(common)
    factor = next(
        (multiple for multiple in (8, 4, 2) if plan.steps_per_epoch // multiple >= MIN_STEPS), None
    )
    if factor is None:
        return []
    hyper = plan.hyperparameters
    large = {**common, "train.accumulation": factor * hyper.accumulation}
    unscaled = {"train.base_learning_rate": hyper.base_learning_rate / factor}
    no_warm_up = {"train.warmup_epochs": 0.0}
    size = plan.global_batch_size * factor
    changes: tuple[dict[str, Any], ...] = ({}, no_warm_up, unscaled, {**unscaled, **no_warm_up})
    return [
        Point(name, f"batch {size}, {label}", {**large, **change})
        for (name, (label, _)), change in zip(POLICY.items(), changes, strict=True)
    ]


def view(result: StudyResult) -> View:
    """Show speed and quality against the baseline, and the policies against each other."""
    by_name = result.by_name()
    scale = max(point.score.system_scale for point in result.points)
    points = {n: point for n, point in by_name.items() if point.score.system_scale == scale}
    baseline = points.get(BASELINE)
    left_out = (*POLICY, BASELINE, UNDECAYED)
    compared = [point for name, point in points.items() if name not in left_out]
    policies = [points[name] for name in POLICY if name in points]
    figures: list[Figure] = []
    sections: list[Section] = []
    lines: list[str] = []
    if baseline is not None and compared:
        lines += sentences(baseline, compared, workload=result.workload)
        figures.append(speed_figure(baseline, compared, workload=result.workload))
        figures.append(quality_figure(baseline, compared))
        note = (
            f"Baseline: {BASELINE}, gradients not compressed. Quality in points of "
            f"{baseline.score.quality_name}."
        )
        sections.append(
            Section("Against the baseline", [Paragraph(note), table(baseline, compared)])
        )
    if baseline is not None and UNDECAYED in points:
        sections.append(undecayed_section(baseline, points[UNDECAYED], workload=result.workload))
    if len(by_name) > len(points):
        plain = [point for name, point in by_name.items() if name not in (*POLICY, UNDECAYED)]
        figures += scale_figures(plain, workload=result.workload)
    if policies:
        lines.append(_policy_sentence(policies))
        figures += [rate_figure(policies), policy_figure(policies, workload=result.workload)]
    published = SPEEDUPS.get(result.workload, ())
    if published:
        rows = [(gain.optimization, f"{gain.ratio:.2f}", gain.source) for gain in published]
        columns = ("optimization", "FLOPS / original", "source")
        origin = Paragraph("On nodes of 8 V100 over 10 GbE; published, not measured here.")
        table_of_papers = Table(columns, rows, numbers=(1,))
        sections.append(Section("Published results", [origin, table_of_papers]))
    return View(lines or ["The baseline has no result yet."], figures, sections)


def sentences(
    baseline: PointResult, compared: Sequence[PointResult], *, workload: str
) -> list[str]:
    """Name the best by VFLOPS and the worst by quality, and the uncertainty."""
    best = max(compared, key=lambda point: point.vflops)
    trials = min(len(point.score.trials) for point in (baseline, *compared))
    lines = []
    gain = ratio(best.vflops, baseline.vflops)
    if baseline.timing_valid and best.timing_valid and gain is not None:
        lines.append(
            f"By VFLOPS the best is {best.label}, {gain:.2f} times the baseline."
            if gain > 1
            else "By VFLOPS the best is the baseline."
        )
    direction = load_workload(workload).quality_direction
    losses = {
        point.label: improvement(
            baseline.ensemble_quality, over=point.ensemble_quality, direction=direction
        )
        for point in compared
    }
    worst = max(losses, key=losses.__getitem__)
    lost = losses[worst]
    lines.append(
        f"The worst quality is that of {worst}: {100 * lost:.2f} points worse than the "
        f"baseline's {baseline.ensemble_quality:.4f}."
        if lost > 0
        else "None has a worse quality than the baseline."
    )
    if workload == "image_classification":
        small, large = (100 * V2_PRECISION_LOSS[nodes] for nodes in (1, 8))
        lines.append(
            f"V2 Fig. 4 found that mixed precision costs {small:.2f} points of accuracy on one "
            f"node, and about {large:.0f} on eight."
        )
    if trials == 1:
        lines.append(
            "One trial a point: a difference below the run-to-run variation, which ai500 study "
            "repeatability measures, says nothing; --runs repeats every point."
        )
    return lines


def ratio(value: float, baseline: float) -> float | None:
    """Return the multiple of the baseline; None: it is 0, as VFLOPS are if nothing was learned."""
    return value / baseline if baseline else None


def speed_figure(
    baseline: PointResult, compared: Sequence[PointResult], *, workload: str
) -> Figure:
    """Plot V3 Fig. 8, with its own ratios below ours."""
    title = "Speed against the baseline"
    rows = [
        DotRow(
            point.label,
            [] if valid is None else [valid],
            trusted=point.timing_valid and baseline.timing_valid,
            secondary=[point.flops / baseline.flops],
        )
        for point in compared
        for valid in [ratio(point.vflops, baseline.vflops)]
    ]
    published = SPEEDUPS.get(workload, ())
    rows += [
        DotRow(f"{gain.source[:2]}: {gain.optimization}", [gain.ratio], "member")
        for gain in published
    ]
    chart = DotRows(rows, x_title="times the baseline", reference=1.0)

    return Figure(
        title,
        chart,
        "Large, blue: VFLOPS. Small, orange: FLOPS. VFLOPS left of FLOPS: the speed cost quality. "
        + hollow_note((baseline, *compared)),
    )


def quality_figure(baseline: PointResult, compared: Sequence[PointResult]) -> Figure:
    """Plot V2 Fig. 4, right."""
    title = f"Quality: {baseline.score.quality_name}"
    rows = [
        DotRow(point.label, _qualities(point), "mean" if point is baseline else "ensemble")
        for point in (baseline, *compared)
    ]
    chart = DotRows(
        rows,
        x_title=baseline.score.quality_name,
        reference=baseline.score.target_quality,
    )
    return Figure(title, chart, "Each trial's ensemble. Dashed: the target.")


def _qualities(point: PointResult) -> list[float]:
    return [require(trial.ensemble_quality, "ensemble_quality") for trial in point.score.trials]


def table(baseline: PointResult, compared: Sequence[PointResult]) -> Table:
    """List speed, quality and VFLOPS of each optimization."""
    rows = []
    for point in compared:
        speed = point.flops / baseline.flops
        valid = ratio(point.vflops, baseline.vflops)
        quality_points = 100 * (point.ensemble_quality - baseline.ensemble_quality)
        rows.append((
            point.label,
            f"{speed:.3f}",
            f"{quality_points:+.2f}",
            "–" if valid is None else f"{valid:.3f}",
            verdict(speed, valid, trusted=point.timing_valid and baseline.timing_valid),
        ))  # fmt: skip
    columns = ("optimization", "FLOPS / baseline", "quality, points", "VFLOPS / baseline", "")
    return Table(columns, rows, numbers=(1, 2, 3))


def verdict(speed: float, valid: float | None, *, trusted: bool) -> str:
    """Judge an optimization by its two ratios."""
    if not trusted:
        return "speed not meaningful"
    if valid is None:
        return "the baseline has no valid speed"
    if speed > 1 >= valid:
        return "faster, but the loss of quality outweighs it"
    if valid > 1:
        return "worth it" if speed > 1 else "slower, but better"
    return "not worth it here"


def rate_figure(policies: Sequence[PointResult]) -> Figure:
    """Plot V2 Fig. 7a."""
    title = "Learning rate of each policy"
    series = [
        Series(POLICY[point.name][1], _rates(point), style, dots="none")
        for point, style in zip(policies, STYLES, strict=False)
    ]
    chart = LineChart(series, x_title="epoch", y_title="learning rate", whole_x=False)
    return Figure(title, chart, f"At a batch of {_batch(policies[0])}.")


def _batch(point: PointResult) -> str:
    return f"{point.global_batch_size:,} {sample_noun(point.score.workload)}s"


def _rates(point: PointResult) -> list[Value]:
    """Return the learning rate over epochs, as planned."""
    hyper = Hyperparameters(
        epochs=point.epochs, batch_size=1, optimizer="", base_learning_rate=point.learning_rate,
        reference_batch_size=1, schedule=point.schedule, warmup_epochs=point.warmup_epochs,
        momentum=0.0, weight_decay=0.0, decay_epochs=point.decay_epochs,
        decay_power=point.decay_power,
    )  # fmt: skip
    rate = learning_rate.learning_rate_of(
        hyper, peak=point.learning_rate, steps_per_epoch=point.steps_per_epoch
    )
    total = point.epochs * point.steps_per_epoch
    steps = sorted({round(index * (total - 1) / 200) for index in range(201)})
    return [Value(step / point.steps_per_epoch, rate(step)) for step in steps]


def policy_figure(policies: Sequence[PointResult], *, workload: str) -> Figure:
    """Plot V2 Fig. 7b, with its two values below ours."""
    name = policies[0].score.quality_name
    title = f"Learning-rate policy at a large batch: {name}"
    rows = [DotRow(POLICY[point.name][0], _qualities(point)) for point in policies]
    caption = "Dashed: the target."
    if workload == "image_classification":
        rows += [
            DotRow(f"V2: {label}", [quality], "member")
            for label, quality in zip(("neither", "both"), V2_POLICY_QUALITY, strict=True)
        ]
        caption += " Grey: V2 Fig. 7b, ResNet-50 on ImageNet at batch 8192."
    target = policies[0].score.target_quality
    chart = DotRows(rows, x_title=name, reference=target)
    return Figure(title, chart, caption)


def _policy_sentence(policies: Sequence[PointResult]) -> str:
    qualities = {point.name: point.ensemble_quality for point in policies}
    if {"large-batch", "large-batch-neither"} <= set(qualities):
        gain = 100 * (qualities["large-batch"] - qualities["large-batch-neither"])
        return (
            f"At a batch of {_batch(policies[0])} linear scaling and warm-up together change "
            f"{policies[0].score.quality_name} by {gain:+.2f} points."
        )
    return f"Learning-rate policies were compared at a batch of {_batch(policies[0])}."


STUDY = Study(
    name="optimizations",
    title="What optimizations gain and cost",
    source="V3 Fig. 8, V2 Figs. 4 and 7, V2 Table 8",
    controls=(
        "ensemble.size", "ensemble.members_per_accelerator", "train.precision",
        "communication.precision", "train.accumulation",
    ),
    points=make_points,
    view=view,
)  # fmt: skip
