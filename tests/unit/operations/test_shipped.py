"""Counts that ship with the package equal the traced ones."""

from __future__ import annotations

import pytest

from ai500.core.errors import InputError
from ai500.operations.rules import CONVENTIONS
from ai500.operations.shipped import _table, shipped
from ai500.workloads import ship_operations as ship


def test_shipped_equals_traced() -> None:
    assert _table() == ship.table(), "run: python -m ai500.workloads.ship_operations"


def test_every_class_ships_in_every_convention() -> None:
    models = list(ship.models_to_ship())
    assert {("image_classification", name) for name in ("smoke", "workstation", "full")} <= {
        (workload, problem_class) for workload, problem_class, _ in models
    }
    for workload, problem_class, _ in models:
        for convention in CONVENTIONS:
            found = shipped(workload, problem_class, convention)
            assert found is not None
            assert found.convention == convention
            assert 0 < found.forward < found.backward < 2 * found.forward


def test_full_is_resnet50() -> None:
    full = shipped("image_classification", "full")
    assert full is not None
    assert full.parameters == 25_557_032
    # Convolution and dense gradients, without the input gradient of the first convolution.
    assert full.backward == 2 * (8_174_272_512 + 4_096_000) - 236_027_904


def test_what_is_not_ours_is_none() -> None:
    assert shipped("image_classification", "huge") is None
    assert shipped("somebody_elses", "full") is None
    with pytest.raises(InputError, match="unknown convention"):
        shipped("image_classification", "full", "flop")
