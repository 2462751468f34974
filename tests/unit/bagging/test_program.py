"""The ensemble as a program: its settings and the cost of its trials."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ai500 import config as configuration
from ai500.bagging.program import ENSEMBLE
from ai500.core.errors import ConfigError
from ai500.pipeline.programs import program_of
from ai500.records import Operations
from tests.support.synthetic_run import Shape, make_plan


def test_an_ensemble_refuses_the_settings_of_a_search() -> None:
    config = configuration.load(overrides={"automl.minutes": 1})
    with pytest.raises(ConfigError) as error:
        ENSEMBLE.complete(make_plan(Shape(members=2, slots=1)), config)
    assert (error.value.key, error.value.value) == ("automl.minutes", 1)


def test_the_cost_of_a_trial_is_that_of_its_steps() -> None:
    plan = replace(
        make_plan(Shape(members=2, slots=1)), operations=Operations("aiperf", 10, 20, 5, 1)
    )
    steps = plan.steps_per_epoch * plan.hyperparameters.epochs
    config = configuration.load()
    completed = ENSEMBLE.complete(plan, config)
    assert completed.operations_per_trial == 2 * steps * (30 * plan.global_batch_size + 5)
    uncounted = ENSEMBLE.complete(replace(plan, operations=None), config)
    assert uncounted.operations_per_trial is None
    assert program_of(plan) is ENSEMBLE
