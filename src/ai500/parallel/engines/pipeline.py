"""Pipeline parallelism: consecutive parts of the model on consecutive ranks, fed micro-batches.

Stages are cut where the workload's plan allows and balanced by the counted operations of their
layers. Batch norm takes its statistics from each micro-batch: that is what the schedule computes.

A model is a sequence of units, each applied to the output of the one before. A model whose units
need more than that (a detector's pyramid is fed by every residual stage) has two methods:
`forward_unit(name, carried)` applies one unit to the tensors carried so far,
`forward_end(carried, targets)` returns the model's outputs from those of the last unit; in training
it is part of the loss, which has the labels.
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
from ai500.parallel.targets import Targets, rows_of

Unit = tuple[str, ...]
"""Names of modules that run consecutively and stay on one stage."""
Carried = tuple[Tensor, ...]
"""Tensors that pass from unit to unit, and from stage to stage."""

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


def cut(
    module: nn.Module, units: Sequence[Unit], *, stages: int, inputs: Tensor
) -> list[list[Unit]]:
    """Assign units to stages so that the largest stage has as few operations as possible;
    only shape and type of `inputs` are used."""
    counted = operations.count(module, inputs, convention="matmul").by_module
    costs = [
        sum(
            layer.total
            for path, layer in counted.items()
            if any(path == name or path.startswith(f"{name}.") for name in unit)
        )
        for unit in units
    ]
    bounds = balanced(costs, stages)
    return [list(units[first:last]) for first, last in itertools.pairwise(bounds)]


def balanced(costs: Sequence[int], parts: int) -> list[int]:
    """Return the bounds of `parts` consecutive non-empty runs whose largest sum is minimal."""
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


def keep_only(
    module: nn.Module, units: Sequence[Unit], own_units: Sequence[Unit], *, shared: Sequence[str]
) -> None:
    """Free the modules of other stages; those of this stage keep their names, and the last stage
    keeps `shared` ones."""
    kept = {name for unit in own_units for name in unit}
    if list(own_units[-1:]) == list(units[-1:]):
        kept.update(shared)
    for name in itertools.chain(*units):
        if name not in kept:
            parent, _, last = name.rpartition(".")
            setattr(module.get_submodule(parent), last, nn.Identity())


def forward_unit(module: nn.Module, name: str, carried: Carried) -> Carried:
    """Apply one unit's module."""
    method: Callable[[str, Carried], Carried] | None = getattr(module, "forward_unit", None)
    if method is not None:
        return method(name, carried)
    (x,) = carried
    return (module.get_submodule(name)(x),)


def finish(module: nn.Module, carried: Tensor | Carried, targets: Targets) -> Any:
    """Return the model's outputs from those of its last unit."""
    if isinstance(carried, Tensor):
        carried = (carried,)
    method: Callable[[Carried, Targets], Any] | None = getattr(module, "forward_end", None)
    return carried[0] if method is None else method(carried, targets)


class Stage(nn.Module):
    """This rank's units in sequence; inputs and outputs are contiguous. In an evaluation the last
    stage returns the model's outputs."""

    def __init__(
        self, module: nn.Module, units: Sequence[Unit], numerics: Any, *, last: bool
    ) -> None:
        super().__init__()
        self._names = [name for unit in units for name in unit]
        self._module = module
        self._numerics = numerics
        self._last = last

    def forward(self, *carried: Tensor) -> Tensor | Carried:
        carried = tuple(_ContiguousGradient.apply(x) for x in carried)
        with self._numerics.forward():
            for name in self._names:
                carried = forward_unit(self._module, name, carried)
            if self._last and not self._module.training:
                carried = (finish(self._module, carried, None),)
        outputs = tuple(x.contiguous() for x in carried)
        return outputs if len(outputs) > 1 else outputs[0]


