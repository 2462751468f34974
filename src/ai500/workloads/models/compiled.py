"""Models whose training pass `torch.compile` makes faster."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from ai500.workloads.protocol import Optimized

COMPILED_PRECISIONS = ("fp32", "tf32", "mixed-bf16", "mixed-fp16")
"""Precisions whose products are torch's own."""


class Compilable(Protocol):
    """A model with a training pass that can be compiled."""

    def compile_training(self) -> None:
        """Compile the training pass; evaluations, whose batches differ in size, stay eager."""


def use_compiler(model: nn.Module, *, precision: str, device: torch.device) -> Optimized | None:
    """Compile the training pass where torch.compile works.

    None on a CPU, where compiling takes longer than it gains, and in precisions with products of
    their own.
    """
    if device.type == "cpu" or precision not in COMPILED_PRECISIONS:
        return None
    try:
        probe = torch.ones(8, device=device, requires_grad=True)
        torch.compile(nn.functional.gelu)(probe).sum().backward()
    except Exception as error:  # no compiler, no Triton: as many classes as there are causes
        reason = str(error).strip().partition("\n")[0]
        return Optimized(model, f"eager; torch.compile fails: {type(error).__name__}: {reason}")
    compilable: Compilable = model  # type: ignore[assignment]
    compilable.compile_training()
    return Optimized(model, "torch.compile of the training pass")
