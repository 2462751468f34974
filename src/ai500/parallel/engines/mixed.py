"""Data × pipeline × tensor parallelism on one mesh; pure tensor and pipeline are its edges.

Each layer is first split over the tensor axis, then the model is cut into stages, then gradients
are averaged over the data axis once the backward passes are through.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ai500.core.errors import AI500Error
from ai500.parallel.engines import CheckpointAction, Setting
from ai500.parallel.engines.batch_norm import synchronize
from ai500.parallel.engines.pipeline import (
    Carried,
    Pipeline,
    Stage,
    Unit,
    boundaries,
    cut,
    ended,
    keep_only,
)
from ai500.parallel.engines.replicas import (
    broadcast_action,
    describe,
    evaluating,
    in_single_precision,
    without_weights,
)
from ai500.parallel.engines.state import Layout
from ai500.parallel.engines.tensor import split_layers, split_norms
from ai500.records import ParallelPlan


class MixedParallel:
    """Mathematically what one process computes, but for batch norm's view of the batch: per
    replica unless synchronized, and per micro-batch where there is a pipeline."""

    def __init__(self, setting: Setting) -> None:
        self.mesh = setting.mesh
        self.module = setting.module
        self._setting = setting
        self._plan = _plan_of(setting)
        self._whole = without_weights(setting.module)
        self._losses: list[Tensor] = []
        self._stages = self._cut()
        mine = self._stages[self.mesh.pipeline.rank]
        splits: dict[str, int] = {}
        if self.mesh.tensor.size > 1:
            splits = split_layers(self.module, self._plan, self.mesh.tensor)
        keep_only(self.module, self._plan.stages, mine)
        if setting.parallel.batch_norm == "synchronized" and self.mesh.data.size > 1:
            synchronize(self.module, self.mesh.data)
        self.layout = Layout(
            axis=self.mesh.tensor,
            splits=splits,
            replica=self.mesh.data.rank,
            scattered=self.mesh.pipeline.size * self.mesh.tensor.size > 1,
        )
        self._pipeline = self._make_pipeline(mine) if self.mesh.pipeline.size > 1 else None

    def _cut(self) -> list[list[Unit]]:
        units = self._plan.stages
        if self.mesh.pipeline.size == 1:
            return [list(units)]
        return cut(
            self.unsharded(),
            units,
            stages=self.mesh.pipeline.size,
            input_shape=self._setting.input_shape,
        )

    def _make_pipeline(self, mine: list[Unit]) -> Pipeline:
        numerics, parallel = self._setting.numerics, self._setting.parallel

        axis, device = self.mesh.pipeline, self._setting.device

        @cache
        def wires(shape: torch.Size, dtype: torch.dtype, training: bool) -> list[Carried]:
            like = torch.empty(shape, dtype=dtype, device="meta")
            return boundaries(
                self._whole, self._stages, numerics, like, device=device, training=training
            )

        return Pipeline(
            Stage(self.module, mine, numerics, last=axis.rank == axis.size - 1),
            axis=axis,
            schedule=parallel.pipeline_schedule,
            microbatches=parallel.microbatches,
            loss=self._loss_of_carried,
            boundaries=lambda inputs, training: wires(inputs.shape, inputs.dtype, training),
        )

    def _loss_of_carried(self, carried: Any, labels: Tensor) -> Tensor:
        """On the last stage, of what its units leave."""
        with self._setting.numerics.forward():
            outputs = ended(self.module, carried, labels)
        return self._scaled_loss(outputs, labels)

    def _scaled_loss(self, outputs: Any, labels: Tensor) -> Tensor:
        """A micro-batch's part of the mean loss, for its backward pass; its value is kept."""
        setting = self._setting
        with setting.numerics.forward():
            loss = setting.loss(outputs, labels)
        self._losses.append(loss.detach())
        return setting.numerics.scale(loss / (setting.accumulation * setting.parallel.microbatches))

    def forward_backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """All micro-steps, then the mean over the data axis."""
        steps = self._setting.accumulation
        self._losses.clear()
        for some, theirs in zip(inputs.chunk(steps), labels.chunk(steps), strict=True):
            self._micro_step(some, theirs)
        self._average_gradients()
        return self._mean_loss()

    def _micro_step(self, inputs: Tensor, labels: Tensor) -> None:
        if self._pipeline is not None:
            self._pipeline.forward_backward(inputs, labels)
            return
        with self._setting.numerics.forward():
            outputs = self._setting.forward(self.module, inputs, labels)
        self._scaled_loss(outputs, labels).backward()

    def _average_gradients(self) -> None:
        collective = self._setting.collective
        if collective is None or self.mesh.data.size == 1:
            return
        # What tensor ranks hold alike goes by itself: beside a rank's own part, compression would
        # round it differently on each of them.
        alike: dict[str, list[Tensor]] = {}
        for name, parameter in self.module.named_parameters():
            if parameter.grad is not None:
                part = "split" if name in self.layout.splits else "whole"
                alike.setdefault(f"{parameter.grad.dtype} {part}", []).append(parameter.grad)
        for key, gradients in alike.items():
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            averaged = collective.all_reduce_mean(flat, key=key)
            parts = averaged.split([gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view(gradient.shape))

    def _mean_loss(self) -> Tensor:
        """Known on the last stage, told to the others."""
        axis = self.mesh.pipeline
        last = axis.rank == axis.size - 1
        device = self._setting.device
        loss = torch.stack(self._losses).mean().float() if last else torch.zeros((), device=device)
        if axis.size > 1:
            dist.broadcast(loss, src=axis.global_rank(axis.size - 1), group=axis.group)
        return loss

    def warm_up(self, inputs: Tensor, labels: Tensor) -> None:
        """Nothing: cuts, splits and shapes are fixed from the start."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of this rank's stage, each this rank's part."""
        return self.module.parameters()

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Norms of split parameters are summed over the tensor axis."""
        if hasattr(optimizer, "norms") and self.layout.splits:
            split = {
                id(parameter)
                for name, parameter in self.module.named_parameters()
                if name in self.layout.splits
            }
            optimizer.norms = partial(split_norms, split=split, axis=self.mesh.tensor)

    def evaluating(self) -> AbstractContextManager[None]:
        """Evaluation mode, with the running statistics of the first data-parallel rank."""
        return evaluating(self.module, self.mesh.data)

    def predict(self, inputs: Tensor) -> Any:
        """Through all stages, or through the model's own forward pass where there are none."""
        if self._pipeline is not None:
            return self._pipeline.predict(inputs)
        with self._setting.numerics.forward():
            return self.module(inputs)

    def agree(self, action: CheckpointAction) -> CheckpointAction:
        """Every rank has a part of what is saved."""
        return broadcast_action(action, self.mesh)

    def unsharded(self) -> nn.Module:
        """The model before it was split and cut."""
        return in_single_precision(self._whole)

    def state_dict(self) -> dict[str, Any]:
        """What the collective keeps from step to step."""
        collective = self._setting.collective
        return {} if collective is None else collective.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Give it back to the collective."""
        if self._setting.collective is not None and state:
            self._setting.collective.load_state_dict(state)

    def describe(self) -> dict[str, Any]:
        """What really runs."""
        told = describe(self._setting.parallel, self.mesh, self.module)
        if self._pipeline is not None:
            told["pipeline_schedule"] = self._setting.parallel.pipeline_schedule
            told["microbatches"] = self._setting.parallel.microbatches
            told["stages"] = [[name for unit in units for name in unit] for units in self._stages]
        if self._setting.collective is not None:
            told["communication"] = self._setting.collective.describe()
        return told


def _plan_of(setting: Setting) -> ParallelPlan:
    if setting.plan is None:
        raise AI500Error("the workload has no parallel plan: only data parallelism is possible.")
    return setting.plan
