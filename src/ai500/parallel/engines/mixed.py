"""Data × pipeline × tensor parallelism on one mesh; pure tensor and pipeline are special cases.

Layers are split over the tensor axis, then the model is cut into stages; gradients are averaged
over the data axis after all backward passes.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ai500.core.errors import AI500Error
from ai500.parallel.engines import Setting, pipeline
from ai500.parallel.engines.mesh import Exchanged
from ai500.parallel.engines.replicas import ReplicaEngine
from ai500.parallel.engines.state import Layout
from ai500.parallel.engines.tensor import split_layers, split_norms
from ai500.parallel.targets import Targets, chunked
from ai500.records import ParallelPlan


class MixedParallel(ReplicaEngine):
    """Mathematically equal to one process, except for batch norm's statistics: per replica unless
    synchronized, and per micro-batch in a pipeline."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._plan = _plan_of(setting)
        self._losses: list[Tensor] = []
        self._model_axes = {"tensor": self.mesh.tensor, "pipeline": self.mesh.pipeline}
        self._activations = {name: Exchanged() for name in self._model_axes}
        self._samples = 0
        """Images of this replica whose activations were counted."""
        self._stages = self._cut()
        own_units = self._stages[self.mesh.pipeline.rank]
        splits: dict[str, int] = {}
        if self.mesh.tensor.size > 1:
            splits = split_layers(self.module, self._plan, self.mesh.tensor)
        pipeline.keep_only(self.module, self._plan.stages, own_units, shared=self._plan.shared)
        self._shared = self._shared_parameters()
        self._ends = self._group_of_ends() if self._shared else None
        self._synchronize_batch_norm()
        self.layout = Layout(
            axis=self.mesh.tensor,
            splits=splits,
            replica=self.mesh.data.rank,
            scattered=self.mesh.pipeline.size * self.mesh.tensor.size > 1,
            copies=frozenset(self._shared if self.mesh.pipeline.rank > 0 else ()),
        )
        self._pipeline = self._make_pipeline(own_units) if self.mesh.pipeline.size > 1 else None

    def _cut(self) -> list[list[pipeline.Unit]]:
        units = self._plan.stages
        if self.mesh.pipeline.size == 1:
            return [list(units)]
        return pipeline.cut(
            self.unsharded(),
            units,
            stages=self.mesh.pipeline.size,
            inputs=torch.empty(
                self._setting.input_shape, dtype=self._setting.input_dtype, device="meta"
            ),
        )

    def _shared_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that the first and the last stage both hold, on these two."""
        axis = self.mesh.pipeline
        if axis.size == 1 or axis.rank not in (0, axis.size - 1):
            return {}
        return {
            f"{module}.{name}": parameter
            for module in self._plan.shared
            for name, parameter in self.module.get_submodule(module).named_parameters()
        }

    def _group_of_ends(self) -> dist.ProcessGroup | None:
        """Return the process group of the first and the last stage."""
        axis = self.mesh.pipeline
        if axis.size == 2:
            return axis.group
        ends = [axis.global_rank(0), axis.global_rank(axis.size - 1)]
        group: dist.ProcessGroup = dist.new_group(ends, use_local_synchronization=True)
        return group

    def _make_pipeline(self, own_units: list[pipeline.Unit]) -> pipeline.Pipeline:
        numerics, parallel = self._setting.numerics, self._setting.parallel
        axis, device = self.mesh.pipeline, self._setting.device

        @cache
        def boundary_tensors(
            shape: torch.Size, dtype: torch.dtype, training: bool
        ) -> list[pipeline.Carried]:
            like = torch.empty(shape, dtype=dtype, device="meta")
            return pipeline.boundaries(
                self._unsharded, self._stages, numerics, like, device=device, training=training
            )

        return pipeline.Pipeline(
            pipeline.Stage(self.module, own_units, numerics, last=axis.rank == axis.size - 1),
            axis=axis,
            schedule=parallel.pipeline_schedule,
            microbatches=parallel.microbatches,
            loss=self._last_stage_loss,
            boundaries=boundary_tensors,
        )

    def _last_stage_loss(self, carried: Any, targets: Targets) -> Tensor:
        """Compute the loss on the last stage, from what its units output."""
        with self._setting.numerics.forward():
            outputs = pipeline.finish(self.module, carried, targets)
        return self._scaled_loss(outputs, targets)

    def _scaled_loss(self, outputs: Any, targets: Targets) -> Tensor:
        """Return a micro-batch's part of the mean loss for its backward pass; store its value."""
        setting = self._setting
        with setting.numerics.forward():
            loss = setting.loss(outputs, targets)
        self._losses.append(loss.detach())
        return setting.numerics.scale(loss / (setting.accumulation * setting.parallel.microbatches))

    def forward_backward(self, inputs: Tensor, targets: Targets) -> Tensor:
        """Run all micro-steps, then average gradients over the data axis."""
        steps = self._setting.accumulation
        self._losses.clear()
        before = {name: replace(axis.exchanged) for name, axis in self._model_axes.items()}
        for micro_batch in zip(inputs.chunk(steps), chunked(targets, steps), strict=True):
            self._backward(*micro_batch)
        # Evaluation exchanges activations too; a step's are those of training alone.
        self._samples += len(inputs)
        for name, axis in self._model_axes.items():
            self._activations[name].bytes += axis.exchanged.bytes - before[name].bytes
            self._activations[name].calls += axis.exchanged.calls - before[name].calls
        for parameter in self._shared.values():
            dist.all_reduce(parameter.grad, group=self._ends)
        self._average_gradients()
        return self._mean_loss()

    def _backward(self, inputs: Tensor, targets: Targets) -> None:
        if self._pipeline is not None:
            self._pipeline.forward_backward(inputs, targets)
            return
        with self._setting.numerics.forward():
            outputs = self._setting.forward(self.module, inputs, targets)
        self._scaled_loss(outputs, targets).backward()

    def _average_gradients(self) -> None:
        collective = self._setting.collective
        if collective is None or self.mesh.data.size == 1:
            return
        # Parameters that tensor ranks replicate go in a buffer of their own: beside a rank's own
        # part, compression would round them differently on each rank.
        buffers: dict[str, list[Tensor]] = {}
        for name, parameter in self.module.named_parameters():
            if parameter.grad is not None:
                part = "split" if name in self.layout.splits else "whole"
                buffers.setdefault(f"{parameter.grad.dtype} {part}", []).append(parameter.grad)
        for key, gradients in buffers.items():
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            averaged = collective.all_reduce_mean(flat, key=key)
            parts = averaged.split([gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view(gradient.shape))

    def _mean_loss(self) -> Tensor:
        """Return the mean loss, broadcast from the last stage."""
        axis = self.mesh.pipeline
        last = axis.rank == axis.size - 1
        device = self._setting.device
        loss = torch.stack(self._losses).mean().float() if last else torch.zeros((), device=device)
        if axis.size > 1:
            dist.broadcast(loss, src=axis.global_rank(axis.size - 1), group=axis.group)
        return loss

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Let LARS and LAMB sum the norms of split parameters over the tensor axis."""
        if hasattr(optimizer, "norms") and self.layout.splits:
            split = {
                id(parameter)
                for name, parameter in self.module.named_parameters()
                if name in self.layout.splits
            }
            optimizer.norms = partial(split_norms, split=split, axis=self.mesh.tensor)

    def predict(self, inputs: Tensor) -> Any:
        """Return the outputs, through all stages or the model's own forward pass."""
        if self._pipeline is not None:
            return self._pipeline.predict(inputs)
        return super().predict(inputs)

    def describe(self) -> dict[str, Any]:
        """Describe parallelism, pipeline and communication."""
        description = super().describe()
        if self._pipeline is not None:
            description["pipeline_schedule"] = self._setting.parallel.pipeline_schedule
            description["microbatches"] = self._setting.parallel.microbatches
            description["stages"] = [
                [name for unit in units for name in unit] for units in self._stages
            ]
        description["activations"] = {
            "samples": self._samples,
            **{name: asdict(sent) for name, sent in self._activations.items()},
        }
        return description


def _plan_of(setting: Setting) -> ParallelPlan:
    if setting.plan is None:
        raise AI500Error(
            "the workload has no parallel plan: only data parallelism is possible.",
            key="parallel.mode",
            value=setting.parallel.mode,
        )
    return setting.plan
