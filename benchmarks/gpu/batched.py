"""Batched weights: several members as one model, a comparison to graphs on streams.

    PYTHONPATH=src python3 -m benchmarks.gpu.batched     checks it on a CPU against members alone

Channels of different members lie side by side, so a convolution becomes one with as many more
groups, batch norm, ReLU and pooling need no change, and the classifier is one product per member.
The members' own parameters become views into the stacked ones, so that saving, loading, evaluating
and updating a member works as always. Measured slower than graphs on streams (docs/sharing.md), and
it rounds differently: `ai500 run` does not use it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ai500.train.device_feed import free_bytes
from ai500.train.graphed_step import StaticInputs, capturable, capture, preserve_state
from ai500.train.loop import StepRequest
from ai500.train.member import Member
from ai500.train.step import update_weights, warm_up_batch
from ai500.train.step_strategies import GraphStreams, MemberIndex, StepStrategy, graph_strategies
from ai500.workloads.models.resnet import Bottleneck, ResNet, small_resnet

CHANNELWISE = (nn.ReLU, nn.MaxPool2d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Identity)
# Free memory that its graph needs, in units of what the members' own graphs took.
MEMORY_FACTOR = 1.5


def unsupported_reason(modules: Sequence[nn.Module]) -> str:
    """Return why these models can't be stacked; empty if they can."""
    if not all(type(module) is ResNet for module in modules):
        return f"{type(modules[0]).__name__} has kernels of its own, or layers that are not stacked"
    supported = (nn.Conv2d, nn.BatchNorm2d, nn.Linear, *CHANNELWISE)
    for layer in (module for module in modules[0].modules() if not list(module.children())):
        if not isinstance(layer, supported):
            return f"a {type(layer).__name__} is not stacked"
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
        outputs = torch.baddbmm(self.bias[:, None], rows, self.weight.transpose(1, 2))
        return outputs.transpose(0, 1)


class Stacked:
    """The members' models as one. It takes over their memory."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.members = len(modules)
        self._owners: list[tuple[nn.Parameter, list[nn.Parameter]]] = []
        self.model = copy.deepcopy(modules[0])
        for name, layer in list(self.model.named_modules()):
            layers = [module.get_submodule(name) for module in modules]
            if isinstance(layer, nn.Conv2d):
                layer.groups *= self.members
                layer.in_channels *= self.members
                layer.out_channels *= self.members
                self._stack(layer, layers)
            elif isinstance(layer, nn.BatchNorm2d):
                layer.num_features *= self.members
                self._stack(layer, layers)
                _stack_statistics(layer, cast("list[nn.BatchNorm2d]", layers))
            elif isinstance(layer, nn.Linear):
                self._replace_linear(name, cast("list[nn.Linear]", layers))

    def outputs(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return each member's outputs for its own images."""
        side_by_side = torch.cat(list(inputs), dim=1)
        side_by_side = side_by_side.contiguous(memory_format=torch.channels_last)
        outputs: Tensor = self.model(side_by_side)
        return outputs.unbind(1)

    def clear_gradients(self) -> None:
        """Set gradients to None, as an optimizer does."""
        for stack, _ in self._owners:
            stack.grad = None

    def hand_out_gradients(self) -> None:
        """Set the gradients of the members' parameters: views, not copies."""
        for stack, parts in self._owners:
            assert stack.grad is not None
            rows = stack.shape[0] // len(parts)
            for number, part in enumerate(parts):
                part.grad = stack.grad[number * rows : (number + 1) * rows].view(part.shape)

    def _stack(self, layer: nn.Module, layers: Sequence[nn.Module]) -> None:
        for name in [name for name, _ in layer.named_parameters(recurse=False)]:
            parts = [module.get_parameter(name) for module in layers]
            stack = nn.Parameter(torch.cat([part.detach() for part in parts]))
            setattr(layer, name, stack)
            self._own(stack, parts)

    def _own(self, stack: nn.Parameter, parts: list[nn.Parameter]) -> None:
        self._owners.append((stack, parts))
        rows = stack.shape[0] // len(parts)
        for number, part in enumerate(parts):
            part.data = stack.data[number * rows : (number + 1) * rows].view(part.shape)

    def _replace_linear(self, name: str, layers: list[nn.Linear]) -> None:
        weight = self._side_by_side([layer.get_parameter("weight") for layer in layers])
        bias = self._side_by_side([layer.get_parameter("bias") for layer in layers])
        parent, _, last = name.rpartition(".")
        setattr(self.model.get_submodule(parent), last, MemberLinear(weight, bias))

    def _side_by_side(self, parts: list[nn.Parameter]) -> nn.Parameter:
        stack = nn.Parameter(torch.stack([part.detach() for part in parts]))
        self._own(stack, parts)
        return stack


def _stack_statistics(layer: nn.BatchNorm2d, layers: list[nn.BatchNorm2d]) -> None:
    """Stack running statistics and counters; the members' own become views."""
    for name in ("running_mean", "running_var"):
        parts = [norm.get_buffer(name) for norm in layers]
        stack = torch.cat(parts)
        setattr(layer, name, stack)
        for part, view in zip(parts, stack.chunk(len(parts)), strict=True):
            part.data = view
    counters = [norm.get_buffer("num_batches_tracked") for norm in layers]
    stack = torch.stack(counters)
    layer.num_batches_tracked = stack
    for part, view in zip(counters, stack.unbind(), strict=True):
        part.data = view


