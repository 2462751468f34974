"""TensorFlow beside PyTorch: equal steps, equal counts, members trained and resumed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import framework_checks
from tests.support.commands import SOURCE, Start
from tests.support.interpreters import interpreter

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(500)]


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
    # Keras imports two of them itself.
    framework_checks.check_steps(
        "tensorflow", framework_checks.STEP_CASES[case], tmp_path,
        own_modules=frozenset({"h5py", "rich"}),
    )  # fmt: skip


def test_mixed_bf16_is_close_to_pytorch(tmp_path: Path) -> None:
    framework_checks.check_mixed_bf16("tensorflow", tmp_path)


STEP = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("start", sys.argv[1])
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)
start.import_ai500()
from ai500.frameworks.backend import Setting
from ai500.frameworks.tensorflow_backend import make_backend
from ai500.operations.training_step import step_difference
from ai500.train.worker import Rank
from ai500.workloads.image_classification import CLASSES
from ai500.workloads.models.resnet_layers import class_resnet, initial_weights
smoke = CLASSES["smoke"]
weights = initial_weights(class_resnet(smoke), seed=1)
backend = make_backend(Setting(smoke, smoke.reference, weights, Rank(0, 0, 1, 1), "cpu", 1))
print(step_difference(backend.trace(batch=8), backend.trace_step(batch=8)))
"""


def test_the_step_that_runs_computes_the_gradients_that_are_counted() -> None:
    start = SOURCE / "ai500" / "frameworks" / "start_worker.py"
    done = subprocess.run(
        [interpreter("tensorflow"), "-c", STEP, start], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "0", done.stderr


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


@pytest.mark.long
def test_two_ranks_train_as_pytorch_does(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    framework_checks.check_two_ranks("tensorflow", "grpc", tiny_store, start, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_an_entry_at_system_level(start: Start, tmp_path: Path) -> None:
    framework_checks.check_entry("tensorflow", start, tmp_path)
