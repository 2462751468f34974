"""V3 Fig. 5: FLOPS and VFLOPS of M = 1, 2, … members at a fixed P_degree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from ai500.core.errors import InputError
from ai500.core.units import human_seconds, si_prefix
from ai500.report.charts.line_chart import Level, LineChart, Series, Value
from ai500.report.charts.timeline import Bar, Row, Timeline
from ai500.report.formats import flops
from ai500.report.section import Figure, Table
from ai500.study.definition import Choices, Ground, Point, Study, View, doubling
from ai500.study.published import V3_PENALTY
from ai500.study.records import MemberTime, PointResult, StudyResult

STRAGGLER = 1.1
"""A member that takes so much longer than the median one."""
ROWS_DRAWN = 32


def points(ground: Ground, choices: Choices) -> list[Point]:
    """M = 1 to as many as the system holds at once, or to the class's own in waves [D13]."""
    degree = ground.degree
    at_once = ground.accelerators // degree
    if at_once < 1:
        raise InputError(
            f"parallel.degree = {degree}: the system has {ground.accelerators} accelerators, fewer "
            "than one member needs (V3 Eq. 5). Set a smaller parallel.degree."
        )
    most = choices.max_members or max(at_once, ground.plan.definition.ensemble_size)
    return [point_of(size, degree=degree, at_once=at_once) for size in doubling(most)]


def point_of(size: int, *, degree: int, at_once: int) -> Point:
    """An ensemble of `size` on as many accelerators as it needs; one too large runs in waves."""
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
    """The figures of V3 Fig. 5, and what the members' own times say about the gap to linear."""
    found = sorted(result.points, key=lambda one: one.score.ensemble_size)
    searches = found[0].score.search is not None
    figures = [
        speed_figure(found),
        efficiency_figure(found),
        quality_figure(found),
        # AIPerf has none: its largest error is a rule.
        *([] if searches else [penalty_figure(found, workload=result.workload)]),
        timeline_figure(found[-1]),
    ]
    table = (
        "Skew and stragglers",
        "Official FLOPS are all operations / (last end − first start) (decision D6): a member "
        "that starts late, or trains longer than the others, makes all accelerators "
        "wait for it. Waiting is the share of the members' places in the window in which nobody "
        "trained there.",
        stragglers(found),
    )
    return View(sentences(found), figures, [table])


def efficiency(one: PointResult, first: PointResult) -> float:
    """FLOPS over those of as many first points side by side."""
    factor = one.score.ensemble_size / first.score.ensemble_size
    return one.score.flops / (factor * first.score.flops)


def sentences(found: Sequence[PointResult]) -> list[str]:
    """What was found, and whether it is near-linear as in V3."""
    first, last = found[0], found[-1]
    degree = first.score.parallel_degree
    said = [
        f"Ensembles of {first.score.ensemble_size} to {last.score.ensemble_size} members with "
        f"P_degree = {degree} were trained. The ensemble's {last.score.quality_name} goes from "
        f"{first.score.ensemble_quality:.4f} (M = {first.score.ensemble_size}) to "
        f"{last.score.ensemble_quality:.4f} (M = {last.score.ensemble_size}), the target is "
        f"{last.score.target_quality:g}."
    ]
    trusted = [one for one in found if one.trusted]
    if len(trusted) > 1:
        base, best = trusted[0], trusted[-1]
        said.append(
            f"FLOPS at M = {best.score.ensemble_size} are {flops(best.score.flops)}: "
            f"{efficiency(best, base):.1%} of linear from M = {base.score.ensemble_size} on. V3 "
            "calls its own result, 8 to 64 GPUs, near-linear."
        )
    return said


def speed_figure(found: Sequence[PointResult]) -> Figure:
    """FLOPS and VFLOPS over M, the linear line beside them."""
    factor, prefix = si_prefix(max(max(one.score.flops, one.score.vflops) for one in found))
    first, last = found[0].score, found[-1].score
    per_member = first.flops / first.ensemble_size / factor
    ends = (first.ensemble_size, last.ensemble_size)
    trusted = sum(one.trusted for one in found) > 1 and found[0].trusted
    linear = Series("linear", [Value(m, per_member * m) for m in ends], "target", dots="none")
    series = [
        *([linear] if trusted else []),
        Series("FLOPS", values(found, lambda s: s.score.flops / factor, "flops", factor), "mean"),
        Series(
            "VFLOPS", values(found, lambda s: s.score.vflops / factor, "vflops", factor), "ensemble"
        ),
    ]
    title = "Speed over the number of members"
    chart = LineChart(series, x_title="members M", y_title=f"{prefix}FLOPS")
    caption = (
        "VFLOPS = FLOPS × penalty coefficient (V3 Eq. 7). "
        + ("Dashed: M times the first point. " if trusted else "")
        + _hollow(found)
    )
    return Figure(title, chart, caption.strip())


def values(
    found: Sequence[PointResult],
    of: Callable[[PointResult], float],
    field: str = "",
    factor: float = 1.0,
    *,
    trusted: bool | None = None,
) -> list[Value]:
    """A quantity over M, with the range of its trials; `trusted` where it is no matter of speed."""
    made = []
    for one in found:
        raw = [getattr(trial, field) / factor for trial in one.score.trials] if field else []
        made.append(
            Value(
                one.score.ensemble_size,
                of(one),
                one.trusted if trusted is None else trusted,
                min(raw, default=None),
                max(raw, default=None),
            )
        )
    return made


