"""Errors that say a model needs more memory than there is, the accelerator's or the host's."""

from __future__ import annotations

import torch

OUT_OF_MEMORY = "out of memory"
"""Why such a model is lost."""
_SAID = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")
"""By the allocators of the accelerators and of the CPU, and by cuBLAS and cuDNN."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it says so; torch has an exception of its own only for its accelerators' caches."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    told = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in told for words in _SAID)