class _ContiguousGradient(Function):
    """Identity; its gradient is sent to the stage before, so it has to be contiguous."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous()


class Pipeline:
    """Micro-batches through all stages; every rank of the axis calls the same methods."""

    def __init__(
        self,
        stage: Stage,
        *,
        axis: Axis,
        schedule: str,
        microbatches: int,
        loss: Callable[[Any, Targets], Tensor],
        boundaries: Callable[[torch.Size, torch.dtype, bool], list[Carried]],
    ) -> None:
        self._stage = stage
        self._axis = axis
        self._make_schedule = SCHEDULES[schedule]
        self._microbatches = microbatches
        self._loss = loss
        self._boundaries = boundaries
        self._schedules: dict[Any, Any] = {}
        self._sent_bytes: dict[Any, int] = {}
        """Bytes of a micro-batch that this rank sends: activations on, their gradients back."""
        self._targets: Targets = None

    def forward_backward(self, inputs: Tensor, targets: Targets) -> None:
        """Run all micro-batches of a batch; the last stage calls the loss function for each."""
        schedule = self._schedule_for(inputs)
        first, last = self._axis.rank == 0, self._axis.rank == self._axis.size - 1
        arguments = (inputs.contiguous(),) if first else ()  # in the format of the stage's shapes
        # torch divides one tensor among micro-batches: of several, it divides the rows' numbers.
        self._targets = None if isinstance(targets, Tensor) else targets
        rows = torch.arange(len(inputs), device=inputs.device)
        target = rows if self._targets is not None else targets
        schedule.step(*arguments, **({"target": target} if last else {}))
        for _ in range(self._microbatches):
            self._axis.exchanged.add(self._sent_bytes[tuple(inputs.shape), inputs.dtype])

    def _micro_batch_loss(self, outputs: Any, target: Tensor) -> Tensor:
        targets = target if self._targets is None else rows_of(self._targets, target)
        return self._loss(outputs, targets)

    def predict(self, inputs: Tensor) -> Tensor:
        """Run one batch through all stages; return the last stage's outputs on every rank."""
        axis = self._axis
        boundary = self._boundaries(inputs.shape, inputs.dtype, False)
        carried: Carried = (inputs,)
        if axis.rank > 0:
            carried = tuple(torch.empty_like(x, device=inputs.device) for x in boundary[axis.rank])
            for x in carried:
                dist.recv(x, src=axis.global_rank(axis.rank - 1), group=axis.group)
        outputs: Tensor | Carried = self._stage(*carried)
        if axis.rank < axis.size - 1:
            for x in (outputs,) if isinstance(outputs, Tensor) else outputs:
                dist.send(x, dst=axis.global_rank(axis.rank + 1), group=axis.group)
            outputs = torch.empty_like(boundary[-1][0], device=inputs.device)
        assert isinstance(outputs, Tensor)
        dist.broadcast(outputs, src=axis.global_rank(axis.size - 1), group=axis.group)
        return outputs

    def _schedule_for(self, inputs: Tensor) -> Any:
        key = (tuple(inputs.shape), inputs.dtype)
        if key not in self._schedules:
            # Explicit shapes: to infer them torch would run a pass that moves running averages.
            micro_batch = inputs[: len(inputs) // self._microbatches]
            boundary = self._boundaries(micro_batch.shape, micro_batch.dtype, True)
            rank = self._axis.rank
            onward = boundary[rank + 1] if rank < self._axis.size - 1 else ()
            back = boundary[rank] if rank > 0 else ()
            self._sent_bytes[key] = sum(x.nbytes for x in (*onward, *back))
            stage = PipelineStage(
                self._stage,
                rank,
                self._axis.size,
                inputs.device,
                input_args=tuple(x.detach().requires_grad_(rank > 0) for x in boundary[rank]),
                output_args=tuple(x.detach().requires_grad_() for x in boundary[rank + 1]),
                group=self._axis.group,
            )
            self._schedules[key] = self._make_schedule(
                stage, self._microbatches, loss_fn=self._micro_batch_loss, scale_grads=False
            )
        return self._schedules[key]


def boundaries(
    model: nn.Module,
    stages: Sequence[Sequence[Unit]],
    numerics: Any,
    inputs: Tensor,
    *,
    device: torch.device,
    training: bool,
) -> list[Carried]:
    """Return meta tensors like those that enter each stage and leave the last; no computation."""
    boundary: list[Carried] = [(inputs,)]
    model = copy.deepcopy(model).train(training)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        model.to_empty(device=device)
        carried: Carried = (torch.empty(inputs.shape, dtype=inputs.dtype, device=device),)
        for number, units in enumerate(stages, start=1):
            outputs = Stage(model, units, numerics, last=number == len(stages))(*carried)
            carried = (outputs,) if isinstance(outputs, Tensor) else outputs
            boundary.append(carried)
    return [
        tuple(torch.empty(x.shape, dtype=x.dtype, device="meta") for x in carried)
        for carried in boundary
    ]
