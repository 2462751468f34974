"""V3 Fig. 5: FLOPS and VFLOPS of M = 1, 2, … members at a fixed P_degree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from ai500.core.errors import InputError
from ai500.core.units import human_seconds, si_prefix
from ai500.records import require
from ai500.report.charts.line_chart import Level, LineChart, Series, Value
from ai500.report.charts.timeline import Bar, Row, Timeline
from ai500.report.formats import flops
from ai500.report.section import Figure, Paragraph, Section, Table
from ai500.study.definition import Point, Study, StudyContext, StudyOptions, View, hollow_note
from ai500.study.published import V3_PENALTY
from ai500.study.records import MemberTime, PointResult, StudyResult
from ai500.study.words import is_search, words_of

# A straggler takes this many times as long as the median member.
STRAGGLER = 1.1
ROWS_DRAWN = 32


def make_points(context: StudyContext, options: StudyOptions) -> list[Point]:
    """Return M = 1 up to what fits at once, or up to the class's ensemble in waves [D13]."""
    degree = context.degree
    at_once = context.accelerators // degree
    if at_once < 1:
        raise InputError(
            f"parallel.degree = {degree}: one member needs more than the system's "
            f"{context.accelerators} accelerators (V3 Eq. 5).",
            key="parallel.degree",
            value=degree,
            remedy="Set a smaller parallel.degree.",
        )
    most = options.max_members or max(at_once, context.plan.definition.ensemble_size)
    return [make_point(size, degree=degree, at_once=at_once) for size in ensemble_sizes(most)]


def ensemble_sizes(most: int, *, each_up_to: int = 8) -> list[int]:
    """Return 1, 2, 3, … up to `each_up_to`, then doubled sizes, and `most`."""
    sizes = list(range(1, min(most, each_up_to) + 1))
    while sizes[-1] * 2 < most:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == most else [*sizes, most]