class BatchedWeights:
    """One captured step for all members; those that step without the others replay their own."""

    name = "batched weights"

    def __init__(self, stacked: Stacked, single: GraphStreams) -> None:
        self._members = {index: step.member for index, step in single.steps.items()}
        self._single = single
        self._stacked = stacked
        members = list(self._members.values())
        self._inputs = {
            index: StaticInputs(warm_up_batch(member), member.optimizer)
            for index, member in self._members.items()
        }
        self._updates = all(capturable(member.optimizer) for member in members)
        with ExitStack() as contexts:
            contexts.enter_context(preserve_state(members))
            for inputs in self._inputs.values():
                contexts.enter_context(inputs.rate_on_device())
            stream = next(iter(single.streams.values()))
            self._replay, self._losses = capture(self._step, stream)

    def context(self, index: MemberIndex) -> AbstractContextManager[object]:
        """Enter the one stream of all members."""
        return self._single.context(index)

    def step(self, requests: Mapping[MemberIndex, StepRequest]) -> dict[MemberIndex, Tensor]:
        """Run one step of all members at once."""
        if len(requests) < len(self._inputs):
            return self._single.step(requests)
        with self.context(next(iter(requests))):
            for index, request in requests.items():
                self._inputs[index].write(request)
            self._replay()
            if not self._updates:
                self._update()
        return dict(zip(self._inputs, self._losses, strict=True))

    def _step(self) -> list[Tensor]:
        inputs, labels = [], []
        for index, member in self._members.items():
            batch = self._inputs[index].batch
            model_inputs, targets = member.workload.train_inputs(
                member.problem_class, batch.fields, batch.draws
            )
            inputs.append(model_inputs)
            labels.append(targets)
        losses = self._member_losses(inputs, labels)
        self._stacked.clear_gradients()
        torch.stack(losses).sum().backward()
        if self._updates:
            self._update()
        return [loss.detach() for loss in losses]

    def _member_losses(self, inputs: list[Tensor], labels: list[Tensor]) -> list[Tensor]:
        members = list(self._members.values())
        with members[0].numerics.forward():
            outputs = self._stacked.outputs(inputs)
            return [
                member.workload.loss(
                    member_outputs, targets, hyperparameters=member.task.hyperparameters
                )
                for member, member_outputs, targets in zip(members, outputs, labels, strict=True)
            ]

    def _update(self) -> None:
        self._stacked.hand_out_gradients()
        for member in self._members.values():
            update_weights(member)


def all_strategies(
    members: Mapping[MemberIndex, Member],
) -> tuple[list[StepStrategy], str]:
    """Return every strategy that captures steps, and why batched weights are not among them."""
    modules = [member.engine.module for member in members.values()]
    device = next(iter(members.values())).feed.device
    reason = unsupported_reason(modules)
    if any(member.task.hyperparameters.accumulation > 1 for member in members.values()):
        reason = "gradients are accumulated"
    # Before any capture: stacking moves the weights.
    stacked = None if reason else Stacked(modules)
    before = free_bytes(device)
    strategies: list[StepStrategy] = [*graph_strategies(members)]
    after = free_bytes(device)
    if stacked is None:
        return strategies, reason
    if after < MEMORY_FACTOR * (before - after):
        return strategies, "the other graphs take the device's memory"
    one_queue = strategies[-1]
    assert isinstance(one_queue, GraphStreams)
    return [*strategies, BatchedWeights(stacked, one_queue)], ""


def check(kind: str) -> None:
    """Compare two steps of SGD with momentum, stacked and alone; statistics included."""
    torch.manual_seed(1)
    alone: list[nn.Module] = [
        small_resnet(classes=5, width=4)
        if kind == "basic"
        else ResNet(Bottleneck, (1, 1), width=4, classes=5)
        for _ in range(3)
    ]
    together = [copy.deepcopy(model) for model in alone]
    assert unsupported_reason(together) == ""
    stacked = Stacked(together)
    optimizers = [
        [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
        for models in (alone, together)
    ]
    for _ in range(2):
        images = [torch.randn(6, 3, 16, 16) for _ in alone]
        labels = [torch.randint(0, 5, (6,)) for _ in alone]
        for model, inputs, targets, optimizer in zip(
            alone, images, labels, optimizers[0], strict=True
        ):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        stacked.clear_gradients()
        losses = map(F.cross_entropy, stacked.outputs(images), labels)
        torch.stack(list(losses)).sum().backward()
        stacked.hand_out_gradients()
        for optimizer in optimizers[1]:
            optimizer.step()
    for model, other in zip(alone, together, strict=True):
        state = other.state_dict()
        for name, value in model.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)
        model.eval()
        other.eval()
        torch.testing.assert_close(other(images[0]), model(images[0]), rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    for kind in ("basic", "bottleneck"):
        check(kind)
        print(f"{kind}: stacked members end like members alone")
