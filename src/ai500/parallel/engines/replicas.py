"""Shared by all engines: micro-steps, evaluation, agreement with rank 0, models without weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ai500.parallel.checkpoint_action import CheckpointAction
from ai500.parallel.engines import Setting
from ai500.parallel.engines.batch_norm import SynchronizedBatchNorm, synchronize
from ai500.parallel.engines.mesh import Mesh
from ai500.parallel.engines.state import Layout
from ai500.parallel.targets import Targets, chunked


class ReplicaEngine:
    """The methods of an `Engine` that do not depend on how its model is divided."""

    layout: Layout

    def __init__(self, setting: Setting) -> None:
        self.mesh = setting.mesh
        self.module = setting.module
        self._training_module = setting.module
        self._setting = setting
        self._unsharded = without_weights(setting.module)

    def _synchronize_batch_norm(self) -> None:
        """Replace the batch norms of several replicas, if their statistics are synchronized."""
        if self._setting.parallel.batch_norm == "synchronized" and self.mesh.data.size > 1:
            synchronize(self.module, self.mesh.data)

    def forward_backward(self, inputs: Tensor, targets: Targets) -> Tensor:
        """Return the mean loss over the micro-steps; the last backward pass averages over ranks."""
        steps = self._setting.accumulation
        micro_batches = list(zip(inputs.chunk(steps), chunked(targets, steps), strict=True))
        losses = []
        for number, micro_batch in enumerate(micro_batches, start=1):
            with self._averaging(last=number == len(micro_batches)):
                losses.append(self._micro_step(*micro_batch))
        return torch.stack(losses).mean()

    def _averaging(self, *, last: bool) -> AbstractContextManager[None]:
        """Return the context of a micro-step; only in the last one gradients are averaged."""
        return nullcontext()

    def _micro_step(self, inputs: Tensor, targets: Targets) -> Tensor:
        setting = self._setting
        with setting.numerics.forward():
            outputs = setting.forward(self._training_module, inputs, targets)
            loss = setting.loss(outputs, targets)
        setting.numerics.scale(loss / setting.accumulation).backward()
        return loss.detach()

    def warm_up(self, inputs: Tensor, targets: Targets) -> None:
        """Do nothing: what a step needs is fixed from the start."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return this rank's part of the parameters."""
        return iter(self.module.parameters())

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: the optimizer sees whole parameters, or DTensors with unsharded norms."""

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Enter evaluation mode, with the running statistics of data-parallel rank 0."""
        data = self.mesh.data
        if data.size > 1:
            for buffer in self.module.buffers():
                dist.broadcast(buffer, src=data.global_rank(0), group=data.group)
        self.module.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.module.train()

    def predict(self, inputs: Tensor) -> Any:
        """Return the outputs for this rank's inputs."""
        with self._setting.numerics.forward():
            return self.module(inputs)

    def agree(self, action: CheckpointAction) -> CheckpointAction:
        """Return rank 0's action: every rank saves its part."""
        return broadcast_action(action, self.mesh)

    def unsharded(self) -> nn.Module:
        """Copy the undivided model in FP32: its operations do not depend on the precision."""
        return copy.deepcopy(self._unsharded).float()

    def state_dict(self) -> dict[str, Any]:
        """Return the collective's state."""
        collective = self._setting.collective
        return {} if collective is None else collective.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the collective's state."""
        if self._setting.collective is not None and state:
            self._setting.collective.load_state_dict(state)

    def describe(self) -> dict[str, Any]:
        """Describe the parallelism that runs, and its communication."""
        layers, parameters = self.module.modules(), self.module.parameters()
        synchronized = any(isinstance(layer, SynchronizedBatchNorm) for layer in layers)
        description: dict[str, Any] = {
            "mode": self._setting.parallel.mode,
            "sharded": any(isinstance(parameter, DTensor) for parameter in parameters),
            "data_degree": self.mesh.data.size,
            "pipeline_degree": self.mesh.pipeline.size,
            "tensor_degree": self.mesh.tensor.size,
            "batch_norm": "synchronized" if synchronized else "replica",
        }
        if (collective := self._setting.collective) is not None:
            # A collective of another package may not declare whether it is synchronous.
            synchronous = getattr(collective, "synchronous", None)
            description["communication"] = collective.describe() | {"synchronous": synchronous}
        return description


def broadcast_action(action: CheckpointAction, mesh: Mesh) -> CheckpointAction:
    """Return rank 0's action on every rank."""
    if mesh.size == 1:
        return action
    # A CPU tensor: the host does not wait for the accelerator.
    value = torch.tensor(action, dtype=torch.uint8)
    dist.broadcast(value, src=0)
    return CheckpointAction(int(value))


def without_weights(module: nn.Module) -> nn.Module:
    """Copy shapes and structure to the meta device, which takes no memory."""
    # Tensor by tensor: a second copy of the weights may not fit into memory.
    memo: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        empty: Tensor = torch.empty_like(tensor, device="meta")
        if isinstance(tensor, nn.Parameter):
            empty = nn.Parameter(empty, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = empty
    return copy.deepcopy(module, memo)
