"""The fast form of a model and of its step, where a rank has the whole model for itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ai500.train.graph import CALLS_BEFORE, Graphed, Step
from ai500.workloads.kernels.fused import available, fused_for
from ai500.workloads.models.fast_resnet import FastResNet, fast, why_not
from ai500.workloads.models.resnet import ResNet


def quicken(module: nn.Module, *, precision: str, device: torch.device) -> None:
    """In place, where there is a fast form: a ResNet v1.5 in mixed-bf16 on a GPU with Triton."""
    if precision != "mixed-bf16" or not available(device) or not isinstance(module, ResNet):
        return
    if not why_not(module):
        fast(module, fused_for(device), working=torch.bfloat16)


def graphable(module: nn.Module) -> bool:
    """Whether its step has fixed shapes and never waits for the device."""
    return isinstance(module, FastResNet)


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