def make_point(size: int, *, degree: int, at_once: int) -> Point:
    """Return an ensemble of `size` on the accelerators it needs, in waves if it is too large."""
    waves = -(-size // at_once)
    return Point(
        name=f"m{size}",
        label=f"M = {size}" + (f" in {waves} waves" if waves > 1 else ""),
        overrides={
            "ensemble.size": size,
            "parallel.degree": degree,
            "system.scale": min(size, at_once) * degree,
        },
    )


def view(result: StudyResult) -> View:
    """Show V3 Fig. 5, and the members' times that explain the gap to linear."""
    points = sorted(result.points, key=lambda point: point.score.ensemble_size)
    figures = [speed_figure(points), efficiency_figure(points), quality_figure(points)]
    if not is_search(points):  # AIPerf has no penalty: its largest error is a rule
        figures.append(quality_factor_figure(points, workload=result.workload))
    figures.append(timeline_figure(points[-1], noun=words_of(points).member))
    section = Section(
        "Skew and stragglers", [Paragraph(words_of(points).skew_note), stragglers(points)]
    )
    return View(sentences(points), figures, [section])


def efficiency(point: PointResult, first: PointResult) -> float:
    """Return FLOPS over those of as many first points."""
    factor = point.score.ensemble_size / first.score.ensemble_size
    return point.flops / (factor * first.flops)


def sentences(points: Sequence[PointResult]) -> list[str]:
    """Describe the change of quality, and how near to linear the speed is."""
    first, last = points[0], points[-1]
    words = words_of(points)
    trained = words.points.format(
        first.score.ensemble_size, last.score.ensemble_size, first.score.parallel_degree
    )
    lines = [
        f"{trained} {words.result} {last.score.quality_name} goes from "
        f"{first.ensemble_quality:.4f} (M = {first.score.ensemble_size}) to "
        f"{last.ensemble_quality:.4f} (M = {last.score.ensemble_size}), the target is "
        f"{last.score.target_quality:g}."
    ]
    valid = [point for point in points if point.timing_valid]
    if len(valid) > 1:
        base, best = valid[0], valid[-1]
        lines.append(
            f"FLOPS at M = {best.score.ensemble_size} are {flops(best.flops)}: "
            f"{efficiency(best, base):.1%} of linear from M = {base.score.ensemble_size} on. V3 "
            "calls its own result, 8 to 64 GPUs, near-linear."
        )
    return lines


def speed_figure(points: Sequence[PointResult]) -> Figure:
    """Plot FLOPS and VFLOPS over M, beside the linear line."""
    factor, prefix = si_prefix(max(max(point.flops, point.vflops) for point in points))
    first, last = points[0].score, points[-1].score
    per_member = points[0].flops / first.ensemble_size / factor
    ends = (first.ensemble_size, last.ensemble_size)
    valid = sum(point.timing_valid for point in points) > 1 and points[0].timing_valid
    linear = Series("linear", [Value(m, per_member * m) for m in ends], "target", dots="none")
    vflops = Series("VFLOPS", speeds(points, "vflops", factor), "ensemble")
    series = [
        *([linear] if valid else []),
        Series("FLOPS", speeds(points, "flops", factor), "mean"),
        *([] if is_search(points) else [vflops]),
    ]
    words = words_of(points)
    title = f"Speed over the number of {words.member}s"
    chart = LineChart(series, x_title=f"{words.member}s M", y_title=f"{prefix}FLOPS")
    caption = (
        f"{words.vflops_note} "
        + ("Dashed: M times the first point. " if valid else "")
        + hollow_note(points)
    )
    return Figure(title, chart, caption.strip())


def values(points: Sequence[PointResult], figure: str, factor: float = 1.0) -> list[Value]:
    """Return a figure of the score over M, with the range of its trials."""
    result = []
    for point in points:
        trials = [require(getattr(trial, figure), figure) / factor for trial in point.score.trials]
        value = require(getattr(point.score, figure), figure) / factor
        result.append(Value(point.score.ensemble_size, value, True, min(trials), max(trials)))
    return result


def speeds(points: Sequence[PointResult], figure: str, factor: float) -> list[Value]:
    """Return a speed over M, with the range of its trials; valid as far as the timing is."""
    return [
        replace(value, trusted=point.timing_valid)
        for point, value in zip(points, values(points, figure, factor), strict=True)
    ]


def efficiency_figure(points: Sequence[PointResult]) -> Figure:
    """Plot FLOPS / (M × FLOPS of the first point)."""
    title = "Scaling efficiency"
    first = points[0]
    efficiencies = [
        Value(
            point.score.ensemble_size,
            efficiency(point, first),
            point.timing_valid and first.timing_valid,
        )
        for point in points
    ]
    chart = LineChart(
        [Series("efficiency", efficiencies, "mean")],
        x_title=f"{words_of(points).member}s M",
        y_title="FLOPS / linear",
        levels=[Level("linear", 1.0, "target")],
    )
    caption = f"FLOPS over M times those of {first.label}. {hollow_note(points)}"
    return Figure(title, chart, caption.strip())


def quality_figure(points: Sequence[PointResult]) -> Figure:
    """Plot the ensemble's and the members' quality over M."""
    name = points[0].score.quality_name
    words = words_of(points)
    title = f"Quality over the number of {words.member}s: {name}"
    means = [Value(p.score.ensemble_size, p.score.members_mean_quality) for p in points]
    series = [
        Series(words.combined, values(points, "ensemble_quality"), "ensemble"),
        Series(words.mean, means, "mean"),
    ]
    chart = LineChart(
        series,
        x_title=f"{words.member}s M",
        y_title=name,
        levels=[Level("target", points[0].score.target_quality, "target")],
        from_zero=False,
    )
    return Figure(title, chart, words.quality_note)


def quality_factor_figure(points: Sequence[PointResult], *, workload: str) -> Figure:
    """Plot Eq. 8 over M, beside V3's."""
    title = "Quality factor (penalty coefficient)"
    paper = V3_PENALTY.get(workload)
    levels = [] if paper is None else [Level(f"V3 {paper:g}", paper, "theoretical")]
    chart = LineChart(
        [Series("ours", values(points, "penalty_coefficient"), "ensemble")],
        x_title="members M",
        y_title="(quality / target)ⁿ",
        levels=levels,
    )
    caption = "V3 Eq. 8." + (
        "" if paper is None else " Dashed: V3 Fig. 5, the paper's class and machine."
    )
    return Figure(title, chart, caption)


def timeline_figure(point: PointResult, *, noun: str = "member") -> Figure:
    """Draw the training times of the largest ensemble's members, or of a search's workers."""
    title = f"{noun.capitalize()}s over time, {point.label}"
    if not point.members:
        return Figure(title, None, f"Not measured: the {noun}s' times are not recorded.")
    shown = sorted(point.members, key=lambda member: member.end)[-ROWS_DRAWN:]
    rows = [
        Row(
            f"{noun} {member.member}",
            (Bar(member.member, member.start, member.end, None, finished=True),),
        )
        for member in sorted(shown, key=lambda member: member.member)
    ]
    end = max(member.end for member in point.members)
    left_out = len(point.members) - len(shown)
    caption = f"A bar is a {noun}'s training, first batch to end. The dashed line ends the window."
    if left_out:
        caption += f" The {len(shown)} {noun}s that ended last; {left_out:,} more are not drawn."
    return Figure(title, Timeline(rows, end), caption)


def stragglers(points: Sequence[PointResult]) -> Table:
    """List the spread of the members' times, and the cost of the slowest."""
    rows = [(point.label, *_spread(point)) for point in points]
    columns = (
        "point", "shortest", "median", "longest", "start skew", "idle", "explanation",
    )  # fmt: skip
    return Table(columns, rows, numbers=(1, 2, 3, 4, 5))


def _spread(point: PointResult) -> tuple[str, ...]:
    if not point.members:
        return ("not measured",) * 6
    times = [member.seconds for member in point.members]
    middle, longest = median(times), max(times)
    return (
        human_seconds(min(times)),
        human_seconds(middle),
        human_seconds(longest),
        human_seconds(point.score.start_skew_seconds),
        f"{idle_fraction(point):.1%}",
        _explain(point.members, longest=longest, middle=middle),
    )


def idle_fraction(point: PointResult) -> float:
    """Return the fraction of (members at once × window) in which no member trained."""
    window = max(member.end for member in point.members)
    waves = 1 + max(member.wave for member in point.members)
    at_once = -(-len(point.members) // waves)
    return max(0.0, 1 - sum(member.seconds for member in point.members) / (at_once * window))


def _explain(members: Sequence[MemberTime], *, longest: float, middle: float) -> str:
    slow = [member.member for member in members if member.seconds > STRAGGLER * middle]
    if slow:
        names = ", ".join(map(str, slow[:6])) + (", …" if len(slow) > 6 else "")
        return f"stragglers: member {names}, up to {longest / middle:.2f} × the median"
    return "no straggler" if len(members) > 1 else "a single member"


STUDY = Study(
    name="scaling",
    title="Scaling over M",
    source="V3 Fig. 5",
    controls=("ensemble.size", "ensemble.members_per_accelerator"),
    points=make_points,
    view=view,
    supports_search=True,
)
