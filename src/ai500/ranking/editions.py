"""History over the editions of the list: the best result of each, and what each system reached."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from ai500.core.units import human_si
from ai500.ranking.entries import Entry
from ai500.report.charts.line_chart import LineChart, Series, Style, curve
from ai500.report.charts.svg import Ticks
from ai500.report.formats import flops
from ai500.report.section import Table

MOST_SYSTEMS = 8
"""Systems with a line of their own; the rest stands in the table."""
LONGEST_NAME = 16


def best_of_editions(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Edition → its best, oldest first."""
    best: dict[str, Entry] = {}
    for one in entries:
        if one.edition not in best or one.vflops > best[one.edition].vflops:
            best[one.edition] = one
    return dict(sorted(best.items()))


def by_system(entries: Sequence[Entry]) -> dict[tuple[str, str], dict[str, Entry]]:
    """System → its best of each edition; the best system first."""
    members: dict[tuple[str, str], list[Entry]] = {}
    for one in entries:
        members.setdefault(one.system_key, []).append(one)
    ordered = sorted(members.items(), key=lambda item: (-max(e.vflops for e in item[1]), item[0]))
    return {key: best_of_editions(mine) for key, mine in ordered}


def history_chart(entries: Sequence[Entry]) -> LineChart:
    """VFLOPS over editions: the best of each, and the systems that came more than once."""
    best = best_of_editions(entries)
    systems = by_system(entries)
    returned = [mine for mine in systems.values() if len(mine) > 1][:MOST_SYSTEMS]
    editions = list(best)
    lines = [
        _series(mine, editions, "member", _short(next(iter(mine.values())).system))
        for mine in returned
    ]
    return _chart([*lines, _series(best, editions, "ensemble", "best")], editions)


def system_chart(entries: Sequence[Entry]) -> LineChart:
    """One system's VFLOPS over its editions."""
    best = best_of_editions(entries)
    editions = list(best)
    return _chart([_series(best, editions, "ensemble", "")], editions)


def best_table(entries: Sequence[Entry]) -> Table:
    """The best of each edition."""
    counts: dict[str, int] = {}
    for one in entries:
        counts[one.edition] = counts.get(one.edition, 0) + 1
    rows = [
        (edition, linked(one, flops(one.vflops)), f"{one.system}, {one.organization}",
         f"{counts[edition]:,}")
        for edition, one in best_of_editions(entries).items()
    ]  # fmt: skip
    return Table(("edition", "best VFLOPS", "system", "entries"), rows, numbers=(1, 3))


def systems_table(entries: Sequence[Entry]) -> Table:
    """Systems that came back: VFLOPS of each edition."""
    editions = sorted({one.edition for one in entries})
    rows = []
    for mine in by_system(entries).values():
        if len(mine) > 1:
            one = next(iter(mine.values()))
            reached = [
                linked(mine[e], flops(mine[e].vflops)) if e in mine else "—" for e in editions
            ]
            rows.append((one.system, one.organization, *reached))
    numbers = tuple(range(2, 2 + len(editions)))
    return Table(("system", "organization", *editions), rows, numbers=numbers)


def linked(entry: Entry, text: str) -> Markup:
    """Text that leads from a page at the site's root to the entry."""
    return Markup('<a href="entries/{}.html">{}</a>').format(entry.id, text)


def _series(
    entries: Mapping[str, Entry], editions: Sequence[str], style: Style, name: str
) -> Series:
    """Editions stand evenly; speeds by their logarithm, as they grow by factors."""
    points = [(editions.index(e), math.log10(entries[e].vflops)) for e in sorted(entries)]
    return curve(points, style, name=name, dots="all")


def _chart(series: Sequence[Series], editions: Sequence[str]) -> LineChart:
    exponents = [value.y for line in series for value in line.values]
    return LineChart(
        series,
        x_title="edition",
        y_title="VFLOPS (logarithmic)",
        x_ticks=_edition_ticks(editions),
        y_ticks=logarithmic_ticks(10 ** min(exponents), 10 ** max(exponents)),
        x_start=0,
        x_end=max(1, len(editions) - 1),
        joined_labels=True,
    )


def logarithmic_ticks(low: float, high: float, *, most: int = 7) -> Ticks:
    """Exponents of round values that enclose [low, high]: as fine as `most` of them allow."""
    # From 10³⁰⁸ on there are no such numbers; entries are held far below.
    first, last = math.floor(math.log10(low)), min(math.ceil(math.log10(high)) + 1, 300)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [f * 10.0**power for power in range(first, last + 1) for f in factors]
        start = max(i for i, value in enumerate(values) if value <= low * (1 + 1e-9))
        above = (i for i, value in enumerate(values) if value > low and value >= high)
        end = min(above, default=len(values) - 1)
        if end - start < most:
            break
    step = math.ceil((end - start) / most)  # a few of very many decades
    kept = [values[i] for i in range(start, end + 1) if (end - i) % step == 0 or i == start]
    return Ticks(tuple(math.log10(v) for v in kept), tuple(human_si(v).strip() for v in kept))


def _edition_ticks(editions: Sequence[str]) -> Ticks:
    """At most six names, the newest always."""
    step = math.ceil(len(editions) / 6)
    shown = [i for i in range(len(editions)) if (len(editions) - 1 - i) % step == 0]
    return Ticks(tuple(float(i) for i in shown), tuple(editions[i] for i in shown))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
