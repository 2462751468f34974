"""Counts that ship with the package equal the traced ones."""

from __future__ import annotations

import pytest

from ai500.core.errors import InputError
from ai500.operations.rules import CONVENTIONS
from ai500.operations.shipped import _table, shipped_operations
from tests.support import ship_operations as ship

pytestmark = pytest.mark.slow


def test_shipped_equals_traced() -> None:
    assert _table() == ship.table(), "run: python -m tests.support.ship_operations"


def test_every_class_ships_in_every_convention() -> None:
    models = list(ship.models_to_ship())
    assert {("image_classification", name) for name in ("smoke", "workstation", "full")} <= {
        (workload, problem_class) for workload, problem_class, _ in models
    }
    for workload, problem_class, _ in models:
        for convention in CONVENTIONS:
            counts = shipped_operations(workload, problem_class, convention)
            assert counts is not None
            assert counts.convention == convention
            assert counts.uncounted == {}, "a built-in class has no operator without a rule"
            forward = counts.forward_per_sample
            # Two gradients per product, which only the first layer of images lacks.
            assert 0 < forward < counts.backward_per_sample <= 2 * forward


def test_full_is_resnet50() -> None:
    full = shipped_operations("image_classification", "full")
    assert full is not None
    assert full.parameters == 25_557_032
    # Convolution and dense gradients, without the input gradient of the first convolution.
    assert full.backward_per_sample == 2 * (8_174_272_512 + 4_096_000) - 236_027_904


def test_other_classes_have_no_shipped_count() -> None:
    assert shipped_operations("image_classification", "huge") is None
    assert shipped_operations("other_workload", "full") is None
    with pytest.raises(InputError) as error:
        shipped_operations("image_classification", "full", "flop")
    assert (error.value.key, error.value.value) == ("convention", "flop")
