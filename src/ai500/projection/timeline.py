"""Time of a step, of a member and of an ensemble as functions of numbers.

step         buckets are averaged one after another, each when its gradients are ready
failures     a Poisson process over the member's nodes: each failure loses the work since the
             last checkpoint and the time to requeue; drawn for M members, seeded
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

MOST_MTBFS = 3.0
"""Longest time between two checkpoints, in MTBFs: beyond it a member makes hardly any progress."""
MOST_FAILURES = 10_000
"""Failures of a member that are drawn at most."""


def bucketed_step(computation: float, *, reduce: float, buckets: int, forward: float) -> float:
    """Return the seconds of a step whose buckets become ready evenly after the forward pass.

    `forward` is the share of the computation before the first gradient.
    """
    begin = computation * forward
    ready = [begin + (computation - begin) * (index + 1) / buckets for index in range(buckets)]
    return overlapped_step(compute=computation, ready=ready, reduce=[reduce / buckets] * buckets)


def first_bucket(computation: float, *, reduce: float, buckets: int, step: float) -> float:
    """Return the share of the computation before the first bucket that gives a measured step."""
    early, late = 0.0, 1.0
    for _ in range(30):
        middle = (early + late) / 2
        seconds = bucketed_step(computation, reduce=reduce, buckets=buckets, forward=middle)
        early, late = (middle, late) if seconds < step else (early, middle)
    return (early + late) / 2


def overlapped_step(
    *, compute: float, ready: Sequence[float], reduce: Sequence[float], tail: float = 0.0
) -> float:
    """Return the seconds of a step; bucket k is ready at `ready[k]` and takes `reduce[k]`.

    `tail` is what follows all buckets: the optimizer.
    """
    done = 0.0
    for begin, seconds in zip(ready, reduce, strict=True):
        done = max(done, begin) + seconds
    return max(compute - tail, done) + tail


def young_interval(*, mtbf: float, checkpoint: float) -> float:
    """Return Young's checkpoint interval: √(2 · cost · MTBF)."""
    return math.sqrt(2 * checkpoint * mtbf)


def with_failures(
    work: float,
    *,
    members: int,
    mtbf: float,
    interval: float,
    checkpoint: float,
    requeue: float,
    seed: int,
    trials: int = 21,
) -> tuple[float, float, float]:
    """Return the time until the last member ends: median, 5th and 95th percentile of the trials.

    `mtbf` is a member's: that of a node divided by its nodes. Infinite: failures come so fast that
    hardly a checkpoint is reached.
    """
    segment = interval + checkpoint
    if segment > MOST_MTBFS * mtbf or work / mtbf > MOST_FAILURES:
        return math.inf, math.inf, math.inf
    generator = np.random.default_rng(seed)
    elapsed = np.zeros(trials * members)
    active, remaining = np.arange(elapsed.size), np.full(elapsed.size, float(work))
    while active.size:
        failure = generator.exponential(mtbf, active.size)
        uninterrupted = remaining + checkpoint * np.floor(remaining / interval)
        done = failure >= uninterrupted
        elapsed[active] += np.where(done, uninterrupted, failure + requeue)
        remaining -= np.floor(failure / segment) * interval
        active, remaining = active[~done], remaining[~done]
    ends = elapsed.reshape(trials, members).max(axis=1)
    low, middle, high = np.quantile(ends, [0.05, 0.5, 0.95])
    return float(middle), float(low), float(high)
