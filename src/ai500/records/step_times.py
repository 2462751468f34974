"""Step times of an epoch as quantiles: the field `step_times` of a member's `epoch` events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PROBABILITIES = {
    "minimum": 0.0,
    "p10": 0.1,
    "p50": 0.5,
    "p90": 0.9,
    "p99": 0.99,
    "p999": 0.999,
    "maximum": 1.0,
}
"""Field of `StepTimes` → probability of its quantile."""
LEAST_STEPS = 2
"""Steps from which quantiles say something of their spread."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Quantiles of the step times of an epoch, in seconds."""

    count: int
    """Steps that were timed: not the first one, nor those in which a checkpoint was written."""
    minimum: float
    p10: float
    p50: float
    p90: float
    p99: float
    p999: float
    maximum: float

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Seconds in the order of `PROBABILITIES`."""
        return tuple(getattr(self, name) for name in PROBABILITIES)


def summarize(seconds: Sequence[float]) -> StepTimes | None:
    """Return the quantiles of these times; None: too few to tell."""
    if len(seconds) < LEAST_STEPS:
        return None
    values = np.quantile(seconds, list(PROBABILITIES.values()))
    # Five digits: events are text, and no clock is more exact.
    return StepTimes(len(seconds), *(float(f"{value:.5g}") for value in values))
