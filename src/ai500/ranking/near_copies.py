"""Copies of members whose times were changed a little: each interval by less than runs differ.

The members of one submission show by how much the intervals of two trainings differ. Two members of
two submissions are the same work if their intervals agree far more closely, more often than chance
allows. Only differences between successive intervals of a kind are compared, relative to a member's
total, so neither its speed nor a slow drift counts, and a copy that is faster as a whole is a copy.
A pattern that every run has agrees among a submission's own members too.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ai500.ranking.entries import Claim, MemberWork

Floats = NDArray[np.float64]

MIN_MEMBERS = 3
"""Members that show how trainings of a submission differ; with fewer nothing is compared."""
MAX_MEMBERS = 256
"""Members of one submission that are compared: every pair of two submissions' is, and the list that
compares them has no limit of time. A copy of a larger ensemble has many more than two."""
MIN_COPIES = 2
"""A single member may agree by chance: two of a submission have to."""
MIN_INTERVAL_MICROSECONDS = 1000.0
"""Shorter intervals are those of events that one call writes, and alike in every run."""
MIN_DIFFERENCES = 8
CLOSE = 0.2
"""Share of the differences between members of one run that count as close, for a first selection:
at least half of a copy's are."""
# Chance of at most 1e-8 for a pair of members, of its square for two; successive differences share
# an interval, which costs a factor of √2 for each.
LEAST_EVIDENCE, EVIDENCE_PER_DIFFERENCE = 18.4, 0.35
RESOLUTION_MICROSECONDS = 2.0
"""Smaller differences of two intervals, each rounded to a microsecond, show nothing."""
MAX_NULL_VALUES = 20_000
PORTION = 1_000_000
"""Differences that are in memory at once."""


def near_copies(claims: Sequence[Claim]) -> Iterator[tuple[int, int, set[tuple[int, int]]]]:
    """Yield the positions of two claims, and trial and member of the later one's copies."""
    groups: dict[str, list[int]] = {}
    for position, claim in enumerate(claims):
        for sequence in dict.fromkeys(work.sequence for work in claim.work if work.intervals):
            groups.setdefault(sequence, []).append(position)
    for sequence, positions in groups.items():
        members = [_members(claims[position], sequence) for position in positions]
        trainings = [_Trainings.of(own) if len(own) >= MIN_MEMBERS else None for own in members]
        for (first, one), (second, other) in itertools.combinations(enumerate(members), 2):
            # By the differences within either: those of a forger's own members say what he likes.
            pairs = {} if (model := trainings[first]) is None else model.copies(other)
            copies = set(pairs.values())
            if len(copies) < MIN_COPIES and (model := trainings[second]) is not None:
                pairs = {copy: original for original, copy in model.copies(one).items()}
                copies = set(pairs.values())
            if len(copies) >= MIN_COPIES:
                named = {(other[copy].trial, other[copy].member) for copy in copies}
                yield positions[first], positions[second], named


def _members(claim: Claim, sequence: str) -> list[MemberWork]:
    """Return the members with that sequence of events; of very many a fixed sample."""
    members = [work for work in claim.work if work.sequence == sequence]
    if len(members) <= MAX_MEMBERS:
        return members
    return random.Random(len(members)).sample(members, MAX_MEMBERS)


@dataclass(frozen=True)
class _Trainings:
    """Trainings of one submission, and by how much they differ."""

    timed: NDArray[np.bool_]
    """Intervals that are compared."""
    steps: Floats
    """Differences between successive intervals, by member."""
    nulls: Sequence[Floats]
    """Differences of steps between pairs of members, in rising order, for each kind of pair."""
    close: float
    resolution: float
    """Difference of two steps, relative to a member's total, below which they are equal."""

    @classmethod
    def of(cls, members: Sequence[MemberWork]) -> Self | None:
        """Return the trainings of members; None: their logs are too short."""
        intervals = _intervals(members)
        timed = np.median(intervals, axis=0) >= MIN_INTERVAL_MICROSECONDS
        steps = _steps(members, timed)
        if steps.shape[1] < MIN_DIFFERENCES:
            return None
        total = float(np.median(intervals[:, timed].sum(axis=1)))
        resolution = RESOLUTION_MICROSECONDS / max(total, 1.0)
        pairs_within = [pairs for pairs in _pairs_within(members) if pairs]
        nulls = [np.maximum(_differences(steps, pairs), resolution) for pairs in pairs_within]
        close = min(float(null[int(CLOSE * len(null))]) for null in nulls)
        return cls(timed, steps, nulls, close, resolution)

    def copies(self, others: Sequence[MemberWork]) -> dict[int, int]:
        """Return places of members of this submission → those of their copies in another."""
        count = self.steps.shape[1]
        other_steps = _steps(others, self.timed)
        copies: dict[int, int] = {}
        portion = max(1, PORTION // self.steps.size)
        for start in range(0, len(others), portion):
            apart = np.abs(other_steps[start : start + portion, None] - self.steps)
            apart = np.maximum(apart, self.resolution)
            alike = (apart <= self.close).sum(axis=2) >= count / 2
            for place, original in np.argwhere(alike).tolist():
                evidence = min(_evidence(apart[place, original], null) for null in self.nulls)
                if evidence >= LEAST_EVIDENCE + EVIDENCE_PER_DIFFERENCE * count:
                    copies.setdefault(original, start + place)
        return copies


def _intervals(members: Sequence[MemberWork]) -> Floats:
    return np.array([work.intervals for work in members], dtype=np.float64)


def _steps(members: Sequence[MemberWork], timed: NDArray[np.bool_]) -> Floats:
    """Return the differences between successive intervals, relative to each member's total."""
    intervals = _intervals(members)[:, timed]
    total: Floats = np.maximum(np.abs(intervals.sum(axis=1, keepdims=True)), 1.0)
    return np.diff(intervals / total, axis=1)


def _pairs_within(members: Sequence[MemberWork]) -> Iterator[list[tuple[int, int]]]:
    """Yield two lists of pairs of members: all pairs, and the pairs of one member in two trials.

    A member may have a pattern that repeats in every run, such as a node that slows down as it gets
    warm: it repeats in every trial too.
    """
    yield list(itertools.combinations(range(len(members)), 2))
    numbers: dict[int, list[int]] = {}
    for place, work in enumerate(members):
        numbers.setdefault(work.member, []).append(place)
    yield [pair for places in numbers.values() for pair in itertools.combinations(places, 2)]


def _differences(steps: Floats, pairs: Sequence[tuple[int, int]]) -> Floats:
    """Return by how much pairs of members differ in the same step, in rising order."""
    every = max(1, len(pairs) * steps.shape[1] // MAX_NULL_VALUES)
    chosen = np.array(pairs[::every])
    return np.sort(np.abs(steps[chosen[:, 0]] - steps[chosen[:, 1]]).ravel())


def _evidence(apart: Floats, null: Floats) -> float:
    """Return −ln of a bound on the chance that so many differences are so small (Chernoff)."""
    count = len(apart)
    rank = np.searchsorted(null, np.sort(apart), side="right")
    chance = np.clip((1 + rank) / (1 + len(null)), None, 1 - 1e-12)
    share = np.arange(1, count + 1) / count
    rest = np.where(
        share < 1, (1 - share) * np.log(np.maximum(1 - share, 1e-300) / (1 - chance)), 0
    )
    divergence = np.where(share > chance, share * np.log(share / chance) + rest, 0.0)
    return float(count * divergence.max())
