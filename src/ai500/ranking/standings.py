"""Ranks in the list (V2 Fig. 14): by VFLOPS, each system once, equal results share a rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ai500.ranking.entries import Entry

ListKey = tuple[str, str, str]
"""Workload, class, level."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Ranks of an entry; None: the same system has a better entry."""

    rank: int | None
    """Rank over all editions."""
    edition_rank: int | None
    """Rank among the entries of its own edition."""


def standings(entries: Iterable[Entry]) -> dict[str, Standing]:
    """Compute the ranks of all entries, by id."""
    overall: dict[str, int] = {}
    in_edition: dict[str, int] = {}
    for members in by_list(entries).values():
        overall |= ranks(members)
        for edition in sorted({entry.edition for entry in members}):
            in_edition |= ranks([entry for entry in members if entry.edition == edition])
    return {
        entry_id: Standing(overall.get(entry_id), in_edition.get(entry_id))
        for entry_id in (overall | in_edition)
    }


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


def ranks(members: Sequence[Entry]) -> dict[str, int]:
    """Rank the best entry of each system, by id; two equal ones give 1, 1, 3.

    `members` is one list, best first.
    """
    systems: set[tuple[str, str]] = set()
    best = []
    for entry in members:
        if entry.system_key not in systems:
            systems.add(entry.system_key)
            best.append(entry)
    ranks_by_id: dict[str, int] = {}
    for _, equal in groupby(best, key=lambda entry: entry.vflops):
        rank = len(ranks_by_id) + 1
        ranks_by_id |= {entry.id: rank for entry in equal}
    return ranks_by_id
