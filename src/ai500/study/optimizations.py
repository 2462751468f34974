"""V3 Fig. 8, V2 Figs. 4 and 7: what an optimization gains in speed, and what it costs in quality.

Precisions and compression are compared with the baseline. The learning-rate policy is compared at
a large batch, with and without linear scaling and warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ai500.metrics.quality import improvement
from ai500.records import Hyperparameters
from ai500.records.precision import PRECISIONS
from ai500.report.charts.dot_chart import DotRow, DotRows
from ai500.report.charts.line_chart import LineChart, Series, Style, Value
from ai500.report.section import Figure, Table
from ai500.study.definition import Choices, Ground, Point, Study, View, by_name
from ai500.study.published import SPEEDUPS, V2_POLICY_QUALITY, V2_PRECISION_LOSS
from ai500.study.records import PointResult, StudyResult
from ai500.train import learning_rate
from ai500.workloads.protocol import load_workload

BASELINE = "fp32"
COMPRESSION = "fp16"
"""What V3 §4.4.2 sends instead of FP32."""
LEAST_STEPS = 12
"""Of an epoch: at `smoke`, with 7, no policy learned well (docs/studies.md has the numbers)."""
POLICY = {
    "large-batch": "scaled, warm-up",
    "large-batch-no-warm-up": "scaled, no warm-up",
    "large-batch-unscaled": "unscaled, warm-up",
    "large-batch-neither": "unscaled, no warm-up",
}
STYLES: tuple[Style, ...] = ("ensemble", "mean", "target", "theoretical")


def points(ground: Ground, choices: Choices) -> list[Point]:
    """The baseline, every precision, compression, both, and the four policies."""
    del choices
    scale = ground.accelerators
    degree = ground.config.parallel.degree or min(ground.per_node, scale)
    common = {
        "ensemble.size": scale // degree,
        "parallel.degree": degree,
        "system.scale": scale,
    }
    found = [
        Point(name, name, {**common, "train.precision": name}, optional=name != BASELINE)
        for name in PRECISIONS
    ]
    compressed = {**common, "communication.precision": COMPRESSION}
    if degree > 1:
        mixed = "mixed-bf16" if ground.plan.device == "cpu" else "mixed-fp16"
        found += [
            Point("compression", f"{COMPRESSION} gradients",
                  {**compressed, "train.precision": BASELINE}),
            Point("both", f"{mixed}, {COMPRESSION} gradients",
                  {**compressed, "train.precision": mixed}, optional=True),
        ]  # fmt: skip
    return [*found, *_policies(ground, {**common, "train.precision": BASELINE})]


def _policies(ground: Ground, common: dict[str, Any]) -> list[Point]:
    """A batch as many times the reference's as leaves enough steps; linear scaling undone."""
    plan = ground.planned(common)
    factor = next((f for f in (8, 4, 2) if plan.steps_per_epoch // f >= LEAST_STEPS), None)
    if factor is None:
        return []
    hyper = plan.hyperparameters
    large = {**common, "train.accumulation": factor * hyper.accumulation}
    unscaled = {"train.base_learning_rate": hyper.base_learning_rate / factor}
    without = {"train.warmup_epochs": 0.0}
    size = plan.global_batch_size * factor
    changes: tuple[dict[str, Any], ...] = ({}, without, unscaled, {**unscaled, **without})
    return [
        Point(name, f"batch {size}, {words}", {**large, **change})
        for (name, words), change in zip(POLICY.items(), changes, strict=True)
    ]


def view(result: StudyResult) -> View:
    """Speed and quality against the baseline; the policies against each other."""
    found = by_name(result)
    baseline = found.get(BASELINE)
    compared = [one for name, one in found.items() if name not in POLICY and name != BASELINE]
    policies = [found[name] for name in POLICY if name in found]
    figures: list[Figure] = []
    tables: list[tuple[str, str, Table]] = []
    said: list[str] = []
    if baseline is not None and compared:
        said += sentences(baseline, compared, workload=result.workload)
        figures.append(speed_figure(baseline, compared, workload=result.workload))
        figures.append(quality_figure(baseline, compared))
        tables.append((
            "Against the baseline",
            f"Baseline: {BASELINE}, gradients as they are. Quality in points of "
            f"{baseline.score.quality_name}.",
            table(baseline, compared),
        ))  # fmt: skip
    if policies:
        said.append(_policy_words(policies))
        figures += [rate_figure(policies), policy_figure(policies, workload=result.workload)]
    published = SPEEDUPS.get(result.workload, ())
    if published:
        rows = [(one.what, f"{one.ratio:.2f}", one.source) for one in published]
        tables.append((
            "What the papers found",
            "On nodes of 8 V100 over 10 GbE; recorded, not ours.",
            Table(("optimization", "FLOPS / original", "source"), rows, numbers=(1,)),
        ))  # fmt: skip
    return View(said or ["The baseline has no result yet."], figures, tables)


def sentences(
    baseline: PointResult, compared: Sequence[PointResult], *, workload: str
) -> list[str]:
    """Which one VFLOPS favours, which one costs most, and how sure that is."""
    best = max(compared, key=lambda one: one.score.vflops)
    trials = min(len(one.score.trials) for one in (baseline, *compared))
    said = []
    gain = ratio(best.score.vflops, baseline.score.vflops)
    if baseline.trusted and best.trusted and gain is not None:
        said.append(
            f"By VFLOPS the best is {best.label}, {gain:.2f} times the baseline."
            if gain > 1
            else "By VFLOPS the best is the baseline."
        )
    direction = load_workload(workload).quality_direction
    losses = {
        one.label: improvement(
            baseline.score.ensemble_quality, over=one.score.ensemble_quality, direction=direction
        )
        for one in compared
    }
    worst = max(losses, key=losses.__getitem__)
    lost = losses[worst]
    said.append(
        f"The worst quality is that of {worst}: {100 * lost:.2f} points worse than the "
        f"baseline's {baseline.score.ensemble_quality:.4f}."
        if lost > 0
        else "None has a worse quality than the baseline."
    )
    if workload == "image_classification":
        small, large = (100 * V2_PRECISION_LOSS[nodes] for nodes in (1, 8))
        said.append(
            f"V2 Fig. 4 found that mixed precision costs {small:.2f} points of accuracy on one "
            f"node, and about {large:.0f} on eight."
        )
    if trials == 1:
        said.append(
            "One trial a point: a difference below the run-to-run variation, which ai500 study "
            "repeatability measures, says nothing; --runs repeats every point."
        )
    return said


def ratio(value: float, baseline: float) -> float | None:
    """Times the baseline; None: that is 0, as VFLOPS are where nothing was learned."""
    return value / baseline if baseline else None


def speed_figure(
    baseline: PointResult, compared: Sequence[PointResult], *, workload: str
) -> Figure:
    """V3 Fig. 8, its own ratios below ours."""
    title = "Speed against the baseline"
    rows = [
        DotRow(
            one.label,
            [] if valid is None else [valid],
            trusted=one.trusted and baseline.trusted,
            secondary=[one.score.flops / baseline.score.flops],
        )
        for one in compared
        for valid in [ratio(one.score.vflops, baseline.score.vflops)]
    ]
    published = SPEEDUPS.get(workload, ())
    rows += [DotRow(f"{one.source[:2]}: {one.what}", [one.ratio], "member") for one in published]
    chart = DotRows(rows, x_title="times the baseline", reference=1.0)
    hollow = all(one.trusted for one in (baseline, *compared))
    return Figure(
        title,
        chart,
        "Large, blue: VFLOPS. Small, orange: FLOPS. Where VFLOPS lie left of FLOPS, quality paid "
        "for the speed." + ("" if hollow else " Hollow: the speed is not meaningful."),
    )


def quality_figure(baseline: PointResult, compared: Sequence[PointResult]) -> Figure:
    """V2 Fig. 4, right."""
    title = f"Quality: {baseline.score.quality_name}"
    rows = [
        DotRow(one.label, _qualities(one), "mean" if one is baseline else "ensemble")
        for one in (baseline, *compared)
    ]
    chart = DotRows(
        rows,
        x_title=baseline.score.quality_name,
        reference=baseline.score.target_quality,
    )
    return Figure(title, chart, "Each trial's ensemble. Dashed: the target.")


def _qualities(one: PointResult) -> list[float]:
    return [trial.ensemble_quality for trial in one.score.trials]


def table(baseline: PointResult, compared: Sequence[PointResult]) -> Table:
    """Each optimization in three numbers."""
    rows = []
    for one in compared:
        speed = one.score.flops / baseline.score.flops
        valid = ratio(one.score.vflops, baseline.score.vflops)
        points = 100 * (one.score.ensemble_quality - baseline.score.ensemble_quality)
        rows.append((
            one.label,
            f"{speed:.3f}",
            f"{points:+.2f}",
            "–" if valid is None else f"{valid:.3f}",
            verdict(speed, valid, trusted=one.trusted and baseline.trusted),
        ))  # fmt: skip
    columns = ("optimization", "FLOPS / baseline", "quality, points", "VFLOPS / baseline", "")
    return Table(columns, rows, numbers=(1, 2, 3))


def verdict(speed: float, valid: float | None, *, trusted: bool) -> str:
    """What the two ratios say together."""
    if not trusted:
        return "speed not meaningful"
    if valid is None:
        return "the baseline has no valid speed"
    if speed > 1 >= valid:
        return "faster, but quality takes more than it gives"
    if valid > 1:
        return "worth it" if speed > 1 else "slower, but better"
    return "not worth it here"


def rate_figure(policies: Sequence[PointResult]) -> Figure:
    """V2 Fig. 7a."""
    title = "Learning rate of each policy"
    series = [
        Series(_words(one), _rates(one), style, dots="none")
        for one, style in zip(policies, STYLES, strict=False)
    ]
    chart = LineChart(series, x_title="epoch", y_title="learning rate", whole_x=False)
    return Figure(title, chart, f"At a batch of {policies[0].global_batch_size:,} images.")


def _words(one: PointResult) -> str:
    """Short enough for the right edge."""
    return {
        "large-batch": "both",
        "large-batch-no-warm-up": "scaled only",
        "large-batch-unscaled": "warm-up only",
        "large-batch-neither": "neither",
    }[one.name]


def _rates(one: PointResult) -> list[Value]:
    """The rate over epochs, from what the run was planned with."""
    hyper = Hyperparameters(
        epochs=one.epochs, batch_size=1, optimizer="", base_learning_rate=one.learning_rate,
        reference_batch_size=1, schedule=one.schedule, warmup_epochs=one.warmup_epochs,
        momentum=0.0, weight_decay=0.0, decay_epochs=one.decay_epochs,
        decay_power=one.decay_power,
    )  # fmt: skip
    rate = learning_rate.learning_rate_of(
        hyper, peak=one.learning_rate, steps_per_epoch=one.steps_per_epoch
    )
    total = one.epochs * one.steps_per_epoch
    steps = sorted({round(at * (total - 1) / 200) for at in range(201)})
    return [Value(step / one.steps_per_epoch, rate(step)) for step in steps]


def policy_figure(policies: Sequence[PointResult], *, workload: str) -> Figure:
    """V2 Fig. 7b, its own two below ours."""
    name = policies[0].score.quality_name
    title = f"Learning-rate policy at a large batch: {name}"
    rows = [DotRow(POLICY[one.name], _qualities(one)) for one in policies]
    caption = "Dashed: the target."
    if workload == "image_classification":
        rows += [
            DotRow(f"V2: {words}", [found], "member")
            for words, found in zip(("neither", "both"), V2_POLICY_QUALITY, strict=True)
        ]
        caption += " Grey: V2 Fig. 7b, ResNet-50 on ImageNet at batch 8192."
    target = policies[0].score.target_quality
    chart = DotRows(rows, x_title=name, reference=target)
    return Figure(title, chart, caption)


def _policy_words(policies: Sequence[PointResult]) -> str:
    found = {one.name: one.score.ensemble_quality for one in policies}
    size = policies[0].global_batch_size
    if {"large-batch", "large-batch-neither"} <= set(found):
        gain = 100 * (found["large-batch"] - found["large-batch-neither"])
        return (
            f"At a batch of {size:,} images linear scaling and warm-up together change "
            f"{policies[0].score.quality_name} by {gain:+.2f} points."
        )
    return f"Learning-rate policies were compared at a batch of {size:,} images."


STUDY = Study(
    name="optimizations",
    title="What optimizations gain and cost",
    source="V3 Fig. 8, V2 Figs. 4 and 7",
    varies=(
        "ensemble.size", "ensemble.members_per_accelerator", "train.precision",
        "communication.precision", "train.accumulation",
    ),
    points=points,
    view=view,
)  # fmt: skip
