"""Operations by hardware counters (V2 §7.2, Table 10), to compare with the analytical count.

ncu counts thread-level additions, multiplications and fused multiply-adds of the CUDA cores, and
operations of the tensor cores by their source type; a multiply-add is two operations in both. Names
of the tensor cores' metrics differ among chips: those that the chip has are requested.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from ai500.profile import counters
from ai500.profile.record import CountedOperations

CUDA_CORES: dict[str, int] = {
    f"smsp__sass_thread_inst_executed_op_{kind}{operation}_pred_on": 2 if operation == "fma" else 1
    for kind in ("f", "h", "d")
    for operation in ("add", "mul", "fma")
}
"""Metric → operations of one instruction."""
_TENSOR = "sm__ops_path_tensor_src_"
TENSOR_CORES: tuple[tuple[tuple[str, ...], ...], ...] = tuple(
    tuple(tuple(_TENSOR + name for name in names) for names in alternatives)
    for alternatives in (
        (("fp16",), ("fp16_dst_fp16", "fp16_dst_fp32")),
        (("bf16_dst_fp32",), ("bf16",), ("bf16_dst_fp32_sparsity_off",)),
        (("tf32_dst_fp32",), ("tf32",), ("tf32_dst_fp32_sparsity_off",)),
        (("fp8",), ("fp8_dst_fp16", "fp8_dst_fp32")),
        (("int8",), ("int8_sparsity_off",)),
        (("fp64",),),
    )
)
"""For each source type, alternative sets of metrics; the first that the chip has whole is used, so
that nothing is counted twice."""
QUERY_SECONDS = 60.0
COPIES = ("Memset", "Memcpy")
"""Beginnings of the names of copies, which compute nothing and have no counters."""


def known_metrics() -> str:
    """Return ncu's list of the metrics that this machine's accelerator has; empty: it failed."""
    try:
        return subprocess.run(
            [counters.find_ncu() or "ncu", "--query-metrics"],
            capture_output=True, text=True, timeout=QUERY_SECONDS, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""


def metrics_of(listed: str) -> dict[str, int]:
    """Return metric → operations of one unit, of those that a chip has, by ncu's list.

    Empty where a part is missing: the count would lack the CUDA cores' or the tensor cores' share.
    """
    available = {line.split()[0] for line in listed.splitlines() if line.strip()}
    tensor = [
        next((names for names in alternatives if available.issuperset(names)), ())
        for alternatives in TENSOR_CORES
    ]
    if not available.issuperset(CUDA_CORES) or not any(tensor):
        return {}
    weights = CUDA_CORES | {name: 1 for names in tensor for name in names}
    return {f"{name}.sum": weight for name, weight in weights.items()}


def total_operations(text: str, weights: Mapping[str, int]) -> float | None:
    """Sum the operations of all kernels of ncu's page; None: a kernel lacks a counter."""
    _, rows = counters.raw_rows(text)
    kernels = [row for row in rows if not row["Kernel Name"].startswith(COPIES)]
    values = [
        (_number(kernel.get(metric)), weight)
        for kernel in kernels
        for metric, weight in weights.items()
    ]
    known = [value * weight for value, weight in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def compare(
    total: float, *, samples: int, operations_per_step: Mapping[str, int], samples_per_step: int
) -> CountedOperations:
    """Compare counted operations of `samples` with the analytical count of a step."""
    return CountedOperations(
        counted_per_sample=total / samples,
        analytical_per_sample=sum(operations_per_step.values()) / samples_per_step,
    )


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
