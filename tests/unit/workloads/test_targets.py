"""Targets of the workloads beyond the papers' follow from what was measured, by one rule."""

from __future__ import annotations

import tomllib
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from ai500.workloads.protocol import load_workload
from tests.support.commands import REPOSITORY

FILE: Path = REPOSITORY / "docs" / "targets.toml"
MEASURED: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(FILE.read_text(encoding="utf-8"))
CASES = [(name, problem_class) for name in MEASURED for problem_class in MEASURED[name]]
HUNDREDTH = Decimal("0.01")


@pytest.mark.parametrize("name", MEASURED)
def test_every_class_has_a_source(name: str) -> None:
    assert set(MEASURED[name]) == set(load_workload(name).problem_classes)


@pytest.mark.parametrize(("name", "problem_class"), CASES)
def test_a_target_is_the_mean_and_one_standard_deviation(name: str, problem_class: str) -> None:
    """Moved towards worse, and rounded to two digits in the same direction."""
    workload = load_workload(name)
    definition, source = workload.problem_classes[problem_class], MEASURED[name][problem_class]
    if "published" in source:
        assert definition.name == "full"
        return
    ensembles, members = source["ensembles"], source["members"]
    assert len(ensembles) == len(members) >= 3
    assert not definition.provisional_target
    if workload.quality_direction == "lower":
        worse, rounding = mean(ensembles) + stdev(ensembles), ROUND_CEILING
        assert all(e < m for e, m in zip(ensembles, members, strict=True))
    else:
        worse, rounding = mean(ensembles) - stdev(ensembles), ROUND_FLOOR
        assert all(e > m for e, m in zip(ensembles, members, strict=True))
    expected = Decimal(str(worse)).quantize(HUNDREDTH, rounding)
    assert Decimal(str(definition.target_quality)).quantize(HUNDREDTH) == expected


def test_a_target_of_other_data_is_provisional() -> None:
    """MLPerf HPC's targets are for the data of the class; the language model's is not."""
    provisional = [
        (name, problem_class)
        for name, problem_class in CASES
        if load_workload(name).problem_classes[problem_class].provisional_target
    ]
    assert provisional == [("language_model", "full")]
