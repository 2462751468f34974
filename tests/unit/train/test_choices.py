"""[train]: which choices go together, what follows from them, and what `plan` shows of it."""

from __future__ import annotations

from typing import Any

import pytest

from ai500.cli.plan import show_plan
from ai500.config import load
from ai500.core.errors import ConfigError
from ai500.pipeline.planning import make_plan
from ai500.records import Plan
from tests.support.trial_events import MACHINE


def planned(**train: Any) -> Plan:
    overrides: dict[str, Any] = {"parallel.degree": 2, "system.accelerators_per_node": 2}
    return make_plan(
        load(overrides=overrides | {f"train.{k}": v for k, v in train.items()}), MACHINE
    )


@pytest.mark.parametrize(
    ("train", "key"),
    [
        ({"momentum": 0.5, "optimizer": "adam"}, "momentum"),
        ({"trust_coefficient": 0.01}, "trust_coefficient"),
        ({"betas": [0.9, 0.99], "optimizer": "lars"}, "betas"),
        ({"epsilon": 1e-3}, "epsilon"),
        ({"decay_power": 3.0}, "decay_power"),
        ({"decay_epochs": [3]}, "decay_epochs"),
        ({"schedule": "step"}, "decay_epochs"),
        ({"schedule": "step", "decay_epochs": [3, 11]}, "decay_epochs"),
        ({"schedule": "step", "decay_epochs": [5, 3]}, "decay_epochs"),
        ({"schedule": "step", "decay_epochs": [0]}, "decay_epochs"),
        ({"warmup_epochs": 12}, "warmup_epochs"),
        ({"optimizer": "lamb", "betas": [0.9, 1.0]}, "betas"),
    ],
)
def test_an_invalid_combination_is_refused(train: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(**train)
    assert error.value.key == f"train.{key}"
    assert error.value.exit_code == 2


def test_a_step_larger_than_the_data_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        planned(accumulation=1000)
    assert raised.value.key == "train.batch_size"


@pytest.mark.parametrize(
    "train",
    [
        {"optimizer": "lars", "trust_coefficient": 0.01, "momentum": 0.9},
        {"optimizer": "lamb", "betas": [0.9, 0.99], "epsilon": 1e-7},
        {"optimizer": "adagrad", "epsilon": 1e-7},
        {"schedule": "polynomial", "decay_power": 1.0},
        {"schedule": "step", "decay_epochs": [3, 10]},
        {"warmup_epochs": 11},
    ],
)
def test_what_goes_together(train: dict[str, Any]) -> None:
    hyper = planned(**train).hyperparameters
    for key, value in train.items():
        assert getattr(hyper, key) == (tuple(value) if isinstance(value, list) else value)


def test_accumulation_is_in_everything_that_follows_from_the_batch() -> None:
    """Smoke: 64 images a step of 4,032; ×4 by accumulation."""
    once, four = planned(), planned(accumulation=4)
    assert (once.global_batch_size, four.global_batch_size) == (64, 256)
    assert (once.steps_per_epoch, four.steps_per_epoch) == (63, 15)
    assert (once.learning_rate, four.learning_rate) == (pytest.approx(0.3), pytest.approx(1.2))
    assert once.apc is not None
    assert four.apc == pytest.approx(4 * once.apc)


def test_the_update_counts_once_per_optimizer_step() -> None:
    """[D12]: the same images in a quarter of the steps have a quarter of the updates."""
    small, accumulated = planned(), planned(batch_size=8, accumulation=4)
    assert small.global_batch_size == accumulated.global_batch_size
    assert small.operations_per_trial == accumulated.operations_per_trial
    four = planned(accumulation=4)
    assert four.operations is not None
    assert four.operations_per_trial is not None
    per_sample = four.operations.forward_per_sample + four.operations.backward_per_sample
    steps = 15 * 11 * four.ensemble_size
    expected = steps * (256 * per_sample + four.operations.update_per_step)
    assert four.operations_per_trial == expected


def test_plan_shows_effective_batch_and_scaling(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(planned(accumulation=2, optimizer="lars", precision="int8"))
    shown = " ".join(capsys.readouterr().out.split())
    assert "effective batch 128 = 32 per accelerator × 2 × accumulation 2" in shown
    assert "1.2 × 128/256 = 0.6 after 2 epochs of warm-up, then cosine" in shown
    assert "lars, weight decay 0.0005 on everything" in shown
    assert "int8" in shown
    show_plan(planned(schedule="step", decay_epochs=(3, 6)))
    shown = " ".join(capsys.readouterr().out.split())
    assert "warm-up, then step after epochs 3, 6" in shown
