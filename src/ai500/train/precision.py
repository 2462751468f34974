"""Training precision by name. FP32 is the reference, and it is meant: torch's own default lets
convolutions round their inputs to TF32 where the hardware can, which would be another precision.
"""

from __future__ import annotations

import torch


def apply(precision: str) -> None:
    """Make this process compute in the named precision."""
    if precision != "fp32":
        raise ValueError(f"precision {precision!r} is not known")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    torch.backends.cudnn.rnn.fp32_precision = "ieee"  # type: ignore[attr-defined]
