"""Hyper-parameters by TPE (AIPerf §IV-B), from the history only: no shared study (ADR 0006)."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ai500.automl.history import Model
from ai500.core.errors import EnvironmentLacksError
from ai500.records import Search

STARTUP_MODELS = 4
"""Models before which TPE draws uniformly; a worker's warm-up has as many."""
MAX_QUESTIONS = 16
"""Questions to TPE for a choice that was not tried yet, before the first such choice is taken."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Hyper-parameters that a search tunes."""

    batch_size: int
    """Images per accelerator and step."""
    kernel: int
    tuned: bool


def default_proposal(search: Search, *, batch_size: int) -> Proposal:
    """Return the class's own hyper-parameters, which are used until TPE begins."""
    return Proposal(batch_size, search.kernel_sizes[0], tuned=False)


def propose(
    models: Iterable[Model],
    *,
    search: Search,
    parts: int,
    seed: int,
    kernels: Sequence[int] = (),
    tried: Collection[tuple[int, int]] = (),
) -> Proposal | None:
    """Ask Optuna's TPE for one proposal, given every model of the history.

    `kernels` are the sizes that the architecture can have (default: all), `tried` its batch and
    kernel sizes so far; None: there are no others. `parts` is the number of pieces of a step's
    batch (degree × accumulation); TPE chooses the size of one.

    Models in training enter with the worst accuracy so far (the constant liar), so that workers
    that ask at the same time get different proposals; so do models that were lost before their
    first validation, such as those that ran out of memory.
    """
    optuna = import_optuna()
    space = {
        "batch_size": optuna.distributions.CategoricalDistribution(search.batch_sizes),
        "kernel": optuna.distributions.CategoricalDistribution(kernels or search.kernel_sizes),
    }
    sampler = optuna.samplers.TPESampler(seed=seed % 2**32, n_startup_trials=STARTUP_MODELS)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    known = sorted(models, key=lambda model: model.id)
    accuracies = [model.accuracy for model in known if model.accuracy is not None]
    for model in known:
        params = {
            "batch_size": model.candidate.batch_size // parts,
            "kernel": model.candidate.kernel or search.kernel_sizes[0],
        }
        value = model.accuracy
        if value is None and model.state in ("training", "lost"):
            value = min(accuracies, default=None)
        if value is None or any(params[name] not in space[name].choices for name in space):
            continue
        study.add_trial(optuna.create_trial(params=params, distributions=space, value=value))
    for _ in range(MAX_QUESTIONS):
        chosen = study.ask(space).params
        if (chosen["batch_size"], chosen["kernel"]) not in tried:
            return Proposal(chosen["batch_size"], chosen["kernel"], tuned=True)
    for batch_size, kernel in product(search.batch_sizes, kernels or search.kernel_sizes):
        if (batch_size, kernel) not in tried:
            return Proposal(batch_size, kernel, tuned=True)
    return None


def import_optuna() -> Any:
    """Import Optuna; an error says what it is needed for."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of its dependencies
            import optuna
    except ImportError as error:
        raise EnvironmentLacksError(
            "a search tunes batch and kernel size by Optuna's TPE (AIPerf Table IV); Optuna is not "
            "installed.",
            value="optuna",
            remedy="Run: pip install optuna",
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
