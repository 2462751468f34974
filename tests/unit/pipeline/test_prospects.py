"""Whether a plan can end in a valid result, and the layout that `--runs valid` chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500 import config as configuration
from ai500.automl.rules import SEARCH_RULES
from ai500.pipeline import prospects, scoring
from ai500.pipeline.stages import survey_and_plan
from ai500.records import Plan, run_folder
from ai500.rules.registry import ENSEMBLE_RULES
from tests.support.submitted import submittable_run

SLOTS = {"system.device": "cpu", "system.cores_per_slot": 1, "system.nodes": 1}


def planned(slots: int, **settings: object) -> tuple[configuration.Config, Plan]:
    """Plan class smoke on a machine of so many slots; `a__b` stands for key a.b."""
    overrides = {name.replace("__", "."): value for name, value in settings.items()}
    accelerators = {"system.accelerators_per_node": slots}
    config = configuration.load(overrides=SLOTS | accelerators | overrides)
    return config, survey_and_plan(config)[1]


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({"run__trials": 3, "parallel__degree": 1}, set()),
        ({"run__trials": 2, "parallel__degree": 1}, {"enough trials"}),
        ({"run__trials": 3, "parallel__degree": 4}, {"one wave"}),
        ({"run__trials": 3, "ensemble__size": 2}, {"minimum ensemble size"}),
        ({"run__trials": 3, "parallel__degree": 1, "run__seed": 7}, {"seed of the edition"}),
        ({"run__trials": 3, "parallel__degree": 1, "train__epochs": 12}, {"same epochs"}),
        (
            {"run__trials": 3, "parallel__degree": 1, "train__weight_decay": 0.1},
            {"fixed hyperparameters"},
        ),
        ({"run__trials": 3, "parallel__degree": 1, "train__precision": "mixed-bf16"}, set()),
    ],
)
def test_a_plan_names_the_rules_that_it_breaks(
    settings: dict[str, object], rules: set[str]
) -> None:
    _, plan = planned(4, **settings)
    obstacles = prospects.obstacles(plan)
    assert {obstacle.rule for obstacle in obstacles} == rules
    known = {rule.name for rule in (*ENSEMBLE_RULES, *SEARCH_RULES)}
    assert rules <= known
    assert all(obstacle.remedy.endswith(".") for obstacle in obstacles)


def test_a_run_that_breaks_no_rule_had_no_obstacle(tmp_path: Path) -> None:
    run = submittable_run(tmp_path / "run")
    assert not scoring.judge_run(run)[1].broken
    assert prospects.obstacles(run_folder.read(Plan, run.plan)) == []


@pytest.mark.parametrize(
    ("slots", "settings", "degree", "shared", "members"),
    [
        (2, {}, 1, 2, 4),
        (3, {}, 1, 2, 6),  # M fills the machine
        (8, {}, 2, 1, 4),
        (1, {}, 1, 4, 4),
        (2, {"workload": "automl", "ensemble__size": 8}, 1, 4, 8),
        (4, {"parallel__degree": 2}, 2, 2, 4),
        (2, {"ensemble__size": 8}, 1, 4, 8),
    ],
)
def test_a_layout_of_one_wave_is_chosen(
    slots: int, settings: dict[str, object], degree: int, shared: int, members: int
) -> None:
    config, before = planned(slots, run__trials="valid", **settings)
    chosen, plan = prospects.with_one_wave(config, before)
    assert plan.waves == 1
    assert (plan.parallel_degree, plan.members_per_accelerator) == (degree, shared)
    assert plan.ensemble_size == members
    assert prospects.obstacles(plan) == []
    assert (chosen.parallel.degree, chosen.ensemble.members_per_accelerator) == (degree, shared)


@pytest.mark.parametrize(
    ("slots", "settings"),
    [
        (4, {"parallel__degree": 1}),  # one wave as it is
        (2, {"ensemble__members_per_accelerator": 3}),  # the user's own choice
        (2, {"ensemble__size": 64}),  # 32 members of one slot
        (2, {"workload": "automl"}),
    ],
)
def test_nothing_else_is_changed(slots: int, settings: dict[str, object]) -> None:
    config, plan = planned(slots, run__trials="valid", **settings)
    assert prospects.with_one_wave(config, plan) == (config, plan)


def test_members_that_share_a_slot_take_turns_in_the_estimate() -> None:
    """Four members on two slots: two waves, or one of shared slots, train for as long."""
    _, waves = planned(2, run__trials=3, parallel__degree=1)
    _, shared = planned(2, run__trials=3, parallel__degree=1, ensemble__members_per_accelerator=2)
    assert (waves.waves, shared.waves) == (2, 1)
    assert shared.estimated_seconds is not None
    assert shared.estimated_seconds == pytest.approx(waves.estimated_seconds)
