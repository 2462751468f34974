"""Ranking of models: accuracies predicted from learning curves, and the choice of parents.

AIPerf §IV-C, §IV-E. Needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ai500.automl.history import Model

LEAST_EPOCHS = 3
"""Epochs of a prediction: the curve has three unknowns."""
EXPONENTS = tuple(np.geomspace(0.05, 4.0, 60))
SHRINKAGE = 1e-3
"""Weight of b² in the fit, so that noise in a flat curve is not fitted by a steep one."""


def predicted_accuracy(accuracies: Sequence[float], *, epochs: int) -> float:
    """Predict the accuracy at `epochs` by the power law a − b·n^−c (AIPerf §IV-E).

    For each c on a grid, a and b ≥ 0 are fitted by least squares; the best c is used. The best
    accuracy so far and 1 bound the prediction. Fewer than three epochs predict the best so far.
    """
    best, done = max(accuracies), len(accuracies)
    if done < LEAST_EPOCHS or epochs <= done:
        return best
    numbers, values = np.arange(1, done + 1, dtype=np.float64), np.asarray(accuracies)
    fits = [(*_fit(numbers**-c, values), c) for c in EXPONENTS]
    _, a, b, c = min(fits)
    return float(np.clip(a - b * float(epochs) ** -c, best, 1.0))


def _fit(powers: np.ndarray, values: np.ndarray) -> tuple[float, float, float]:
    """Return squared error, a and b of a − b·powers; a falling accuracy has b = 0."""
    centred = powers - powers.mean()
    slope = float(centred @ (values - values.mean()) / (centred @ centred + SHRINKAGE))
    b = max(0.0, -slope)
    a = float(values.mean() + b * powers.mean())
    error = values - (a - b * powers)
    return float(error @ error + SHRINKAGE * b * b), a, b


def has_stalled(accuracies: Sequence[float], *, patience: int) -> bool:
    """Return True if none of the last `patience` epochs was better than all before."""
    if len(accuracies) <= patience:
        return False
    return max(accuracies[-patience:]) <= max(accuracies[:-patience])


TEMPERATURE = 2.0
"""Temperature of the draw by rank: the second has e^−1/2 = 0.61 of the first's probability."""


def ranked(
    models: Iterable[Model], *, by_prediction: bool, training: str | None = None
) -> list[Model]:
    """Return the possible parents, best first: by predicted accuracy in warm-up rounds.

    A worker's own model in `training` is possible: its weights follow when it has ended. Ties are
    ordered by name, so that every worker ranks alike.
    """
    candidates = [
        model
        for model in models
        if (model.id == training if model.ended is None else model.ended.weights is not None)
    ]

    def key(model: Model) -> tuple[float, str]:
        value = model.predicted if by_prediction else model.accuracy
        return -(value or 0.0), model.id

    return sorted((model for model in candidates if model.epochs), key=key)


def models_to_keep(models: Iterable[Model], *, best: int) -> set[str]:
    """Return the names of models whose weights are still needed: the best by either ranking."""
    known = list(models)
    return {
        model.id
        for by_prediction in (False, True)
        for model in ranked(known, by_prediction=by_prediction)[:best]
    }


def draw_parents(
    models: Iterable[Model],
    *,
    by_prediction: bool,
    best: int,
    random: np.random.Generator,
    training: str | None = None,
) -> Iterator[Model]:
    """Yield the best models in a random order: each place goes to rank r with weight exp(−r / 2).

    The remaining models follow in their order, in case the best have no new children.
    """
    known = ranked(models, by_prediction=by_prediction, training=training)
    left, remaining = known[:best], known[best:]
    ranks = list(range(len(left)))
    while left:
        weights = np.array([math.exp(-rank / TEMPERATURE) for rank in ranks])
        at = int(random.choice(len(left), p=weights / weights.sum()))
        ranks.pop(at)
        yield left.pop(at)
    yield from remaining
