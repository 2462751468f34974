"""The choice of the program, and what every program offers."""

from __future__ import annotations

from importlib import import_module

import pytest

from ai500.automl.program import SEARCH
from ai500.bagging.program import ENSEMBLE
from ai500.pipeline.programs import PROGRAMS, Program, program_of_class
from ai500.workloads.automl import CLASSES as SEARCH_CLASSES
from ai500.workloads.image_classification import CLASSES as ENSEMBLE_CLASSES


def test_a_class_with_search_settings_is_a_search() -> None:
    assert {program_of_class(each) for each in SEARCH_CLASSES.values()} == {SEARCH}
    assert {program_of_class(each) for each in ENSEMBLE_CLASSES.values()} == {ENSEMBLE}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_entry_point_of_a_program_exists(program: Program) -> None:
    module, _, function = program.entry_point.partition(":")
    assert callable(getattr(import_module(module), function))
