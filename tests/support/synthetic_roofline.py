"""Synthetic rooflines for tests."""

from __future__ import annotations

from dataclasses import replace

from ai500.inventory import machine as system
from ai500.roofline.records import KernelTime, LinkTime, MemoryTime, Peak, RooflineRecord


def synthetic_roofline(**changes: object) -> RooflineRecord:
    """Make a roofline with two precisions, memory and links of both classes."""
    record = RooflineRecord(
        format=1, version="test", measured_at="2026-01-01T00:00:00+00:00", complete=True,
        system=system.describe(), device="cuda", device_name="<b>GPU</b>", unit="accelerator",
        units=1, seconds=1.0,
        kernels=(
            KernelTime("gemm", "fp32", "1×2×3", 10**12, 0.02, 5),
            KernelTime("gemm", "fp32", "4×5×6", 10**12, 0.04, 5),
            KernelTime("gemm", "bf16", "4×5×6", 10**12, 0.00125, 5),
            KernelTime("conv", "bf16", "any", 10**12, 0.0012, 5),
        ),
        memory=(MemoryTime("copy", 10**9, 0.0002, 5),),
        links=(
            LinkTime("all_reduce", "inside_node", 4, 1, 10**8, 1e-3, 5),
            LinkTime("all_reduce", "inside_node", 4, 1, 10**3, 1e-5, 5),
            LinkTime("all_reduce", "between_nodes", 2, 4, 10**8, 1e-1, 5),
            LinkTime("point_to_point", "between_nodes", 2, 1, 10**8, 2e-2, 5),
        ),
        peaks=(Peak("bf16", 1e15, "on paper"), Peak("fp32", None, "not derivable: a test")),
        unavailable=(("gemm:fp8", "it is a test"),),
    )  # fmt: skip
    return replace(record, **changes)  # type: ignore[arg-type]


H200_SPEEDS = {
    ("gemm", "fp32"): 52, ("gemm", "bf16"): 778, ("gemm", "fp8"): 1474, ("gemm", "int8"): 953,
    ("conv", "fp32"): 138, ("conv", "bf16"): 795,
}  # fmt: skip


def h200_roofline() -> RooflineRecord:
    """Make the roofline of an H200: CONV FP32 by Winograd, twice the theoretical peak."""
    kernels = tuple(
        KernelTime("gemm" if kernel == "gemm" else "conv", precision, "any", 10**12, 1 / speed, 5)
        for (kernel, precision), speed in H200_SPEEDS.items()
    )
    peaks = (Peak("fp32", 66.9e12, "on paper"), Peak("bf16", 1070e12, "on paper"))
    return synthetic_roofline(kernels=kernels, peaks=peaks)
