"""The accuracy that a learning curve promises, and when to wait no longer. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEAST_EPOCHS = 3
"""A curve of three unknowns through fewer points would say anything."""
EXPONENTS = tuple(np.geomspace(0.05, 4.0, 60))
SHRINKAGE = 1e-3
"""A weight on b², so that noise in a flat curve is not taken for a steep one."""


def predicted_accuracy(accuracies: Sequence[float], *, epochs: int) -> float:
    """At `epochs`, by the power law a − b·n^−c through the epochs so far (AIPerf §IV-E).

    For each c on a grid a and b ≥ 0 follow by least squares; the best c wins. What the model has
    reached already, and 1, are its bounds. Fewer than three epochs predict what was reached.
    """
    best, done = max(accuracies), len(accuracies)
    if done < LEAST_EPOCHS or epochs <= done:
        return best
    numbers, values = np.arange(1, done + 1, dtype=np.float64), np.asarray(accuracies)
    fits = [(*_fit(numbers**-c, values), c) for c in EXPONENTS]
    _, a, b, c = min(fits)
    return float(np.clip(a - b * float(epochs) ** -c, best, 1.0))


def _fit(powers: np.ndarray, values: np.ndarray) -> tuple[float, float, float]:
    """Squared error, a and b of a − b·powers; an accuracy that fell has b = 0."""
    centred = powers - powers.mean()
    slope = float(centred @ (values - values.mean()) / (centred @ centred + SHRINKAGE))
    b = max(0.0, -slope)
    a = float(values.mean() + b * powers.mean())
    error = values - (a - b * powers)
    return float(error @ error + SHRINKAGE * b * b), a, b


def without_progress(accuracies: Sequence[float], *, patience: int) -> bool:
    """Whether the last `patience` epochs were none better than one before them."""
    if len(accuracies) <= patience:
        return False
    return max(accuracies[-patience:]) <= max(accuracies[:-patience])
