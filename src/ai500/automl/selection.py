"""Parents from the ranked history (AIPerf §IV-C, §IV-E). Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from ai500.automl.history import Model

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


def drawn_parents(
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
