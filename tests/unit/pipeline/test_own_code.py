"""Code of the user's own in a plan (free level)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.cli.plan import show_plan
from ai500.config import load
from ai500.core.errors import ConfigError
from ai500.inventory import machine
from ai500.pipeline.planning import make_plan
from ai500.records import OwnCode, Plan


def planned(**settings: object) -> Plan:
    overrides = {key.replace("__", "."): value for key, value in settings.items()}
    return make_plan(load(overrides=overrides), machine.describe())


def test_a_plan_names_the_code_and_knows_no_operations_of_the_model(tmp_path: Path) -> None:
    file = tmp_path / "ai500.toml"
    file.write_text('[free_level]\nmodel = "mine:net"\nloss = "mine.losses:focal"\n')
    plan = make_plan(load(file), machine.describe())
    assert plan.own_code == OwnCode(
        model="mine:net", loss="mine.losses:focal", folder=str(tmp_path)
    )
    assert plan.own_code.parts == ("model", "loss")
    assert (plan.operations, plan.estimated_seconds) == (None, None)


def test_an_optimizer_of_ones_own_leaves_the_models_operations() -> None:
    plan = planned(free_level__optimizer="mine:sgd")
    assert plan.operations is not None


def test_a_plan_without_such_code_has_none() -> None:
    assert planned().own_code == OwnCode()
    assert planned(free_level__folder="/somewhere").own_code == OwnCode()


@pytest.mark.parametrize("name", ["mine", "mine:", ":net", "mine:a.b", "a b:c", "1:x"])
def test_what_names_no_function_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(free_level__model=name)
    assert (caught.value.key, caught.value.value) == ("free_level.model", name)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"parallel__mode": "tensor", "parallel__degree": 2}, "parallel.mode"),
        ({"parallel__sharded": True, "parallel__degree": 2}, "parallel.sharded"),
        (
            {
                "framework__kind": "script",
                "framework__command": ["sh", "x"],
                "custom_class__name": "mine",
            },
            "free_level.model",
        ),
        ({"workload": "automl"}, "free_level.model"),
    ],
)
def test_what_does_not_fit_with_a_model_of_ones_own(settings: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(free_level__model="mine:net", system__accelerators_per_node=2, **settings)
    assert caught.value.key == key


def test_plan_shows_what_keeps_a_run_from_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(planned(free_level__model="mine:net", run__seed=7))
    shown = " ".join(capsys.readouterr().out.split())
    assert "model mine:net: free level only" in shown
    assert "your own seed 7: no entry of the list" in shown
    show_plan(planned())
    shown = " ".join(capsys.readouterr().out.split())
    assert "seeds of edition 2026-11" in shown
    assert "free level" not in shown
