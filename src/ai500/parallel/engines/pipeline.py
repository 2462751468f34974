"""Pipeline parallelism: consecutive parts of the model on consecutive ranks, fed micro-batches.

Stages are cut where the workload's plan allows and balanced by the counted operations of their
layers. Batch norm takes its statistics from each micro-batch: that is what the schedule computes.

A model is a row of units, each taking what the one before gives. One whose units need more than
that (a detector's pyramid is fed by every residual stage) has two methods: `through(name, carried)`
is one unit applied to the tensors carried so far, `ended(carried, labels)` the model's outputs from
those that the last unit leaves; in training it is part of the loss, which has the labels.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import Function
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from ai500 import operations
from ai500.parallel.engines.mesh import Axis

Unit = tuple[str, ...]
"""Names of modules that run one after the other and stay together."""
Carried = tuple[Tensor, ...]
"""What goes from unit to unit, and from stage to stage."""

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


def cut(
    module: nn.Module, units: Sequence[Unit], *, stages: int, input_shape: tuple[int, ...]
) -> list[list[Unit]]:
    """Units to stages so that the stage with the most operations has as few as possible."""
    counted = operations.count(module, input_shape, convention="matmul").by_module
    costs = [
        sum(
            one.total
            for path, one in counted.items()
            if any(path == name or path.startswith(f"{name}.") for name in unit)
        )
        for unit in units
    ]
    bounds = balanced(costs, stages)
    return [list(units[first:last]) for first, last in itertools.pairwise(bounds)]


def balanced(costs: Sequence[int], parts: int) -> list[int]:
    """Bounds of `parts` consecutive, non-empty runs whose largest sum is the least possible."""
    sums = [0, *itertools.accumulate(costs)]
    # least[n]: the smallest largest sum of the first n costs in the parts so far, and its bounds.
    least = {n: (sums[n], [0, n]) for n in range(1, len(costs) + 1)}
    for part in range(2, parts + 1):
        least = {
            n: min(
                (max(worst, sums[n] - sums[m]), [*bounds, n])
                for m, (worst, bounds) in least.items()
                if m < n
            )
            for n in range(part, len(costs) + 1)
        }
    return least[len(costs)][1]


def keep_only(module: nn.Module, units: Sequence[Unit], mine: Sequence[Unit]) -> None:
    """Free the modules of other stages; those of this one keep their names."""
    for unit in units:
        if unit not in mine:
            for name in unit:
                parent, _, last = name.rpartition(".")
                setattr(module.get_submodule(parent), last, nn.Identity())


def through(module: nn.Module, name: str, carried: Carried) -> Carried:
    """One unit's module applied."""
    own: Callable[[str, Carried], Carried] | None = getattr(module, "through", None)
    if own is not None:
        return own(name, carried)
    (x,) = carried
    return (module.get_submodule(name)(x),)


def ended(module: nn.Module, carried: Tensor | Carried, labels: Tensor | None) -> Any:
    """The model's outputs, from what its last unit leaves."""
    if isinstance(carried, Tensor):
        carried = (carried,)
    own: Callable[[Carried, Tensor | None], Any] | None = getattr(module, "ended", None)
    return carried[0] if own is None else own(carried, labels)


class Stage(nn.Module):
    """This rank's units in a row; what comes in and goes out lies dense in memory. The last one
    gives the model's outputs in an evaluation."""

    def __init__(
        self, module: nn.Module, units: Sequence[Unit], numerics: Any, *, last: bool
    ) -> None:
        super().__init__()
        self._names = [name for unit in units for name in unit]
        self._module = module
        self._numerics = numerics
        self._last = last

    def forward(self, *carried: Tensor) -> Tensor | Carried:
        carried = tuple(_Dense.apply(x) for x in carried)
        with self._numerics.forward():
            for name in self._names:
                carried = through(self._module, name, carried)
            if self._last and not self._module.training:
                carried = (ended(self._module, carried, None),)
        dense = tuple(x.contiguous() for x in carried)
        return dense if len(dense) > 1 else dense[0]


