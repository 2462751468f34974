"""Sharded data parallelism (FSDP2): a share of the batch, and a share of weights and gradients."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from ai500.parallel.engines import CheckpointAction, Setting
from ai500.parallel.engines.batch_norm import synchronize
from ai500.parallel.engines.replicas import (
    broadcast_action,
    describe,
    evaluating,
    in_single_precision,
    without_weights,
)
from ai500.parallel.engines.state import Layout
from ai500.parallel.targets import Targets, chunked


class ShardedDataParallel:
    """Torch's FSDP2: weights are gathered layer by layer, gradients reduced to their owner.

    FSDP2 brings its own reduce-scatter, so no other communication mode goes with it.
    """

    def __init__(self, setting: Setting) -> None:
        self.mesh = setting.mesh
        self._setting = setting
        self._unsharded = without_weights(setting.module)
        # FSDP2 supports contiguous tensors only.
        self.module = setting.module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        names = [name for name, _ in self.module.named_parameters()]
        self.layout = Layout(
            axis=self.mesh.data, splits=dict.fromkeys(names, 0), scattered=self.mesh.size > 1
        )
        if self.mesh.size > 1:
            if setting.parallel.batch_norm == "synchronized":
                synchronize(self.module, self.mesh.data)
            self._shard()

    def _shard(self) -> None:
        """Shard unit by unit, so that only one unit's weights are gathered at a time."""
        assert self.mesh.devices is not None
        # Torch 2.13 warns of outputs that are views, in case they are modified in place: none is.
        warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view")
        devices = self.mesh.devices["data"]
        plan = self._setting.plan
        names = (plan.units or itertools.chain(*plan.stages)) if plan else ()
        for name in names:
            unit = self.module.get_submodule(name)
            if next(unit.parameters(), None) is not None:
                fully_shard(unit, mesh=devices)
        fully_shard(self.module, mesh=devices)

    def forward_backward(self, inputs: Tensor, targets: Targets) -> Tensor:
        """Return the mean loss over the micro-steps; the last one reduces gradients."""
        setting = self._setting
        steps = setting.accumulation
        losses = []
        micro_batches = zip(inputs.chunk(steps), chunked(targets, steps), strict=True)
        for number, (part, part_targets) in enumerate(micro_batches, start=1):
            if self.mesh.size > 1:
                self.module.set_requires_gradient_sync(number == steps)
            with setting.numerics.forward():
                loss = setting.loss(setting.forward(self.module, part, part_targets), part_targets)
            setting.numerics.scale(loss / steps).backward()
            losses.append(loss.detach())
        return torch.stack(losses).mean()

    def warm_up(self, inputs: Tensor, targets: Targets) -> None:
        """Do nothing: the shards are fixed from the start."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return this rank's shards."""
        return iter(self.module.parameters())

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: DTensor computes unsharded norms."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Enter evaluation mode, with rank 0's running statistics."""
        return evaluating(self.module, self.mesh.data)

    def predict(self, inputs: Tensor) -> Any:
        """Return the outputs for this rank's inputs; weights are gathered from all ranks."""
        with self._setting.numerics.forward():
            return self.module(inputs)

    def agree(self, action: CheckpointAction) -> CheckpointAction:
        """Return rank 0's action: every rank saves its part."""
        return broadcast_action(action, self.mesh)

    def unsharded(self) -> nn.Module:
        """Return the model before it was sharded."""
        return in_single_precision(self._unsharded)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: there is no state besides the weights."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: there is no state besides the weights."""

    def describe(self) -> dict[str, Any]:
        """Describe parallelism and communication; FSDP2 does not report its bytes."""
        communication = {"mode": "all_reduce", "precision": "fp32", "bytes": "not counted"}
        return describe(self._setting.parallel, self.mesh, self.module) | {
            "communication": communication
        }
