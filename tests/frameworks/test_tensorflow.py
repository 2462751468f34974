"""TensorFlow beside PyTorch: equal steps, equal counts, members trained and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import framework_checks
from tests.support.commands import Start

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(3600)]

#: Keras imports these itself.
OWN_MODULES = frozenset({"h5py", "rich"})


@pytest.mark.parametrize(
    "case",
    [
        "FP64",
        "FP32",
        "bottlenecks v1",
        "bottlenecks v1.5",
        pytest.param("ResNet-50", marks=pytest.mark.long),
    ],
)
def test_steps_agree_with_pytorch(case: str, tmp_path: Path) -> None:
    framework_checks.check_steps(
        "tensorflow", framework_checks.STEP_CASES[case], tmp_path, own_modules=OWN_MODULES
    )


def test_mixed_bf16_is_close_to_pytorch(tmp_path: Path) -> None:
    framework_checks.check_mixed_bf16("tensorflow", tmp_path)


STEP = """
from ai500.operations.training_step import step_difference
print(step_difference(backend.trace(batch=8), backend.trace_step(batch=8)))
"""


def test_the_step_that_runs_computes_the_gradients_that_are_counted() -> None:
    assert framework_checks.output_of("tensorflow", STEP).splitlines()[-1] == "0"


def test_count_of_the_graph_is_the_published_one() -> None:
    framework_checks.check_counts("tensorflow")


def test_a_stopped_member_resumes_to_the_same_weights(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    framework_checks.check_resume("tensorflow", tiny_store, start, tmp_path)


@pytest.mark.long
def test_two_stopped_ranks_resume_to_the_same_weights(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    framework_checks.check_resume("tensorflow", tiny_store, start, tmp_path, degree=2)


def test_submitted_members_are_repeated(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    framework_checks.check_rerun("tensorflow", tiny_store, start, tmp_path)


@pytest.mark.long
def test_two_ranks_train_as_pytorch_does(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    framework_checks.check_two_ranks("tensorflow", "grpc", tiny_store, start, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_an_entry_at_system_level(start: Start, tmp_path: Path) -> None:
    framework_checks.check_entry("tensorflow", start, tmp_path)
