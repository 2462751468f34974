"""The search of a plan: the class's own with the user's changes, checked. Needs no torch."""

from __future__ import annotations

import dataclasses
from typing import Any

from ai500.config import AutomlConfig, Config
from ai500.core.errors import ConfigError, EnvironmentLacksError
from ai500.records import Hyperparameters, ProblemClass, Search
from ai500.workloads.models.architecture import MAX_KERNEL


def planned_search(
    config: Config,
    problem_class: ProblemClass,
    hyper: Hyperparameters,
    *,
    device: str,
    degree: int,
) -> Search:
    """Apply the user's changes to the class's search, and check them."""
    reference = problem_class.search
    assert reference is not None
    if reference.needs_accelerator and device == "cpu":
        raise EnvironmentLacksError(
            f"class {problem_class.name} of {config.workload} needs accelerators, and this system "
            "has none that torch can use: on a CPU it would not train one model in its "
            f'{reference.minutes:g} minutes. Choose problem_class = "smoke".'
        )
    search = dataclasses.replace(reference, **_changes(config.automl))
    _check_sizes(search)
    largest = max(search.batch_sizes) * hyper.accumulation * degree
    if largest > problem_class.train_samples:
        raise ConfigError(
            f"automl.batch_sizes = {list(search.batch_sizes)}: a step of {largest} images "
            "(the largest × parallel.degree × train.accumulation) is more than the "
            f"{problem_class.train_samples} samples of class {problem_class.name}. Leave it out."
        )
    _check_training(config, hyper)
    return search


def _changes(wanted: AutomlConfig) -> dict[str, Any]:
    stated = {one.name: getattr(wanted, one.name) for one in dataclasses.fields(wanted)}
    return {name: value for name, value in stated.items() if value is not None}


def _check_sizes(search: Search) -> None:
    """Every size can be used, and there is at least one."""
    if not search.batch_sizes or min(search.batch_sizes) < 1:
        raise ConfigError(
            f"automl.batch_sizes = {list(search.batch_sizes)}: state at least one, each at least "
            "1, such as [32, 64]."
        )
    if not search.kernel_sizes or any(size < 1 or size % 2 == 0 for size in search.kernel_sizes):
        raise ConfigError(
            f"automl.kernel_sizes = {list(search.kernel_sizes)}: state at least one, each odd (an "
            "added block keeps the size of its input), such as [3, 5]."
        )
    if max(search.kernel_sizes) > MAX_KERNEL:
        raise ConfigError(
            f"automl.kernel_sizes = {list(search.kernel_sizes)}: a search has kernels of at most "
            f"{MAX_KERNEL} × {MAX_KERNEL}. State smaller ones, such as [3, 5]."
        )
    for name in ("batch_sizes", "kernel_sizes"):
        sizes = getattr(search, name)
        if len(set(sizes)) < len(sizes):
            raise ConfigError(
                f"automl.{name} = {list(sizes)}: TPE chooses from different sizes. State each once."
            )
    if search.max_growth <= 1:
        raise ConfigError(
            f"automl.max_growth = {search.max_growth:g}: every child has more operations than "
            "the initial model, so none could be tried. Set more than 1, such as 8."
        )


def _check_training(config: Config, hyper: Hyperparameters) -> None:
    """Models come and go: what divides a model among accelerators would have to follow them."""
    if config.parallel.mode != "data" or config.parallel.sharded:
        what = "sharded = true" if config.parallel.sharded else f'mode = "{config.parallel.mode}"'
        raise ConfigError(
            f"parallel.{what}: the accelerators of a worker share the batch of each model "
            '(AIPerf Table IV: synchronous all-reduce). Leave it at parallel.mode = "data".'
        )
    if config.ensemble.sampler not in ("bootstrap", "whole"):
        raise ConfigError(
            f'ensemble.sampler = "{config.ensemble.sampler}": the workers of a search all train on '
            "the whole data set. Leave it out."
        )
    if hyper.evaluate_every_epochs != 1:
        raise ConfigError(
            f"train.evaluate_every_epochs = {hyper.evaluate_every_epochs}: a search judges a model "
            "after every epoch (AIPerf §IV-E: patience, predicted accuracy). Leave it out."
        )
