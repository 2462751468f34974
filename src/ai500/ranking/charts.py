"""Charts of one list: the best systems, and scores against power, size and quality.

Each chart shows every ranked system by its best result, up to `MOST_DOTS` of them; a table beside
the charts has the same figures as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ai500.core.units import human_si
from ai500.ranking.editions import linked, short_name
from ai500.ranking.entries import Entry
from ai500.ranking.standings import Standing, best_of_systems, by_coverage, per_watt
from ai500.records import require
from ai500.report.charts import svg
from ai500.report.charts.bars import RangeBars, RangeRow
from ai500.report.charts.line_chart import Level
from ai500.report.charts.log_scatter import Dot, Guide, LogScatter
from ai500.report.formats import NOT_MEASURED, counted, flops
from ai500.report.formats import vflops as vflops_text
from ai500.report.section import Figure, Table

TOP = 10
MOST_DOTS = 200
NAMED = 3
"""Systems whose dots are marked: 1., 2. and 3."""
SCORES = 4
"""Lines of equal score, about."""
STEPS = 40
"""Segments of a line of equal score."""
# Figures of entries are within these bounds; lines of equal score must not leave them.
LEAST, MOST = 1e-40, 1e40
Names = Mapping[str, str]
"""Texts beside the dots of entries, by id."""


def top_figure(members: Sequence[Entry], *, list_name: str) -> Figure:
    """Chart the best systems of a list with the range of their trials."""
    best = best_of_systems(members)[:TOP]
    rows = [_row(number, entry) for number, entry in enumerate(best, 1)]
    return Figure(
        f"The best {counted(len(best), 'system')}" if len(best) > 1 else "The best system",
        RangeBars(rows, "VFLOPS"),
        f"{list_name}, all editions. Bar: the score; line: from the slowest to the fastest trial.",
        "VFLOPS of the best systems",
    )


def figures(members: Sequence[Entry]) -> list[Figure]:
    """Chart a list's scores against accelerators, power and quality."""
    best = best_of_systems(members)
    names = {entry.id: f"{number}." for number, entry in enumerate(best[:NAMED], 1)}
    power = [
        _power_figure(best_of_systems(covered), coverage, names)
        for coverage, covered in by_coverage(members).items()
    ]
    return [_size_figure(best, names), *power, _quality_figure(best, names)]


def table(members: Sequence[Entry], standings: Mapping[str, Standing]) -> Table:
    """Tabulate the figures that the charts draw."""
    rows = [
        (
            f"{standings[entry.id].rank:,}{overlap_text(standings[entry.id])}",
            linked(entry, entry.full_name or "(no name)"),
            vflops_text(entry.vflops),
            _range_text(entry),
            f"{entry.system_scale:,}",
            _power_text(entry),
            flops(entry.flops),
            f"{entry.quality:.4f} / {entry.target_quality:g}",
        )
        for entry in best_of_systems(members)[:MOST_DOTS]
    ]
    columns = ("rank", "system", "VFLOPS", "of the trials", "accelerators", "power", "FLOPS",
               "quality / target")  # fmt: skip
    return Table(columns, rows, numbers=(0, 2, 3, 4, 5, 6, 7), noun="systems")


def overlap_text(standing: Standing) -> str:
    """Format the ranks that the trials leave open: ' (2–5)'; empty where no ranges overlap."""
    if standing.first_overlap is None:
        return ""
    return f" ({standing.first_overlap:,}–{standing.last_overlap:,})"


def _power_text(entry: Entry) -> str:
    watts = entry.watts
    return NOT_MEASURED if watts is None else f"{human_si(watts)}W of {entry.power_coverage}"


def _range_text(entry: Entry) -> str:
    if entry.lowest_vflops is None or entry.highest_vflops is None:
        return "one trial"
    low, high = (human_si(rate).strip() for rate in (entry.lowest_vflops, entry.highest_vflops))
    return f"{low} to {high}"


def _row(number: int, entry: Entry) -> RangeRow:
    spread = entry.lowest_vflops is not None
    low, high = entry.trial_range
    return RangeRow(
        f"{number}. {short_name(entry.system)}",
        entry.vflops,
        human_si(entry.vflops).strip(),
        low if spread else None,
        high if spread else None,
    )


