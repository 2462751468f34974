"""History over the editions of the list: sum and best of each edition, and each system's best."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from ai500.core.units import human_si
from ai500.ranking.entries import Entry
from ai500.report.charts import svg
from ai500.report.charts.line_chart import LineChart, Series, Style, Value
from ai500.report.charts.svg import Ticks
from ai500.report.formats import vflops
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
    """Chart VFLOPS over editions: sum and best of each, and systems with several editions."""
    best = best_of_editions(entries)
    sums = [(edition, total, "sum of all systems") for edition, total in sum_of_editions(entries)]
    systems = by_system(entries)
    returned = [results for results in systems.values() if len(results) > 1][:MAX_SYSTEMS]
    editions = list(best)
    lines = [
        _series(results, editions, "member", short_name(next(iter(results.values())).system))
        for results in returned
    ]
    total = _curve(sums, editions, "mean", "sum")
    return _chart([total, *lines, _series(best, editions, "ensemble", "#1")], editions)


def sum_of_editions(entries: Sequence[Entry]) -> list[tuple[str, float]]:
    """Return the sum of the VFLOPS of all systems in each edition, each by its best result."""
    sums: dict[str, float] = {}
    for results in by_system(entries).values():
        for edition, entry in results.items():
            sums[edition] = sums.get(edition, 0.0) + entry.vflops
    return sorted(sums.items())


def system_chart(entries: Sequence[Entry]) -> LineChart:
    """Chart one system's VFLOPS over its editions."""
    best = best_of_editions(entries)
    editions = list(best)
    return _chart([_series(best, editions, "ensemble", "")], editions)


def best_table(entries: Sequence[Entry]) -> Table:
    """Tabulate the best entry of each edition, and the sum over all systems."""
    counts = Counter(entry.edition for entry in entries)
    sums = dict(sum_of_editions(entries))
    rows = [
        (
            edition,
            linked(entry, vflops(entry.vflops)),
            entry.full_name,
            vflops(sums[edition]),
            f"{counts[edition]:,}",
        )
        for edition, entry in best_of_editions(entries).items()
    ]
    columns = ("edition", "best VFLOPS", "system", "sum", "entries")
    return Table(columns, rows, numbers=(1, 3, 4))


def systems_table(entries: Sequence[Entry]) -> Table:
    """Tabulate the VFLOPS of systems with several editions."""
    editions = sorted({entry.edition for entry in entries})
    rows = []
    for results in by_system(entries).values():
        if len(results) > 1:
            first = next(iter(results.values()))
            cells = [
                linked(results[edition], vflops(results[edition].vflops))
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
    """Make the curve of one entry of each edition."""
    values = [(edition, entry.vflops, entry.full_name) for edition, entry in entries.items()]
    return _curve(values, editions, style, name)


def _curve(
    values: Sequence[tuple[str, float, str]], editions: Sequence[str], style: Style, name: str
) -> Series:
    """Make a curve with equidistant editions and logarithmic VFLOPS, each with its tooltip."""
    points = [
        Value(
            editions.index(edition),
            math.log10(vflops),
            tip=f"{edition}: {human_si(vflops)}VFLOPS, {subject}",
        )
        for edition, vflops, subject in values
    ]
    return Series(name, points, style)


def _chart(series: Sequence[Series], editions: Sequence[str]) -> LineChart:
    exponents = [value.y for line in series for value in line.values]
    rates = svg.log_ticks(10 ** min(exponents), 10 ** max(exponents))
    return LineChart(
        series,
        x_title="edition",
        y_title="VFLOPS (logarithmic)",
        x_ticks=_edition_ticks(editions),
        y_ticks=Ticks(tuple(map(math.log10, rates.values)), rates.labels),
        x_start=0,
        x_end=max(1, len(editions) - 1),
        joined_labels=True,
    )


def _edition_ticks(editions: Sequence[str]) -> Ticks:
    """Label at most six editions, always the newest."""
    step = math.ceil(len(editions) / 6)
    shown = [i for i in range(len(editions)) if (len(editions) - 1 - i) % step == 0]
    return Ticks(tuple(float(i) for i in shown), tuple(editions[i] for i in shown))


def short_name(name: str) -> str:
    """Cut a name for a chart."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"
