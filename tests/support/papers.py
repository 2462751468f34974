"""Equations and figures of the papers that only their tests need."""

from __future__ import annotations

from typing import NamedTuple


def quality_of_penalty(penalty: float, *, target_quality: float, exponent: float) -> float:
    """Solve V3 Eq. 8 for the achieved quality."""
    return float(target_quality * penalty ** (1 / exponent))


class Removed(NamedTuple):
    """Gain by training batch norm without weight decay, on a number of GPUs."""

    accelerators: int
    batch_size: int
    accuracy_gain: float
    vflops_ratio: float


#: V2 Table 8 (§5.4), Image Classification.
V2_TABLE_8 = (
    Removed(16, 2048, 0.0045, 1.03),
    Removed(32, 4096, 0.0045, 1.03),
    Removed(64, 8192, 0.0138, 1.10),
)

#: V2 §7.4.4, Fig. 14: the highest of the ranking, mixed precision at 64 GPUs; its bars carry no
#: numbers in the text. FLOPS of the same system: V2 §7.4.1.
V2_FIGURE_14_HIGHEST_VFLOPS = 642e12
