"""JAX beside PyTorch: equal steps, equal counts, members trained and resumed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ai500.data.generated import generate
from ai500.workloads.learnable_text import SMOKE
from tests.support import framework_checks
from tests.support.commands import TINY, Start
from tests.support.interpreters import interpreter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
# `make test` trains a member in JAX and compares its steps; `make test-frameworks` does the rest.
MORE = pytest.mark.frameworks


@pytest.mark.parametrize(
    "case",
    [
        "FP64",
        *(pytest.param(case, marks=MORE) for case in framework_checks.STEP_CASES if case != "FP64"),
    ],
)
def test_steps_agree_with_pytorch(case: str, tmp_path: Path) -> None:
    framework_checks.check_steps("jax", framework_checks.STEP_CASES[case], tmp_path)


@MORE
@pytest.mark.parametrize("case", framework_checks.TEXT_CASES)
def test_steps_of_the_language_model_agree_with_pytorch(case: str, tmp_path: Path) -> None:
    framework_checks.check_steps("jax", framework_checks.TEXT_CASES[case], tmp_path)


@MORE
def test_mixed_bf16_is_close_to_pytorch(tmp_path: Path) -> None:
    framework_checks.check_mixed_bf16("jax", tmp_path)


STEP = """
from ai500.frameworks.jax_backend import jax, jnp, training_step
from ai500.operations.stablehlo import trace_stablehlo
from ai500.operations.training_step import step_difference
shape = jax.ShapeDtypeStruct
batch = shape((8, 32, 32, 3), jnp.uint8), shape((8,), jnp.int32), shape((8, 5), jnp.float32)
step = jax.jit(training_step(setting, axis=None)).lower(*backend.trees(), batch, 0.1)
print(step_difference(backend.trace(batch=8), trace_stablehlo(step.as_text(), parameters=[])))
"""


@MORE
def test_the_step_that_runs_computes_the_gradients_that_are_counted() -> None:
    assert framework_checks.output_of("jax", STEP).splitlines()[-1] == "0"


@MORE
def test_count_of_the_graph_is_the_published_one() -> None:
    framework_checks.check_counts("jax")


def test_a_stopped_member_resumes_to_the_same_weights(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    framework_checks.check_resume("jax", tiny_store, start, tmp_path)


@MORE
def test_a_stopped_language_model_resumes_to_the_same_weights(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "texts"
    generate(store, dataclasses.replace(SMOKE, seed=7), name="tiny", splits=TINY, workers=1)
    framework_checks.check_resume("jax", store, start, tmp_path, workload="language_model")


@MORE
def test_two_stopped_ranks_resume_to_the_same_weights(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    framework_checks.check_resume("jax", tiny_store, start, tmp_path, degree=2)


@MORE
def test_submitted_members_are_repeated(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    framework_checks.check_rerun("jax", tiny_store, start, tmp_path)


@MORE
def test_two_ranks_train_as_pytorch_does(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    framework_checks.check_two_ranks("jax", "gloo", tiny_store, start, tmp_path)


@MORE
@pytest.mark.timeout(7200)
def test_an_entry_at_system_level(start: Start, tmp_path: Path) -> None:
    framework_checks.check_entry("jax", start, tmp_path)


@MORE
@pytest.mark.timeout(3600)
def test_an_ensemble_of_language_models(start: Start, tmp_path: Path) -> None:
    """Two members of class `smoke`, one epoch, from the same seeds as PyTorch's."""
    qualities = {}
    for framework in ("jax", "pytorch"):
        values = {
            "framework.kind": framework, "ensemble.size": 2, "parallel.degree": 1,
            "train.epochs": 1, "system.device": "cpu",
        }  # fmt: skip
        if framework == "jax":
            values["framework.python"] = str(interpreter("jax"))
        settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
        words = ("run", "--workload", "language_model", "--out", tmp_path / framework, *settings)
        command = start(*words)
        assert command.wait(timeout=framework_checks.LIMIT) == 0, command.err
        result = json.loads((tmp_path / framework / "trials/01/ensemble.json").read_text())
        assert SMOKE.entropy_rate() < result["ensemble_quality"] < min(result["member_qualities"])
        qualities[framework] = result["ensemble_quality"]
    assert qualities["jax"] == pytest.approx(qualities["pytorch"], abs=1e-3)
    check = start("check", tmp_path / "jax", "--level", "system", "--json")
    check.wait()
    findings = json.loads(check.out)["findings"]
    broken = {finding["rule"] for finding in findings if finding["severity"] == "violation"}
    shortened = {"enough trials", "minimum ensemble size", "same epochs", "same evaluations"}
    assert broken == shortened
