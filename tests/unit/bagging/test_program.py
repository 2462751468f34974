"""The ensemble as a program: its settings and the cost of its trials."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ai500 import config as configuration
from ai500.bagging.program import ENSEMBLE
from ai500.core.errors import ConfigError
from ai500.pipeline.programs import program_of
from ai500.records import Operations
from ai500.workloads.image_classification import CLASSES
from tests.support.synthetic_run import Shape, make_plan


def test_an_ensemble_refuses_the_settings_of_a_search() -> None:
    config, problem_class = configuration.load(overrides={"automl.minutes": 1}), CLASSES["smoke"]
    with pytest.raises(ConfigError) as error:
        ENSEMBLE.settings(config, problem_class, problem_class.reference, device="cpu", degree=1)
    assert (error.value.key, error.value.value) == ("automl.minutes", 1)


def test_the_cost_of_a_trial_is_that_of_its_steps() -> None:
    plan = replace(
        make_plan(Shape(members=2, slots=1)), operations=Operations("aiperf", 10, 20, 5, 1)
    )
    steps = plan.steps_per_epoch * plan.hyperparameters.epochs
    assert ENSEMBLE.cost(plan).operations == 2 * steps * (30 * plan.global_batch_size + 5)
    assert ENSEMBLE.cost(replace(plan, operations=None)).operations is None
    assert program_of(plan) is ENSEMBLE
