"""All-reduce in every mode × precision, on real processes over gloo.

Ranks are started once for each size of the world and run all of `collective_checks`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.collective_checks import CHECKS
from tests.support.collective_runs import failures
from tests.support.commands import Start

SIZES = (
    1,
    2,
    pytest.param(3, marks=pytest.mark.long),
    pytest.param(4, marks=pytest.mark.long),
    pytest.param(6, marks=pytest.mark.long),
    pytest.param(8, marks=pytest.mark.long),
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", SIZES)
def test_ranks_agree_with_theory(size: int, tmp_path: Path) -> None:
    errors, output = failures(size, tmp_path)
    assert not errors, "\n".join(f"{name}:\n{trace}" for name, trace in errors.items())
    assert not output
    assert len(CHECKS) >= 12


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_smoke_converges_with_int8_gradients(start: Start, tmp_path: Path) -> None:
    """The members' mean is within two points of the one with gradients as they are."""
    quality = {}
    for precision in ("fp32", "int8"):
        run = start(
            "run", "--json", "--out", tmp_path / precision,
            "--set", "parallel.degree=2", "--set", f"communication.precision={precision}",
        )  # fmt: skip
        assert run.wait(1500) == 0, run.err
        quality[precision] = json.loads(run.out)["members_mean_quality"]
        record = next((tmp_path / precision).rglob("record.json"))
        communication = json.loads(record.read_text())["effective"]["parallel"]["communication"]
        assert communication["precision"] == precision
        assert communication["traffic"]["inside_node"] > 0
    assert quality["int8"] > quality["fp32"] - 0.02
