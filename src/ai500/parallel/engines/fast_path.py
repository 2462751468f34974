"""The fast form of a model and of its step, where a rank has the whole model for itself."""

from __future__ import annotations

import functools
import sys

import torch
from torch import Tensor, nn

from ai500.parallel.cuda_graph import CALLS_BEFORE, Graphed, Step
from ai500.parallel.sharing import RECORDABLE_PRECISIONS
from ai500.workloads.kernels.fused import FusedKernels, available, fused_kernels
from ai500.workloads.kernels.reference import ReferenceKernels
from ai500.workloads.models.fast_resnet import FastResNet, make_fast, unsupported_reason
from ai500.workloads.models.resnet import Bottleneck, ResNet

WORKING = {"mixed-bf16": torch.bfloat16, "mixed-fp16": torch.float16}
"""What fused kernels read and write, by precision."""
RECORDABLE_GRADIENTS = (*RECORDABLE_PRECISIONS, "mixed-fp16")
"""Precisions in which loss and gradients can be recorded, if not the whole step: a loss scale is
read from the device."""


def quicken(module: nn.Module, *, precision: str, device: torch.device) -> None:
    """In place, where there is a fast form: a ResNet v1.5 in mixed precision, a GPU with Triton."""
    if precision not in WORKING or not available(device) or not isinstance(module, ResNet):
        return
    if not unsupported_reason(module):
        working = WORKING[precision]
        kernels, module.failed_kernels = _that_run(device, working)  # type: ignore[assignment]
        if kernels is not None:
            make_fast(module, kernels, compute_dtype=working)


@functools.cache
def _that_run(device: torch.device, working: torch.dtype) -> tuple[FusedKernels | None, str]:
    """The fastest kernels that do a small step there, and what the others lack: Triton needs a
    compiler, a chip has less memory than the one they were written on, a version no such operator.
    """
    errors = []
    for kernels in dict.fromkeys((fused_kernels(device), FusedKernels())):
        try:
            with torch.random.fork_rng(devices=[device]):
                small_step(kernels, device, working=working)
            torch.cuda.synchronize(device)
        except Exception as error:  # whatever it is: the ordinary form does the same
            errors.append(f"{kernels}: {type(error).__name__}: {error}"[:300])
        else:
            return kernels, "; ".join(errors)
    print(f"fused kernels are not used here: {'; '.join(errors)}", file=sys.stderr)
    return None, "; ".join(errors)


def small_step(kernels: ReferenceKernels, device: torch.device, *, working: torch.dtype) -> None:
    """Gradients and an evaluation of a small fast model, under autocast as an engine's are."""
    model = ResNet(Bottleneck, (1, 1), width=64, classes=2).to(device)
    small = make_fast(model, kernels, compute_dtype=working)
    images = torch.randn(2, 3, 32, 32, device=device)
    with torch.autocast(device.type, working):
        loss = small(images).float().sum()
    loss.backward()
    with torch.no_grad(), torch.autocast(device.type, working):
        small.eval()(images)


def told(module: nn.Module, *, recorded: bool, not_recorded: str) -> dict[str, object]:
    """How a step runs, where it is not torch's operators one after another, or why it is not."""
    found: dict[str, object] = {}
    failed = getattr(module, "failed_kernels", "")
    if isinstance(module, FastResNet) or failed:
        fused = f"fused (Triton): {module.kernels}" if isinstance(module, FastResNet) else "torch's"
        found["kernels"] = f"{fused}; failed here: {failed}" if failed else fused
    if recorded or not_recorded:
        found["recorded"] = recorded or f"no: {not_recorded}"
    return found


def graphable(module: nn.Module, *, precision: str) -> bool:
    """Whether its step has fixed shapes, never waits for the device, and gains by a recording."""
    return precision in RECORDABLE_GRADIENTS and bool(getattr(module, "fixed_shapes", False))


class GradientGraph:
    """Loss and gradients of whole batches as one CUDA graph; a smaller batch runs as it is.

    The optimizer stays outside, and finds gradients where they always are.
    """

    def __init__(
        self, forward_backward: Step, parameters: list[nn.Parameter], *, batch_size: int
    ) -> None:
        self._eager = forward_backward
        self._graphed = Graphed(forward_backward)
        self._parameters = parameters
        self._gradients: list[Tensor | None] = []
        self._batch_size = batch_size

    def __call__(self, inputs: Tensor, labels: Tensor) -> Tensor:
        if len(inputs) != self._batch_size:
            return self._eager(inputs, labels)
        loss = self._graphed(inputs, labels)
        if self._gradients:
            for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
                parameter.grad = gradient
        elif self._graphed.recorded:
            self._gradients = [parameter.grad for parameter in self._parameters]
        return loss.clone()

    def record(self, inputs: Tensor, labels: Tensor) -> None:
        """As many calls as it takes, so that none of the timed steps is slower."""
        for _ in range(CALLS_BEFORE + 1):
            for parameter in self._parameters:
                parameter.grad = None
            self(inputs, labels)