def _hollow(found: Sequence[PointResult]) -> str:
    return "" if all(one.trusted for one in found) else "Hollow: the speed is not meaningful."


def efficiency_figure(found: Sequence[PointResult]) -> Figure:
    """FLOPS / (M × FLOPS of the first point)."""
    title = "Scaling efficiency"
    first = found[0]
    made = [
        Value(one.score.ensemble_size, efficiency(one, first), one.trusted and first.trusted)
        for one in found
    ]
    chart = LineChart(
        [Series("efficiency", made, "mean")],
        x_title="members M",
        y_title="FLOPS / linear",
        levels=[Level("linear", 1.0, "target")],
    )
    caption = f"FLOPS over M times those of {first.label}. {_hollow(found)}"
    return Figure(title, chart, caption.strip())


def quality_figure(found: Sequence[PointResult]) -> Figure:
    """What more members are worth."""
    name = found[0].score.quality_name
    title = f"Quality over the number of members: {name}"
    score = [
        Series(
            "ensemble",
            values(found, lambda one: one.score.ensemble_quality, "ensemble_quality", trusted=True),
            "ensemble",
        ),
        Series(
            "members' mean",
            values(found, lambda one: one.score.members_mean_quality, trusted=True),
            "mean",
        ),
    ]
    chart = LineChart(
        score,
        x_title="members M",
        y_title=name,
        levels=[Level("target", found[0].score.target_quality, "target")],
        from_zero=False,
    )
    searches = found[0].score.search is not None
    caption = (
        "The best model of all workers, in the same time; workers see each other's histories."
        if searches
        else "Each member learns from its own bootstrap; none knows M."
    )
    return Figure(title, chart, caption)


def penalty_figure(found: Sequence[PointResult], *, workload: str) -> Figure:
    """Eq. 8 over M, V3's own beside it."""
    title = "Penalty coefficient"
    paper = V3_PENALTY.get(workload)
    levels = [] if paper is None else [Level(f"V3 {paper:g}", paper, "theoretical")]
    made = values(
        found, lambda one: one.score.penalty_coefficient, "penalty_coefficient", trusted=True
    )
    chart = LineChart(
        [Series("ours", made, "ensemble")],
        x_title="members M",
        y_title="(quality / target)ⁿ",
        levels=levels,
    )
    caption = "V3 Eq. 8." + (
        "" if paper is None else " Dashed: V3 Fig. 5, the paper's class and machine."
    )
    return Figure(title, chart, caption)


def timeline_figure(one: PointResult) -> Figure:
    """When the members of the largest ensemble trained."""
    title = f"Members over time, {one.label}"
    if not one.members:
        return Figure(title, None, "Not measured: the members' times are not recorded.")
    shown = sorted(one.members, key=lambda member: member.end)[-ROWS_DRAWN:]
    rows = [
        Row(
            f"member {member.member}",
            (Bar(member.member, member.start, member.end, None, finished=True),),
        )
        for member in sorted(shown, key=lambda member: member.member)
    ]
    end = max(member.end for member in one.members)
    left_out = len(one.members) - len(shown)
    caption = "A bar is a member's training, first batch to end. The dashed line ends the window."
    if left_out:
        caption += f" The {len(shown)} members that ended last; {left_out:,} more are not drawn."
    return Figure(title, Timeline(rows, end), caption)


def stragglers(found: Sequence[PointResult]) -> Table:
    """How far apart the members are, and what the last one costs."""
    rows = [(one.label, *_spread(one)) for one in found]
    columns = (
        "point", "shortest", "median", "longest", "start skew", "waiting", "what it says",
    )  # fmt: skip
    return Table(columns, rows, numbers=(1, 2, 3, 4, 5))


def _spread(one: PointResult) -> tuple[str, ...]:
    if not one.members:
        return ("not measured",) * 6
    times = [member.seconds for member in one.members]
    middle, longest = median(times), max(times)
    return (
        human_seconds(min(times)),
        human_seconds(middle),
        human_seconds(longest),
        human_seconds(one.score.start_skew_seconds),
        f"{waiting(one):.1%}",
        _explained(one.members, longest=longest, middle=middle),
    )


def waiting(one: PointResult) -> float:
    """Share of (places × window) in which no member trained."""
    window = max(member.end for member in one.members)
    waves = 1 + max(member.wave for member in one.members)
    places = -(-len(one.members) // waves)
    return max(0.0, 1 - sum(member.seconds for member in one.members) / (places * window))


def _explained(members: Sequence[MemberTime], *, longest: float, middle: float) -> str:
    slow = [member.member for member in members if member.seconds > STRAGGLER * middle]
    if slow:
        named = ", ".join(map(str, slow[:6])) + (", …" if len(slow) > 6 else "")
        return f"stragglers: member {named}, up to {longest / middle:.2f} × the median"
    return "no straggler" if len(members) > 1 else "one member: nobody waits"


STUDY = Study(
    name="scaling",
    title="Scaling of the ensemble",
    source="V3 Fig. 5",
    varies=("ensemble.size", "ensemble.members_per_accelerator"),
    points=points,
    view=view,
    of_searches=True,
)
