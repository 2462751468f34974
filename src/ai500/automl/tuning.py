"""Hyper-parameters by TPE (AIPerf §IV-B), from the history alone: no study is shared (ADR 0006)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ai500.automl.history import Model
from ai500.core.errors import EnvironmentLacksError
from ai500.records import Search

STARTUP_MODELS = 4
"""Before so many models have ended TPE draws evenly; a worker's warm-up has as many."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is tuned."""

    batch_size: int
    """Images per accelerator and step."""
    kernel: int
    tuned: bool


def default_proposal(search: Search, *, batch_size: int) -> Proposal:
    """Before TPE begins: the class's own."""
    return Proposal(batch_size, search.kernel_sizes[0], tuned=False)


def propose(models: Iterable[Model], *, search: Search, parts: int, seed: int) -> Proposal:
    """Optuna's TPE, told of every model of the history, asked once.

    `parts`: pieces of a step's batch (degree × accumulation), one of which TPE chooses the size of.
    Models that still train are told with the worst accuracy so far (the constant liar), so that
    workers which ask at the same time are not all sent to the same place; so are models that were
    lost before they were judged: out of memory is the worst place of all.
    """
    optuna = import_optuna()
    space = {
        "batch_size": optuna.distributions.CategoricalDistribution(search.batch_sizes),
        "kernel": optuna.distributions.CategoricalDistribution(search.kernel_sizes),
    }
    sampler = optuna.samplers.TPESampler(seed=seed % 2**32, n_startup_trials=STARTUP_MODELS)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    known = sorted(models, key=lambda model: model.id)
    judged = [model.accuracy for model in known if model.accuracy is not None]
    for model in known:
        params = {
            "batch_size": model.candidate.batch_size // parts,
            "kernel": model.candidate.kernel or search.kernel_sizes[0],
        }
        value = model.accuracy
        if value is None and model.state in ("training", "lost"):
            value = min(judged, default=None)
        if value is None or any(params[name] not in space[name].choices for name in space):
            continue
        study.add_trial(optuna.create_trial(params=params, distributions=space, value=value))
    asked = study.ask(space).params
    return Proposal(asked["batch_size"], asked["kernel"], tuned=True)


def import_optuna() -> Any:
    """Optuna, or an error that says what it is for."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own dependencies
            import optuna
    except ImportError as error:
        raise EnvironmentLacksError(
            "a search tunes batch and kernel size by Optuna's TPE (AIPerf Table IV), which is not "
            "installed here: pip install optuna."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
