"""Data parallelism: each rank has the whole model and a share of the batch."""

from __future__ import annotations

import inspect
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ai500.parallel.checkpoint_action import CheckpointAction
from ai500.parallel.cuda_graph import GradientGraph, gradients_capturable
from ai500.parallel.engines import Setting
from ai500.parallel.engines.replicas import ReplicaEngine
from ai500.parallel.engines.state import Layout
from ai500.parallel.targets import Targets

# Renamed in torch 2.13; the old name warns there.
_SYNC_BUFFERS_EACH_STEP = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)


class DataParallel(ReplicaEngine):
    """Gradients are averaged by DDP's buckets, overlapped with the backward pass.

    Batch norm is per replica unless synchronized. Running statistics are rank 0's: buffers are not
    broadcast at each step (training does not read them) but before an evaluation.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.layout = Layout(replica=self.mesh.data.rank)
        self._kernels = ""
        if self.mesh.data.size > 1:
            self._synchronize_batch_norm()
            self._training_module = self._replicated()
        elif setting.optimized is not None:
            optimized = setting.optimized(
                self.module, precision=setting.numerics.name, device=setting.device
            )
            if optimized is not None:
                self.module = self._training_module = optimized.model
                self._kernels = optimized.kernels
        self._graph: GradientGraph | None = None
        self._not_captured = ""
        alone = self.mesh.data.size == 1 and setting.accumulation == 1
        may_capture = setting.may_capture and alone and setting.device.type == "cuda"
        if may_capture and gradients_capturable(self.module, precision=setting.numerics.name):
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

    def forward_backward(self, inputs: Tensor, targets: Targets) -> Tensor:
        """Replay the captured graph, or run the micro-steps."""
        if self._graph is not None:
            return self._graph(inputs, targets)
        return super().forward_backward(inputs, targets)

    def _averaging(self, *, last: bool) -> AbstractContextManager[None]:
        if last or not isinstance(self._training_module, DistributedDataParallel):
            return nullcontext()
        return self._training_module.no_sync()

    def warm_up(self, inputs: Tensor, targets: Targets) -> None:
        """Capture the graph; or let DDP lay out its buckets, which it does again after its first
        backward pass.

        The layout is the order in which gradients are summed: without this a resumed member would
        round its first step differently from one that was not interrupted.
        """
        if self.mesh.data.size == 1 and self._graph is None:
            return
        buffers = [buffer.clone() for buffer in self.module.buffers()]
        if self._graph is not None:
            self._capture(self._graph, inputs, targets)
        else:
            self.forward_backward(inputs, targets)
        self.module.zero_grad(set_to_none=True)
        if self._setting.collective is not None:
            self._setting.collective.reset()
        for buffer, before in zip(self.module.buffers(), buffers, strict=True):
            buffer.copy_(before)

    def _capture(self, graph: GradientGraph, inputs: Tensor, targets: Targets) -> None:
        """Capture, or fall back to eager steps: a graph keeps memory of its own."""
        try:
            graph.capture(inputs, targets)
        except torch.OutOfMemoryError as error:
            self._graph, self._not_captured = None, str(error).split(". ")[0]
            print(f"the step is not captured: {self._not_captured}", file=sys.stderr)

    def agree(self, action: CheckpointAction) -> CheckpointAction:
        """Return rank 0's action if every rank saves its collective's state; else rank 0 saves
        alone, and no communication is needed."""
        collective = self._setting.collective
        all_save = collective is not None and collective.keeps_memory
        return super().agree(action) if all_save else action

    def describe(self) -> dict[str, Any]:
        """Describe parallelism, kernels, graph capture and communication."""
        description = super().describe()
        if self._kernels:
            description["kernels"] = self._kernels
        if self._graph is not None or self._not_captured:
            description["captured"] = self._graph is not None or f"no: {self._not_captured}"
        return description
