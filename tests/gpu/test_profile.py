"""`ai500 profile` of a real accelerator: every kernel has a category, counters never break it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ai500.profile.record import Profile
from ai500.records import run_folder
from tests.support.commands import Start

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="NO GPU: kernels are untested"),
]


def profiled(start: Start, store: Path, out: Path, *more: str) -> Profile:
    command = start(
        "profile", "--class", "smoke", "--data", store, "--steps", "3", "--out", out,
        "--set", "system.device=cuda", "--set", "parallel.degree=1", *more,
    )  # fmt: skip
    assert command.wait() == 0, command.err
    return run_folder.read(Profile, out / "profile.json")


def test_kernels_of_smoke_are_known(start: Start, tiny_store: Path, tmp_path: Path) -> None:
    profile = profiled(start, tiny_store, tmp_path / "out", "--precision", "mixed-bf16")
    assert profile.device == "cuda"
    [precision] = profile.precisions
    assert precision.unknown_share < 0.01, precision.unknown
    times = {category.category: category for category in precision.categories}
    assert times["convolution"].calls_per_step >= 18
    assert times["convolution"].flops is not None
    assert times["convolution"].flops > 1e9
    assert 0 <= precision.idle_share < 1
    assert sum(
        category.share for category in precision.categories
    ) + precision.unknown_share == pytest.approx(1)


@pytest.mark.long
def test_counters_are_measured_or_say_why_not(
    start: Start, tiny_store: Path, tmp_path: Path
) -> None:
    """ncu may lack the permission, or not be there: the profile is kept all the same."""
    profile = profiled(start, tiny_store, tmp_path / "out", "--counters")
    [precision] = profile.precisions
    assert precision.unknown_share < 0.01, precision.unknown
    times = {category.category: category for category in precision.categories}
    if precision.counters_missing is None:
        ipc, dram = (
            times["convolution"].instructions_per_cycle,
            times["convolution"].dram_utilization,
        )
        assert ipc is not None
        assert 0 < ipc < 8
        assert dram is not None
        assert 0 <= dram <= 1
    else:
        assert len(precision.counters_missing) > 10
        print(f"NOT MEASURED: {precision.counters_missing}")
