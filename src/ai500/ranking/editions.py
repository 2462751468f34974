"""History over the editions of the list: best result of each edition and of each system."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from ai500.core.units import human_si
from ai500.ranking.entries import Entry
from ai500.report.charts.line_chart import LineChart, Series, Style, curve
from ai500.report.charts.svg import Ticks
from ai500.report.formats import flops
from ai500.report.section import Table

# Systems that have a line in the chart; the table shows all.
MAX_SYSTEMS = 8
MAX_NAME = 16


def best_of_editions(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Return the best entry of each edition, oldest edition first."""
    best: dict[str, Entry] = {}
    for entry in entries:
        if entry.edition not in best or entry.vflops > best[entry.edition].vflops:
            best[entry.edition] = entry
    return dict(sorted(best.items()))


def by_system(entries: Sequence[Entry]) -> dict[tuple[str, str], dict[str, Entry]]:
    """Return each system's best entry of each edition; the best system comes first."""
    systems: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        systems.setdefault(entry.system_key, []).append(entry)
    ordered = sorted(systems.items(), key=lambda item: (-max(e.vflops for e in item[1]), item[0]))
    return {key: best_of_editions(members) for key, members in ordered}


def history_chart(entries: Sequence[Entry]) -> LineChart:
    """Chart VFLOPS over editions: the best of each, and systems with several editions."""
    best = best_of_editions(entries)
    systems = by_system(entries)
    returned = [results for results in systems.values() if len(results) > 1][:MAX_SYSTEMS]
    editions = list(best)
    lines = [
        _series(results, editions, "member", _short(next(iter(results.values())).system))
        for results in returned
    ]
    return _chart([*lines, _series(best, editions, "ensemble", "best")], editions)


def system_chart(entries: Sequence[Entry]) -> LineChart:
    """Chart one system's VFLOPS over its editions."""
    best = best_of_editions(entries)
    editions = list(best)
    return _chart([_series(best, editions, "ensemble", "")], editions)


def best_table(entries: Sequence[Entry]) -> Table:
    """Tabulate the best entry of each edition."""
    counts = Counter(entry.edition for entry in entries)
    rows = [
        (edition, linked(entry, flops(entry.vflops)), entry.full_name, f"{counts[edition]:,}")
        for edition, entry in best_of_editions(entries).items()
    ]
    return Table(("edition", "best VFLOPS", "system", "entries"), rows, numbers=(1, 3))


def systems_table(entries: Sequence[Entry]) -> Table:
    """Tabulate the VFLOPS of systems with several editions."""
    editions = sorted({entry.edition for entry in entries})
    rows = []
    for results in by_system(entries).values():
        if len(results) > 1:
            first = next(iter(results.values()))
            cells = [
                linked(results[edition], flops(results[edition].vflops))
                if edition in results
                else "—"
                for edition in editions
            ]
            rows.append((first.system, first.organization, *cells))
    numbers = tuple(range(2, 2 + len(editions)))
    return Table(("system", "organization", *editions), rows, numbers=numbers)


def linked(entry: Entry, text: str) -> Markup:
    """Link a text on a page at the site's root to an entry."""
    return Markup('<a href="entries/{}.html">{}</a>').format(entry.id, text)


def _series(
    entries: Mapping[str, Entry], editions: Sequence[str], style: Style, name: str
) -> Series:
    """Make a curve with equidistant editions and logarithmic VFLOPS."""
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


def logarithmic_ticks(low: float, high: float, *, limit: int = 7) -> Ticks:
    """Choose round values that enclose [low, high]: the finest series with at most `limit`."""
    # 10³⁰⁸ is the largest double; `entries.implausible` keeps figures far below.
    first, last = math.floor(math.log10(low)), min(math.ceil(math.log10(high)) + 1, 300)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [f * 10.0**power for power in range(first, last + 1) for f in factors]
        start = max(i for i, value in enumerate(values) if value <= low * (1 + 1e-9))
        above = (i for i, value in enumerate(values) if value > low and value >= high)
        end = min(above, default=len(values) - 1)
        if end - start < limit:
            break
    step = math.ceil((end - start) / limit)  # above 1 only for very many decades
    kept = [values[i] for i in range(start, end + 1) if (end - i) % step == 0 or i == start]
    return Ticks(tuple(math.log10(v) for v in kept), tuple(human_si(v).strip() for v in kept))


def _edition_ticks(editions: Sequence[str]) -> Ticks:
    """Label at most six editions, always the newest."""
    step = math.ceil(len(editions) / 6)
    shown = [i for i in range(len(editions)) if (len(editions) - 1 - i) % step == 0]
    return Ticks(tuple(float(i) for i in shown), tuple(editions[i] for i in shown))


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"
