"""MindSpore beside PyTorch: equal steps, equal counts, and members trained, stopped and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import framework_checks
from tests.support.commands import Start
from tests.support.interpreters import interpreter

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(900)]

#: MindSpore's own requirements import these.
OWN_MODULES = frozenset({"PIL", "psutil"})


def test_steps_agree_with_pytorch(tmp_path: Path) -> None:
    # Its convolution and batch norm have no FP64 on CPUs.
    case = framework_checks.STEP_CASES["FP32"]
    framework_checks.check_steps("mindspore", case, tmp_path, own_modules=OWN_MODULES)


def test_count_of_the_graph_is_the_published_one() -> None:
    framework_checks.check_counts("mindspore")


def test_a_stopped_member_resumes_to_the_same_weights(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    framework_checks.check_resume("mindspore", tiny_store, start, tmp_path)


@pytest.mark.long
def test_two_ranks_train_as_pytorch_does(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    framework_checks.check_two_ranks("mindspore", "mccl", tiny_store, start, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"), [("train.precision", "mixed-bf16"), ("train.precision", "tf32")]
)
def test_what_its_kernels_lack_is_refused(start: Start, key: str, value: str) -> None:
    command = start(
        "plan", "--set", "framework.kind=mindspore", "--set", f"{key}={value}",
        "--set", f"framework.python={interpreter('mindspore')}", "--set", "system.device=cpu",
    )  # fmt: skip
    assert command.wait() == 2
    assert f"{key} = '{value}'" in command.err