def _size_figure(best: Sequence[Entry], names: Names) -> Figure:
    shown = best[:MOST_DOTS]
    scales = svg.log_ticks(*_ends([float(entry.system_scale) for entry in shown]), limit=5)
    most = max(entry.vflops / entry.system_scale for entry in shown)
    line = Guide("linear", [(scale, most * scale) for scale in (scales.low, scales.high)])
    dots = _dots(shown, [(float(entry.system_scale), entry.vflops) for entry in shown], names)
    return Figure(
        "VFLOPS against accelerators",
        LogScatter(dots, "accelerators", "VFLOPS", [line]),
        f"{_counted(best, names)} Dashed: the best VFLOPS per accelerator of the list, "
        f"{human_si(most)}FLOPS, times the accelerators.",
    )


def _power_figure(best: Sequence[Entry], coverage: str, names: Names) -> Figure:
    shown = best[:MOST_DOTS]
    points = [(require(entry.watts, "watts"), entry.vflops) for entry in shown]
    watts = svg.log_ticks(*_ends([x for x, _ in points]), limit=5)
    most = max(per_watt(entry) for entry in shown)
    line = Guide("best per watt", [(power, most * power) for power in (watts.low, watts.high)])
    return Figure(
        f"VFLOPS against watts of {coverage}",
        LogScatter(_dots(shown, points, names), "watts", "VFLOPS", [line]),
        f"{_counted(best, names)} Dashed: the best VFLOPS per watt of {coverage}, "
        f"{human_si(most)}FLOPS/W.",
    )


def _quality_figure(best: Sequence[Entry], names: Names) -> Figure:
    shown = best[:MOST_DOTS]
    points = [(entry.flops, entry.quality_ratio) for entry in shown]
    chart = LogScatter(
        _dots(shown, points, names),
        "FLOPS",
        "quality / target",
        _lines_of_equal_score(shown),
        Level("target", 1.0, "target"),
        y_scale="linear",
    )
    return Figure(
        "Quality against FLOPS",
        chart,
        f"{_counted(best, names)} Quality relative to the target, where more is better. Each "
        "dashed line joins equal VFLOPS, reached by FLOPS or by quality.",
    )


def _lines_of_equal_score(shown: Sequence[Entry]) -> list[Guide]:
    """Draw FLOPS × ratioⁿ = VFLOPS for round values of VFLOPS (V3 Eq. 7 and 8)."""
    exponent = shown[0].penalty_exponent
    ratios = svg.nice_ticks(*_ends([1.0, *(entry.quality_ratio for entry in shown)]))
    step = (ratios.high - ratios.low) / STEPS
    heights = [ratios.low + step * index for index in range(STEPS + 1)]
    scores = svg.log_ticks(*_ends([entry.vflops for entry in shown]), limit=SCORES)
    guides = []
    for score, label in zip(scores.values, scores.labels, strict=True):
        points = [(score / ratio**exponent, ratio) for ratio in heights if ratio > LEAST]
        points = [(x, ratio) for x, ratio in points if LEAST < x < MOST]
        guides.append(Guide(label, points))
    return guides


def _dots(shown: Sequence[Entry], points: Sequence[tuple[float, float]], names: Names) -> list[Dot]:
    return [
        Dot(x, y, _tip(entry), names.get(entry.id, ""))
        for entry, (x, y) in zip(shown, points, strict=True)
    ]


def _tip(entry: Entry) -> str:
    return (
        f"{entry.full_name}: {vflops_text(entry.vflops)}, {flops(entry.flops)}, "
        f"{counted(entry.system_scale, 'accelerator')}, power {_power_text(entry)}, "
        f"{entry.quality_name} {entry.quality:.4f}"
    )


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _counted(best: Sequence[Entry], names: Names) -> str:
    """Say which systems a chart shows, and which of them are numbered."""
    if len(best) == 1:
        return "One system."
    named = ", ".join(names[entry.id] for entry in best if entry.id in names)
    marks = f"; {named}: the best by VFLOPS." if named else "."
    if len(best) > MOST_DOTS:
        return f"The best {MOST_DOTS} of {len(best):,} systems{marks}"
    return f"Each dot is a system's best result{marks}"
