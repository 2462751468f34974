"""Quality of M members, q(M) = a + b / M, through what a run's members reach together.

Bagging removes a share of the variance that falls with 1 / M. Every trial gives its members' mean
(M = 1) and its ensemble; where the members' predictions and the samples' targets are still on disk,
averages over subsets of the members give the sizes between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import comb, sqrt
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from ai500.bagging.predictions import FinishedMember, ValidationPredictions
from ai500.core.errors import AI500Error
from ai500.data.bootstrap import expected_counts
from ai500.data.open_store import open_store
from ai500.records import Plan, Task, TrainRecord, TrialScore, run_folder
from ai500.records.fields import target_names
from ai500.records.run_folder import RunFolder
from ai500.workloads.protocol import load_workload

SUBSETS = 6
"""Subsets of members that are averaged for each size."""
MOST_SIZES = 8
"""Members up to which every size is averaged; above: powers of two."""
MOST_BYTES = 10e9
"""Predictions that are read at most; a run with more has two points."""
SEED = 500

Points = dict[int, float]
"""Members → quality."""


@dataclass(frozen=True, slots=True)
class QualityCurve:
    """Quality by number of members, of each trial of a run."""

    trials: tuple[Points, ...]
    reason: str
    """Reason why subsets of members were not averaged; empty: they were, or there are none."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of members that were measured, ascending."""
        return tuple(sorted(self.trials[0]))

    def quality(self, members: int) -> float | None:
        """Return the mean quality over trials: measured, or of the curve.

        None: one size only, or the curve leaves what a quality can be: it has another shape.
        """
        values = self._values(members)
        if values is None:
            return None
        quality = fmean(values)
        measured = [point for points in self.trials for point in points.values()]
        impossible = quality <= 0 < min(measured) or max(measured) <= 1 < quality
        return None if impossible else quality

    def uncertainty(self, members: int) -> float | None:
        """Return two standard errors over the trials; None: one trial does not tell."""
        values = self._values(members)
        if values is None or len(values) < 2 or self.quality(members) is None:
            return None
        return 2 * stdev(values) / sqrt(len(values))

    def largest_residual(self) -> float | None:
        """Return how far a measured mean is from the curve at most; None: two points have none."""
        if len(self.sizes) < 3:
            return None
        lines = [_fit(points) for points in self.trials]
        return max(
            abs(
                fmean(points[size] for points in self.trials)
                - fmean(a + b / size for a, b in lines)
            )
            for size in self.sizes
        )

    def _values(self, members: int) -> list[float] | None:
        if members in self.sizes:
            return [points[members] for points in self.trials]
        if len(self.sizes) < 2:
            return None
        return [limit + slope / members for limit, slope in map(_fit, self.trials)]


def _fit(points: Points) -> tuple[float, float]:
    """Fit a and b of a + b / M by least squares."""
    slope, limit = np.polyfit([1 / size for size in points], list(points.values()), 1)
    return float(limit), float(slope)


def read_curve(folder: RunFolder, plan: Plan, trials: Sequence[TrialScore]) -> QualityCurve:
    """Read the points of the run's complete trials, and average subsets where files allow it."""
    curves: list[Points] = []
    for trial in trials:
        points = {1: trial.members_mean_quality}
        if plan.ensemble_size > 1 and trial.ensemble_quality is not None:
            points[plan.ensemble_size] = trial.ensemble_quality
        curves.append(points)
    if plan.ensemble_size < 3 or any(len(points) < 2 for points in curves):
        return QualityCurve(tuple(curves), "")
    try:
        between = [_subset_qualities(folder, plan, trial.trial) for trial in trials]
    except (AI500Error, OSError) as error:
        return QualityCurve(tuple(curves), str(error).partition("\n")[0])
    return QualityCurve(
        tuple(points | more for points, more in zip(curves, between, strict=True)), ""
    )


def subset_sizes(members: int) -> list[int]:
    """Return the sizes between 1 and all members that are averaged."""
    if members <= MOST_SIZES:
        return list(range(2, members))
    return [1 << power for power in range(1, members.bit_length()) if 1 << power < members]


def _subset_qualities(folder: RunFolder, plan: Plan, trial: int) -> Points:
    """Average the verified predictions of subsets; return the mean quality of each size."""
    members = [_finished(folder, trial, place.member) for place in plan.mapping]
    task = run_folder.read(Task, members[0].folder.task)
    validation = open_store(Path(task.store)).splits["validation"]
    everything = np.arange(validation.count, dtype=np.int64)
    targets = validation.rows(everything, names=target_names(validation.fields))
    for member in members:
        member.verify_validation(samples=validation.count)
    draws = {size: min(SUBSETS, comb(len(members), size)) for size in subset_sizes(len(members))}
    read = sum(size * count for size, count in draws.items()) * members[0].validation().nbytes
    if read > MOST_BYTES:
        raise AI500Error(f"{read / 1e9:.0f} GB of predictions would be read")
    workload = load_workload(plan.workload)
    generator = np.random.default_rng([SEED, trial])
    points = {}
    for size, count in draws.items():
        subsets: set[tuple[int, ...]] = set()
        while len(subsets) < count:
            drawn = generator.choice(len(members), size, replace=False)
            subsets.add(tuple(sorted(int(place) for place in drawn)))
        points[size] = fmean(
            workload.quality(
                workload.combine(ValidationPredictions.of([members[place] for place in subset])),
                targets,
            )
            for subset in sorted(subsets)
        )
    return points


def _finished(folder: RunFolder, trial: int, member: int) -> FinishedMember:
    files = folder.trial(trial).member(member)
    record = run_folder.read(TrainRecord, files.record)
    bootstrap = Path(run_folder.read(Task, files.task).bootstrap)
    return FinishedMember(
        member, files, record, folder.path, partial(expected_counts, bootstrap, sha256=None)
    )
