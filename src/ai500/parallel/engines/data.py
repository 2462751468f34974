"""Data parallelism: each rank has the whole model and a share of the batch."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ai500.parallel.engines import CheckpointAction, Setting
from ai500.parallel.engines import fast_path as quick
from ai500.parallel.engines.batch_norm import synchronize
from ai500.parallel.engines.fast_path import GradientGraph, graphable, quicken
from ai500.parallel.engines.replicas import (
    broadcast_action,
    described,
    evaluating,
    in_single_precision,
    without_weights,
)
from ai500.parallel.engines.state import Layout

# Renamed in torch 2.13; the old name warns there.
_SYNC_BUFFERS_EACH_STEP = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)


class DataParallel:
    """Gradients are averaged by DDP's buckets while the backward pass still runs.

    Batch norm is per replica unless synchronized. Running statistics are rank 0's: buffers are not
    broadcast at each step (they do not enter a training step) but before an evaluation.
    """

    def __init__(self, setting: Setting) -> None:
        self.mesh = setting.mesh
        self.module = setting.module
        self.layout = Layout(replica=self.mesh.data.rank)
        self._setting = setting
        self._whole = without_weights(setting.module)
        self._forward: nn.Module = self.module
        if self.mesh.data.size > 1:
            if setting.parallel.batch_norm == "synchronized":
                synchronize(self.module, self.mesh.data)
            self._forward = self._replicated()
        else:
            quicken(self.module, precision=setting.numerics.name, device=setting.device)
        self._graph: GradientGraph | None = None
        self._not_recorded = ""
        alone = self.mesh.data.size == 1 and setting.accumulation == 1
        may = setting.may_capture and alone and setting.device.type == "cuda"
        if may and graphable(self.module, precision=setting.numerics.name):
            self._graph = GradientGraph(
                self._micro_step,
                list(self.module.parameters()),
                batch_size=setting.input_shape[0],
            )

    def _replicated(self) -> DistributedDataParallel:
        device, collective = self._setting.device, self._setting.collective
        replicated = DistributedDataParallel(
            self.module,
            device_ids=None if device.type == "cpu" else [device.index],
            process_group=self.mesh.data.group,
            gradient_as_bucket_view=True,
            **{_SYNC_BUFFERS_EACH_STEP: False},  # type: ignore[arg-type]
        )
        if collective is not None:
            replicated.register_comm_hook(None, collective.ddp_hook)
        return replicated

    def forward_backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss over the micro-steps; the last one's backward pass averages over ranks."""
        if self._graph is not None:
            return self._graph(inputs, labels)
        steps = self._setting.accumulation
        micro = list(zip(inputs.chunk(steps), labels.chunk(steps), strict=True))
        losses = []
        for number, (some, theirs) in enumerate(micro, start=1):
            with self._averaging(last=number == len(micro)):
                losses.append(self._micro_step(some, theirs))
        return torch.stack(losses).mean()

    def _micro_step(self, inputs: Tensor, labels: Tensor) -> Tensor:
        numerics = self._setting.numerics
        with numerics.forward():
            outputs = self._setting.forward(self._forward, inputs, labels)
            loss = self._setting.loss(outputs, labels)
        numerics.scale(loss / self._setting.accumulation).backward()
        return loss.detach()

    def _averaging(self, *, last: bool) -> AbstractContextManager[None]:
        if last or not isinstance(self._forward, DistributedDataParallel):
            return nullcontext()
        return self._forward.no_sync()

    def warm_up(self, inputs: Tensor, labels: Tensor) -> None:
        """Record the graph; or let DDP lay out its buckets, anew after its first backward pass.

        The layout decides in which order gradients are summed: a member that starts again would
        round its first step differently from one that went on.
        """
        if self.mesh.data.size == 1 and self._graph is None:
            return
        buffers = [buffer.clone() for buffer in self.module.buffers()]
        if self._graph is not None:
            self._record(self._graph, inputs, labels)
        else:
            self.forward_backward(inputs, labels)
        self.module.zero_grad(set_to_none=True)
        if self._setting.collective is not None:
            self._setting.collective.reset()
        for buffer, before in zip(self.module.buffers(), buffers, strict=True):
            buffer.copy_(before)

    def _record(self, graph: GradientGraph, inputs: Tensor, labels: Tensor) -> None:
        """Or do without: recorded steps keep memory of their own."""
        try:
            graph.record(inputs, labels)
        except torch.OutOfMemoryError as error:
            self._graph, self._not_recorded = None, str(error).split(". ")[0]
            print(f"steps are not recorded here: {self._not_recorded}", file=sys.stderr)

    def parameters(self) -> Iterator[nn.Parameter]:
        """All of them: every rank holds the whole model."""
        return self.module.parameters()

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Nothing: parameters are whole."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Evaluation mode, with rank 0's running statistics."""
        return evaluating(self.module, self.mesh.data)

    def predict(self, inputs: Tensor) -> Any:
        """Each rank for itself."""
        with self._setting.numerics.forward():
            return self.module(inputs)

    def agree(self, action: CheckpointAction) -> CheckpointAction:
        """Rank 0 alone can save the weights; a collective's memory is every rank's own."""
        collective = self._setting.collective
        remembers = collective is not None and collective.keeps_memory
        return broadcast_action(action, self.mesh) if remembers else action

    def unsharded(self) -> nn.Module:
        """The model before DDP and synchronized batch norm."""
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
        told = described(self._setting.parallel, self.mesh, self.module)
        recorded = self._graph is not None
        told |= quick.told(self.module, recorded=recorded, not_recorded=self._not_recorded)
        if self._setting.collective is not None:
            told["communication"] = self._setting.collective.describe()
        return told
