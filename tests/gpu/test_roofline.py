"""Ceilings of a real accelerator: in the order of its units, and below what they can do."""

from __future__ import annotations

import itertools

import pytest
import torch

from ai500.records import run_folder
from ai500.roofline import kernel_benchmarks
from ai500.roofline.records import RooflineRecord, ceilings, memory_bandwidth, peak_of
from tests.support.commands import Command

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="NO GPU: ceilings are untested"),
]
SECONDS = "6"
PRECISIONS = ("fp32", "tf32", "bf16", "fp8")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RooflineRecord:
    folder = tmp_path_factory.mktemp("roofline")
    names = (word for name in PRECISIONS for word in ("--precision", name))
    command = Command(
        "roofline", "--out", folder / "here.json", "--device", "cuda", "--seconds", SECONDS,
        "--ranks", "1", *names, cwd=folder, environment={"NO_COLOR": "1", "COLUMNS": "80"},
    )  # fmt: skip
    assert command.wait() == 0, command.err
    return run_folder.read(RooflineRecord, folder / "here.json")


def test_products_are_below_the_theoretical_peak_and_in_the_order_of_the_units(
    record: RooflineRecord,
) -> None:
    """Convolutions may be above it: a fast algorithm multiplies less than is counted."""
    assert record.complete
    by_name = {ceiling.name: ceiling for ceiling in ceilings(record)}
    for name in ("GEMM FP32", "GEMM TF32", "GEMM BF16", "CONV FP32", "CONV TF32", "CONV BF16"):
        assert by_name[name].flops >= by_name[name].typical_flops > 1e11, record.unavailable
    for ceiling in by_name.values():
        peak = peak_of(record, ceiling.precision)
        if ceiling.kernel == "gemm" and peak is not None:
            assert ceiling.flops < 1.02 * peak, ceiling
    assert by_name["GEMM BF16"].flops > by_name["GEMM TF32"].flops > by_name["GEMM FP32"].flops
    assert by_name["CONV BF16"].flops > by_name["CONV TF32"].flops


def test_memory_is_below_its_theoretical_peak(record: RooflineRecord) -> None:
    peak, measured = peak_of(record, "memory"), memory_bandwidth(record)
    assert measured is not None
    assert measured > 1e11
    if peak is not None:
        assert measured < 1.02 * peak


def test_short_calls_are_timed_without_the_host_that_launches_them() -> None:
    """A product that takes few microseconds: replayed, it is faster than launched one by one."""
    device = torch.device("cuda", 0)
    a, out = torch.randn(256, 256, device=device), torch.empty(256, 256, device=device)
    calls = itertools.repeat(lambda: torch.mm(a, a, out=out))
    with torch.inference_mode():
        replayed = kernel_benchmarks.time_calls(calls, device, seconds=0.2).sustained
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(1000):
            torch.mm(a, a, out=out)
        last.record()
        torch.cuda.synchronize()
    # The least: other processes on the GPU delay replays as well as launches.
    assert min(replayed) < first.elapsed_time(last) / 1e3 / 1000
    assert len(replayed) >= kernel_benchmarks.MIN_SAMPLES
