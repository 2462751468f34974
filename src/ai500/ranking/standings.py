"""Ranks in the list (V2 Fig. 14): each system once, equal results share a rank.

Two rankings stand side by side: by VFLOPS, and by VFLOPS per watt among entries whose meters cover
the same parts, since watts of accelerators and watts of whole nodes can't be compared.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ai500.ranking.entries import Entry
from ai500.records import require

ListKey = tuple[str, str, str]
"""Workload, class, level."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Ranks of an entry; None: the same system has a better entry."""

    rank: int | None
    """Rank over all editions."""
    edition_rank: int | None
    """Rank among the entries of its own edition."""
    energy_rank: int | None = None
    """Rank by VFLOPS per watt, over all editions; None also where power was not measured."""
    edition_energy_rank: int | None = None
    """Rank by VFLOPS per watt among the entries of its own edition."""
    first_overlap: int | None = None
    """Best rank that the ranges of the trials leave open; None: no other range overlaps its own."""
    last_overlap: int | None = None
    """Worst such rank."""
    edition_first_overlap: int | None = None
    """Best such rank among the entries of its own edition."""
    edition_last_overlap: int | None = None
    """Worst such rank among the entries of its own edition."""


def standings(entries: Iterable[Entry]) -> dict[str, Standing]:
    """Compute the ranks of all entries, by id."""
    entries = list(entries)
    overall: dict[str, int] = {}
    in_edition: dict[str, int] = {}
    energy: dict[str, int] = {}
    energy_in_edition: dict[str, int] = {}
    overlap: dict[str, tuple[int, int]] = {}
    overlap_in_edition: dict[str, tuple[int, int]] = {}
    for members in by_list(entries).values():
        overall |= ranks(members)
        energy |= energy_ranks(members)
        overlap |= overlaps(members)
        for edition in sorted({entry.edition for entry in members}):
            of_edition = [entry for entry in members if entry.edition == edition]
            in_edition |= ranks(of_edition)
            energy_in_edition |= energy_ranks(of_edition)
            overlap_in_edition |= overlaps(of_edition)
    tables = (overall, in_edition, energy, energy_in_edition)
    nothing = (None, None)
    return {
        entry.id: Standing(
            *(table.get(entry.id) for table in tables),
            *overlap.get(entry.id, nothing),
            *overlap_in_edition.get(entry.id, nothing),
        )
        for entry in entries
    }


def overlaps(members: Sequence[Entry]) -> dict[str, tuple[int, int]]:
    """Return the ranks that the trials leave open, by id, where ranges of trials overlap.

    An entry may have the rank after all systems whose slowest trial is faster than its fastest, and
    at worst that of the last system whose fastest trial is not slower than its slowest. `members`
    is one list, best first.
    """
    best = best_of_systems(members)
    lows = sorted(entry.trial_range[0] for entry in best)
    highs = sorted(entry.trial_range[1] for entry in best)
    ranks_by_id = {}
    for entry in best:
        low, high = entry.trial_range
        first = 1 + len(best) - bisect_right(lows, high)
        last = len(best) - bisect_left(highs, low)
        if first != last:
            ranks_by_id[entry.id] = first, last
    return ranks_by_id


def energy_ranks(members: Sequence[Entry]) -> dict[str, int]:
    """Rank the best entry of each system by VFLOPS per watt, for each coverage of the meters."""
    by_id: dict[str, int] = {}
    for metered in by_coverage(members).values():
        by_id |= ranks(metered, figure=per_watt)
    return by_id


def by_coverage(members: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Group the metered entries of a list by what their meters cover, most per watt first."""
    metered: dict[str, list[Entry]] = {}
    for entry in members:
        if entry.vflops_per_watt is not None and entry.power_coverage is not None:
            metered.setdefault(entry.power_coverage, []).append(entry)
    for covered in metered.values():
        covered.sort(key=lambda entry: (-per_watt(entry), order(entry)))
    return dict(sorted(metered.items()))


def per_watt(entry: Entry) -> float:
    """Return the VFLOPS per watt of a metered entry."""
    return require(entry.vflops_per_watt, "vflops_per_watt")


def vflops(entry: Entry) -> float:
    """Return the VFLOPS of an entry."""
    return entry.vflops


def by_list(entries: Iterable[Entry]) -> dict[ListKey, list[Entry]]:
    """Group entries by workload, class and level, best first; the longest list comes first."""
    lists: dict[ListKey, list[Entry]] = {}
    for entry in entries:
        lists.setdefault(entry.list_key, []).append(entry)
    for members in lists.values():
        members.sort(key=order)
    return dict(sorted(lists.items(), key=lambda item: (-len(item[1]), item[0])))


def order(entry: Entry) -> tuple[float, float, str, str, str]:
    """Return the sort key: best VFLOPS first, then time-to-quality, then name."""
    return (
        -entry.vflops,
        entry.time_to_quality_seconds,
        entry.system.casefold(),
        entry.edition,
        entry.id,
    )


def ranks(members: Sequence[Entry], *, figure: Callable[[Entry], float] = vflops) -> dict[str, int]:
    """Rank the best entry of each system, by id; two equal ones give 1, 1, 3.

    `members` is one list, best first by the figure.
    """
    ranks_by_id: dict[str, int] = {}
    for _, equal in groupby(best_of_systems(members), key=figure):
        rank = len(ranks_by_id) + 1
        ranks_by_id |= {entry.id: rank for entry in equal}
    return ranks_by_id


def best_of_systems(members: Iterable[Entry]) -> list[Entry]:
    """Return the first entry of each system."""
    best: dict[tuple[str, str], Entry] = {}
    for entry in members:
        best.setdefault(entry.system_key, entry)
    return list(best.values())