class _Dense(Function):
    """The same tensor; its gradient is sent to the stage before, so it must have no gaps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous()


class Pipeline:
    """Runs micro-batches through all stages; every rank of the axis calls the same methods."""

    def __init__(
        self,
        stage: Stage,
        *,
        axis: Axis,
        schedule: str,
        microbatches: int,
        loss: Callable[[Any, Tensor], Tensor],
        boundaries: Callable[[Tensor, bool], list[Carried]],
    ) -> None:
        self._stage = stage
        self._axis = axis
        self._make_schedule = SCHEDULES[schedule]
        self._microbatches = microbatches
        self._loss = loss
        self._boundaries = boundaries
        self._schedules: dict[Any, Any] = {}

    def forward_backward(self, inputs: Tensor, labels: Tensor) -> None:
        """All micro-batches of one batch; the loss function hears of each on the last stage."""
        schedule = self._schedule_for(inputs)
        first, last = self._axis.rank == 0, self._axis.rank == self._axis.size - 1
        arguments = (inputs.contiguous(),) if first else ()  # as the stage's shapes say
        schedule.step(*arguments, **({"target": labels} if last else {}))

    def predict(self, inputs: Tensor) -> Tensor:
        """One batch straight through; every rank gets the outputs of the last."""
        axis = self._axis
        wires = self._boundaries(inputs, False)
        carried: Carried = (inputs,)
        if axis.rank > 0:
            carried = tuple(torch.empty_like(x, device=inputs.device) for x in wires[axis.rank])
            for x in carried:
                dist.recv(x, src=axis.global_rank(axis.rank - 1), group=axis.group)
        found: Tensor | Carried = self._stage(*carried)
        if axis.rank < axis.size - 1:
            for x in (found,) if isinstance(found, Tensor) else found:
                dist.send(x, dst=axis.global_rank(axis.rank + 1), group=axis.group)
            found = torch.empty_like(wires[-1][0], device=inputs.device)
        assert isinstance(found, Tensor)
        dist.broadcast(found, src=axis.global_rank(axis.size - 1), group=axis.group)
        return found

    def _schedule_for(self, inputs: Tensor) -> Any:
        key = (tuple(inputs.shape), inputs.dtype)
        if key not in self._schedules:
            # Shapes are stated: torch would find them by a first pass that moves running averages.
            wires = self._boundaries(inputs[: len(inputs) // self._microbatches], True)
            here = self._axis.rank
            stage = PipelineStage(
                self._stage,
                here,
                self._axis.size,
                inputs.device,
                input_args=tuple(x.detach().requires_grad_(here > 0) for x in wires[here]),
                output_args=tuple(x.detach().requires_grad_() for x in wires[here + 1]),
                group=self._axis.group,
            )
            self._schedules[key] = self._make_schedule(
                stage, self._microbatches, loss_fn=self._loss, scale_grads=False
            )
        return self._schedules[key]


def boundaries(
    whole: nn.Module,
    stages: Sequence[Sequence[Unit]],
    numerics: Any,
    inputs: Tensor,
    *,
    device: torch.device,
    training: bool,
) -> list[Carried]:
    """Shape and type of what crosses into each stage and out of the last, without computing."""
    wires: list[Carried] = [(inputs,)]
    model = copy.deepcopy(whole).train(training)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        model.to_empty(device=device)
        carried: Carried = (torch.empty(inputs.shape, dtype=inputs.dtype, device=device),)
        for number, units in enumerate(stages, start=1):
            found = Stage(model, units, numerics, last=number == len(stages))(*carried)
            carried = (found,) if isinstance(found, Tensor) else found
            wires.append(carried)
    return [
        tuple(torch.empty(x.shape, dtype=x.dtype, device="meta") for x in wire) for wire in wires
    ]
