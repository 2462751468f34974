"""Recognition of out-of-memory errors, of accelerators and of the host."""

from __future__ import annotations

import torch

OUT_OF_MEMORY = "out of memory"
"""Reason for the loss of a model that needs too much memory."""
_MESSAGES = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")
"""Parts of the messages of accelerator and CPU allocators, cuBLAS and cuDNN."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return True for an out-of-memory error; torch has its own class for accelerators only."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in _MESSAGES)
