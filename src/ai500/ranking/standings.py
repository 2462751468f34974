"""Places in the list (SPEC §5 Ranking): by VFLOPS, each system once, equal results equal places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ai500.ranking.entries import Entry

ListKey = tuple[str, str, str]
"""Workload, class, level."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an entry stands in its list; None: the same system has a better one there."""

    place: int | None
    """Over all editions."""
    edition_place: int | None
    """Among the submissions of its own edition."""


def standings(entries: Iterable[Entry]) -> dict[str, Standing]:
    """Entry's id → its places."""
    overall: dict[str, int] = {}
    in_edition: dict[str, int] = {}
    for members in by_list(entries).values():
        overall |= places(members)
        for edition in sorted({one.edition for one in members}):
            in_edition |= places([one for one in members if one.edition == edition])
    return {one: Standing(overall.get(one), in_edition.get(one)) for one in (overall | in_edition)}


def by_list(entries: Iterable[Entry]) -> dict[ListKey, list[Entry]]:
    """The entries of each workload, class and level, best first; the longest list first."""
    lists: dict[ListKey, list[Entry]] = {}
    for one in entries:
        lists.setdefault(one.list_key, []).append(one)
    for members in lists.values():
        members.sort(key=order)
    return dict(sorted(lists.items(), key=lambda item: (-len(item[1]), item[0])))


def order(entry: Entry) -> tuple[float, float, str, str, str]:
    """Best first; what is equal by VFLOPS stands by time-to-quality, then by name."""
    return (
        -entry.vflops,
        entry.time_to_quality_seconds,
        entry.system.casefold(),
        entry.edition,
        entry.id,
    )


def places(members: Sequence[Entry]) -> dict[str, int]:
    """Best first → place of each system's best; 1, 1, 3 where two are equal by VFLOPS."""
    seen: set[tuple[str, str]] = set()
    best = []
    for one in members:
        if one.system_key not in seen:
            seen.add(one.system_key)
            best.append(one)
    found: dict[str, int] = {}
    for _, equal in groupby(best, key=lambda one: one.vflops):
        place = len(found) + 1
        found |= {one.id: place for one in equal}
    return found
