"""Every parallel mode against a single process: 2, 4 and 8 real processes over gloo.

Double precision, five steps of SGD with momentum or of Adam. Batch norm is per replica (the single
process takes each replica's samples by themselves) or synchronized (it takes them together); with a
pipeline both are per micro-batch, and the single process runs the same micro-batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import engine_checks
from tests.support.engine_checks import Case
from tests.support.torchrun import run_ranks

pytestmark = pytest.mark.timeout(900)

EXACT = 1e-10
# Of the largest mean gradient: what is sent is rounded twice, and a rank's own may be twice that.
ON_THE_WIRE = {"fp16": 4 * 2.0**-11, "bf16": 4 * 2.0**-8, "int8": 4 / 254}


@pytest.mark.parametrize(
    "world", [2, *(pytest.param(ranks, marks=pytest.mark.long) for ranks in (4, 8))]
)
def test_every_mode_equals_a_single_process(world: int, tmp_path: Path) -> None:
    """All cases of one size in one start: gradients, weights, predictions, resume, record."""
    results = _run(world, tmp_path)
    wrong = {
        case.name: problems
        for case in engine_checks.cases(world)
        if (problems := list(_problems(case, results[case.name])))
    }
    assert not wrong, json.dumps(wrong, indent=1)


def _run(world: int, folder: Path) -> dict[str, dict[str, Any]]:
    reported = run_ranks(engine_checks.__file__, str(world), folder, ranks=world, timeout=800)
    return {result["case"]: result for result in reported}


def _problems(case: Case, result: dict[str, Any]) -> Iterator[str]:
    # A mode of communication without a memory of its own changes nothing about checkpoints.
    if case.communication == "all_reduce" or case.precision == "int8":
        if not result["resumed"]:
            yield "stopped and restored, it ends with other bits"
        if not result["taken_over"]:
            yield "its checkpoint depends on the mode"
    exact = ["gradients", "weights", "running"] if case.precision == "fp32" else []
    for name in ["predictions", *exact]:
        if not result[name] < EXACT:
            yield f"{name} are off by {result[name]:.1e}"
    if (
        case.precision != "fp32"
        and not 0 < result["gradients_overall"] < ON_THE_WIRE[case.precision]
    ):
        yield f"gradients are off by {result['gradients_overall']:.1e} of the largest"
    described, parallel = result["describe"], case.parallel
    for name in (
        "mode",
        "sharded",
        "data_degree",
        "pipeline_degree",
        "tensor_degree",
        "batch_norm",
    ):
        if described[name] != getattr(parallel, name):
            yield f"{name} is recorded as {described[name]}"
    if parallel.data_degree > 1:
        communication = (
            described["communication"]["mode"],
            described["communication"]["precision"],
        )
        if communication != (case.communication, case.precision):
            yield f"communication is recorded as {communication}"
