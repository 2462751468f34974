"""Several members as one model with batched weights: one kernel for all of them.

Channels of different members lie side by side, so a convolution is one with as many more groups,
batch norm, ReLU and pooling need no change, and the classifier is one product for each member. The
members' own parameters become views into the stacked ones: whoever saves, loads, evaluates or
updates a member sees what it always sees.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from ai500.workloads.models.resnet import ResNet

CHANNELWISE = (nn.ReLU, nn.MaxPool2d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Identity)


def why_not(modules: Sequence[nn.Module]) -> str:
    """Why these models can't be one, or nothing."""
    if not all(type(one) is ResNet for one in modules):
        return f"{type(modules[0]).__name__} has kernels of its own, or layers nobody stacked yet"
    known = (nn.Conv2d, nn.BatchNorm2d, nn.Linear, *CHANNELWISE)
    for layer in (one for one in modules[0].modules() if not list(one.children())):
        if not isinstance(layer, known):
            return f"nobody stacked a {type(layer).__name__} yet"
    return ""


class MemberLinear(nn.Module):
    """N × (members × features) to N × members × classes, each member by its own weights."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        members, _, features = self.weight.shape
        rows = x.view(len(x), members, features).transpose(0, 1)
        found = torch.baddbmm(self.bias[:, None], rows, self.weight.transpose(1, 2))
        return found.transpose(0, 1)


class Stacked:
    """The members' models as one. It takes over their memory: see the module's first lines."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.members = len(modules)
        self._owners: list[tuple[nn.Parameter, list[nn.Parameter]]] = []
        self.whole = copy.deepcopy(modules[0])
        for name, layer in list(self.whole.named_modules()):
            same = [one.get_submodule(name) for one in modules]
            if isinstance(layer, nn.Conv2d):
                layer.groups *= self.members
                layer.in_channels *= self.members
                layer.out_channels *= self.members
                self._stack(layer, same)
            elif isinstance(layer, nn.BatchNorm2d):
                layer.num_features *= self.members
                self._stack(layer, same)
                _stack_statistics(layer, cast("list[nn.BatchNorm2d]", same))
            elif isinstance(layer, nn.Linear):
                self._replace_linear(name, cast("list[nn.Linear]", same))

    def outputs(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Each member's, of its own images."""
        side_by_side = torch.cat(list(inputs), dim=1)
        side_by_side = side_by_side.contiguous(memory_format=torch.channels_last)
        found: Tensor = self.whole(side_by_side)
        return found.unbind(1)

    def clear_gradients(self) -> None:
        """None, as an optimizer would."""
        for stack, _ in self._owners:
            stack.grad = None

    def hand_out_gradients(self) -> None:
        """To the members' parameters: views, not copies."""
        for stack, parts in self._owners:
            assert stack.grad is not None
            each = stack.shape[0] // len(parts)
            for number, part in enumerate(parts):
                part.grad = stack.grad[number * each : (number + 1) * each].view(part.shape)

    def _stack(self, layer: nn.Module, same: Sequence[nn.Module]) -> None:
        for name in [name for name, _ in layer.named_parameters(recurse=False)]:
            parts = [one.get_parameter(name) for one in same]
            stack = nn.Parameter(torch.cat([one.detach() for one in parts]))
            setattr(layer, name, stack)
            self._own(stack, parts)

    def _own(self, stack: nn.Parameter, parts: list[nn.Parameter]) -> None:
        self._owners.append((stack, parts))
        each = stack.shape[0] // len(parts)
        for number, part in enumerate(parts):
            part.data = stack.data[number * each : (number + 1) * each].view(part.shape)

    def _replace_linear(self, name: str, same: list[nn.Linear]) -> None:
        weight = self._side_by_side([one.get_parameter("weight") for one in same])
        bias = self._side_by_side([one.get_parameter("bias") for one in same])
        parent, _, last = name.rpartition(".")
        setattr(self.whole.get_submodule(parent), last, MemberLinear(weight, bias))

    def _side_by_side(self, parts: list[nn.Parameter]) -> nn.Parameter:
        stack = nn.Parameter(torch.stack([one.detach() for one in parts]))
        self._own(stack, parts)
        return stack


def _stack_statistics(layer: nn.BatchNorm2d, same: list[nn.BatchNorm2d]) -> None:
    """Running statistics and counters, the members' own as views again."""
    for name in ("running_mean", "running_var"):
        parts = [one.get_buffer(name) for one in same]
        stack = torch.cat(parts)
        setattr(layer, name, stack)
        for part, view in zip(parts, stack.chunk(len(parts)), strict=True):
            part.data = view
    counters = [one.get_buffer("num_batches_tracked") for one in same]
    stack = torch.stack(counters)
    layer.num_batches_tracked = stack
    for part, view in zip(counters, stack.unbind(), strict=True):
        part.data = view
