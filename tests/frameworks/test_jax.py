"""JAX beside PyTorch: equal steps, equal counts, members trained and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import framework_checks
from tests.support.commands import Start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]


@pytest.mark.parametrize(
    "case", ["FP64", "FP32", pytest.param("bottlenecks", marks=pytest.mark.long)]
)
def test_steps_agree_with_pytorch(case: str, tmp_path: Path) -> None:
    framework_checks.check_steps("jax", framework_checks.STEP_CASES[case], tmp_path)


@pytest.mark.long
def test_mixed_bf16_is_close_to_pytorch(tmp_path: Path) -> None:
    framework_checks.check_mixed_bf16("jax", tmp_path)


def test_count_of_the_graph_is_the_published_one() -> None:
    framework_checks.check_counts("jax")


def test_a_stopped_member_resumes_to_the_same_weights(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    framework_checks.check_resume("jax", tiny_store, start, tmp_path)


@pytest.mark.long
def test_two_ranks_train_as_pytorch_does(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    framework_checks.check_two_ranks("jax", "gloo", tiny_store, start, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_an_entry_at_system_level(start: Start, tmp_path: Path) -> None:
    framework_checks.check_entry("jax", start, tmp_path)
