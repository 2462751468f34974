"""The optimized form of a ResNet: fused Triton kernels, where they run on the device."""

from __future__ import annotations

import functools
import sys

import torch
from torch import nn

from ai500.workloads.kernels.fused import FusedKernels, available, fused_kernels
from ai500.workloads.kernels.reference import ReferenceKernels
from ai500.workloads.models.fast_resnet import make_fast, unsupported_reason
from ai500.workloads.models.resnet import Bottleneck, ResNet
from ai500.workloads.protocol import Optimized

COMPUTE_DTYPES = {"mixed-bf16": torch.bfloat16, "mixed-fp16": torch.float16}
"""Data type that fused kernels read and write, by precision."""


def use_fused_kernels(
    model: nn.Module, *, precision: str, device: torch.device
) -> Optimized | None:
    """Convert a ResNet v1.5 in place to fused kernels; return None where they do not apply."""
    if precision not in COMPUTE_DTYPES or not available(device) or not isinstance(model, ResNet):
        return None
    if unsupported_reason(model):
        return None
    compute_dtype = COMPUTE_DTYPES[precision]
    kernels, errors = usable_kernels(device, compute_dtype)
    description = "torch's"
    if kernels is not None:
        model = make_fast(model, kernels, compute_dtype=compute_dtype)
        description = f"fused (Triton): {kernels}"
    return Optimized(model, f"{description}; failed here: {errors}" if errors else description)


@functools.cache
def usable_kernels(
    device: torch.device, compute_dtype: torch.dtype
) -> tuple[FusedKernels | None, str]:
    """Return the fastest kernels that complete a small step on the device, and the errors of
    faster ones: Triton may lack a compiler, the chip memory, the version an operator."""
    errors = []
    for kernels in dict.fromkeys((fused_kernels(device), FusedKernels())):
        try:
            with torch.random.fork_rng(devices=[device]):
                small_step(kernels, device, compute_dtype=compute_dtype)
            torch.cuda.synchronize(device)
        except Exception as error:  # any error: torch's own kernels compute the same
            errors.append(f"{kernels}: {type(error).__name__}: {error}"[:300])
        else:
            return kernels, "; ".join(errors)
    print(f"fused kernels are not used: {'; '.join(errors)}", file=sys.stderr)
    return None, "; ".join(errors)


def small_step(
    kernels: ReferenceKernels, device: torch.device, *, compute_dtype: torch.dtype
) -> None:
    """Run a training step and an evaluation of a small model, under autocast as engines do."""
    model = ResNet(Bottleneck, (1, 1), width=64, classes=2).to(device)
    small = make_fast(model, kernels, compute_dtype=compute_dtype)
    images = torch.randn(2, 3, 32, 32, device=device)
    with torch.autocast(device.type, compute_dtype):
        loss = small(images).float().sum()
    loss.backward()
    with torch.no_grad(), torch.autocast(device.type, compute_dtype):
        small.eval()(images)
