"""`ai500 plan` with scripts and classes of the user's: plans and refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ai500 import config as configuration
from ai500.core.errors import ConfigError, DataError, EnvironmentLacksError
from ai500.inventory import machine
from ai500.pipeline.planning import make_plan
from ai500.records import Plan
from ai500.workloads.protocol import load_workload

CLASS = {
    "name": "mine",
    "target_quality": 0.5,
    "penalty_exponent": 3,
    "epochs": 2,
    "batch_size": 10,
    "quality_name": "accuracy",
    "quality_direction": "higher",
    "train_samples": 100,
    "validation_samples": 20,
}
SCRIPT: dict[str, Any] = {
    "workload": "custom",
    "framework.kind": "script",
    "framework.command": [sys.executable, "train.py", "{task}"],
    **{f"custom_class.{key}": value for key, value in CLASS.items()},
}


def planned(**changes: Any) -> Plan:
    settings = {key: value for key, value in {**SCRIPT, **changes}.items() if value is not None}
    return make_plan(configuration.load(overrides=settings), machine.describe())


def test_a_script_is_planned_from_its_class_alone() -> None:
    plan = planned(**{"ensemble.size": 2, "system.accelerators_per_node": 2})
    assert (plan.workload, plan.problem_class) == ("custom", "mine")
    assert (plan.steps_per_epoch, plan.hyperparameters.epochs) == (10, 2)
    assert plan.operations is None and plan.apc is None
    assert plan.stage is False
    assert plan.framework.command == tuple(SCRIPT["framework.command"])
    assert plan.framework.folder == str(Path().absolute())
    assert plan.definition.custom is not None and plan.definition.custom.base is None


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"framework.command": None}, "framework.command"),
        ({"framework.kind": "pytorch", "framework.command": None}, "framework.kind"),
        ({"framework.kind": "pytorch"}, "framework.command"),
        ({"framework.kind": "tensorflaw"}, "framework.kind"),
        ({"custom_class.name": None}, "custom_class.name"),
        ({"custom_class.name": " "}, "custom_class.name"),
        ({"custom_class.epochs": None}, "custom_class.epochs"),
        ({"custom_class.train_samples": None}, "custom_class.train_samples"),
        ({"custom_class.quality_direction": "lower"}, "custom_class.quality_direction"),
        ({"train.optimizer": "lars"}, "train.optimizer"),
        ({"train.precision": "mixed-bf16"}, "train.precision"),
        ({"parallel.mode": "tensor"}, "parallel.mode"),
        ({"parallel.sharded": True}, "parallel.sharded"),
        ({"communication.precision": "int8"}, "communication.precision"),
        ({"ensemble.sharing": "process"}, "ensemble.sharing"),
        ({"framework.operations": "no/such/file.json"}, "framework.operations"),
    ],
)
def test_what_a_script_cannot_do_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(**changes)
    assert caught.value.key == key


def test_data_and_targets_are_looked_for_before_anything_trains(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        planned(**{"data.path": str(tmp_path / "none")})
    assert caught.value.key == "data.path"
    file = tmp_path / "targets.npy"
    targets = {"custom_class.validation_targets": str(file)}
    for contents in (None, b"", b"no array", np.arange(19), np.array(["a"] * 20)):
        if isinstance(contents, bytes):
            file.write_bytes(contents)
        elif contents is not None:
            np.save(file, contents)
        with pytest.raises(DataError) as caught:
            planned(**targets)
        assert (caught.value.key, caught.value.value) == next(iter(targets.items()))
    np.save(file, np.arange(20))
    custom = planned(**targets).definition.custom
    assert custom is not None and custom.validation_targets == str(file)


@pytest.mark.parametrize("program", ["no-such-program", "./no/such/script.sh"])
def test_a_missing_program_is_the_environments_fault(program: str) -> None:
    with pytest.raises(EnvironmentLacksError) as caught:
        planned(**{"framework.command": [program, "{task}"]})
    assert caught.value.exit_code == 3
    assert caught.value.value == program


def test_operations_that_the_user_states(tmp_path: Path) -> None:
    count = {
        "convention": "aiperf", "parameters": 7, "forward_per_sample": 100,
        "backward_per_sample": 200, "update": 14, "unknown": {},
    }  # fmt: skip
    file = tmp_path / "count.json"
    file.write_text(json.dumps(count))
    plan = planned(**{"framework.operations": str(file)})
    assert plan.operations is not None and plan.operations == plan.framework.operations
    assert plan.operations.per_step(10) == 10 * 300 + 14
    file.write_text(json.dumps(count | {"unknown": {"aten.mystery": 2}}))
    with pytest.raises(ConfigError) as raised:
        planned(**{"framework.operations": str(file)})
    assert (raised.value.key, raised.value.path) == ("framework.operations", str(file))
    assert "aten.mystery" in str(raised.value)


REGISTERED = {
    "custom_class.name": "tougher",
    "custom_class.target_quality": 0.99,
    "custom_class.penalty_exponent": 7,
}


def registered(**changes: Any) -> Plan:
    settings = {key: value for key, value in {**REGISTERED, **changes}.items() if value is not None}
    return make_plan(configuration.load(overrides=settings), machine.describe())


def test_a_class_of_ones_own_changes_a_registered_one() -> None:
    plan, own_epochs = registered(), registered(**{"custom_class.epochs": 3})
    definition = plan.definition
    assert (plan.problem_class, definition.name) == ("tougher", "smoke")
    assert (definition.target_quality, definition.penalty_exponent) == (0.99, 7)
    assert definition.custom is not None and definition.custom.base == "smoke"
    assert plan.framework.kind == "pytorch"
    assert plan.operations is not None  # the model is smoke's
    assert own_epochs.hyperparameters.epochs == own_epochs.definition.reference.epochs == 3


@pytest.mark.parametrize(
    "workload",
    ["image_classification", "extreme_weather", "language_model", "climate_segmentation",
     "cosmology"],
)  # fmt: skip
def test_a_class_of_ones_own_trains_the_model_of_the_registered_one(workload: str) -> None:
    plan, task = registered(workload=workload), load_workload(workload)
    with torch.device("meta"):
        models = [task.model(definition)
                  for definition in (plan.definition, task.problem_classes["smoke"])]  # fmt: skip
    own, smoke = ({name: value.shape for name, value in model.state_dict().items()}
                  for model in models)  # fmt: skip
    assert own == smoke
    assert task.parallel_plan(plan.definition) == task.parallel_plan(task.problem_classes["smoke"])


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"custom_class.name": None}, "custom_class.target_quality"),
        ({"custom_class.name": "full"}, "custom_class.name"),
        ({"custom_class.quality_name": "accuracy"}, "custom_class.quality_name"),
        ({"custom_class.train_samples": 5}, "custom_class.train_samples"),
        ({"workload": "automl"}, "custom_class.name"),
        ({"framework.operations": "count.json"}, "framework.operations"),
    ],
)
def test_a_key_without_effect_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registered(**changes)
    assert caught.value.key == key


def test_the_configuration_survives_its_file(tmp_path: Path) -> None:
    config = configuration.load(overrides=SCRIPT)
    file = tmp_path / "ai500.toml"
    file.write_text(configuration.to_toml(config))
    assert configuration.load(file) == config
