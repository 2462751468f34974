"""Parents from the ranked history (AIPerf §IV-C, §IV-E). Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ai500.automl.history import Model

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


def has_stalled(accuracies: Sequence[float], *, patience: int) -> bool:
    """Whether the last `patience` epochs were none better than one before them."""
    if len(accuracies) <= patience:
        return False
    return max(accuracies[-patience:]) <= max(accuracies[:-patience])


TEMPERATURE = 2.0
"""Of the draw by rank: the second has e^−1/2 = 0.61 of the first one's chance."""


def ranked(
    models: Iterable[Model], *, by_prediction: bool, training: str | None = None
) -> list[Model]:
    """Those that can be parents, best first: in warm-up by what their learning curves promise.

    A worker's own model that still trains can be one: its weights come when it has ended. Equal
    ones stand in the order of their names, so that every worker ranks alike.
    """
    done = [
        one
        for one in models
        if (one.id == training if one.ended is None else one.ended.weights is not None)
    ]

    def key(model: Model) -> tuple[float, str]:
        value = model.predicted if by_prediction else model.accuracy
        return -(value or 0.0), model.id

    return sorted((one for one in done if one.epochs), key=key)


def kept(models: Iterable[Model], *, best: int) -> set[str]:
    """Whose weights may still be asked for: the best by either ranking."""
    known = list(models)
    return {
        one.id
        for by_prediction in (False, True)
        for one in ranked(known, by_prediction=by_prediction)[:best]
    }


def draw_parents(
    models: Iterable[Model],
    *,
    by_prediction: bool,
    best: int,
    random: np.random.Generator,
    training: str | None = None,
) -> Iterator[Model]:
    """The best ones in a drawn order: each place goes to rank r with weight exp(−r / 2).

    After them the others as they rank: where the best ones have no children left.
    """
    known = ranked(models, by_prediction=by_prediction, training=training)
    left, others = known[:best], known[best:]
    ranks = list(range(len(left)))
    while left:
        weights = np.array([math.exp(-rank / TEMPERATURE) for rank in ranks])
        at = int(random.choice(len(left), p=weights / weights.sum()))
        ranks.pop(at)
        yield left.pop(at)
    yield from others
