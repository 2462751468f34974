"""The equations of V3 §3 and V2 §4.4 as functions of numbers."""

from __future__ import annotations

import math
from typing import Literal

Direction = Literal["higher", "lower"]


def apc(operations_per_sample: float, *, batch_size: int, ensemble_size: int = 1) -> float:
    """Compute the amount of parallel computation: V3 Eq. 3, and Eq. 4 for an ensemble."""
    return float(ensemble_size * batch_size * operations_per_sample)


def flops(operations: float, *, seconds: float) -> float:
    """Compute operations per second: V3 Eq. 6."""
    return operations / seconds


def penalty_coefficient(
    achieved_quality: float,
    *,
    target_quality: float,
    exponent: float,
    direction: Direction = "higher",
) -> float:
    """Compute V3 Eq. 8; it may exceed 1 (V2 §4.4.1). Invert where lower is better [D15]."""
    if exponent == 0:
        return 1.0  # AIPerf has no penalty, not even for an error of 0
    if direction == "lower":
        if achieved_quality == 0:
            return math.inf
        return float((target_quality / achieved_quality) ** exponent)
    return float((achieved_quality / target_quality) ** exponent)


def vflops(flops: float, *, penalty_coefficient: float) -> float:
    """Compute valid FLOPS: V3 Eq. 7."""
    return flops * penalty_coefficient


def scaling_ratio(operations_per_step: float, *, parameters: int) -> float:
    """Return GFLOP per million parameters that a step communicates (V2 Table 5).

    The larger it is, the easier a workload scales from one node to several.
    """
    return (operations_per_step / 1e9) / (parameters / 1e6)
