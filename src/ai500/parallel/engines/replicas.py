"""Shared by all engines: evaluation mode, agreement with rank 0, models without weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ai500.parallel.engines import CheckpointAction
from ai500.parallel.engines.batch_norm import SynchronizedBatchNorm
from ai500.parallel.engines.mesh import Axis, Mesh
from ai500.records import Parallelism


@contextmanager
def evaluating(module: nn.Module, data: Axis) -> Iterator[None]:
    """Enter evaluation mode, with the running statistics of data-parallel rank 0."""
    if data.size > 1:
        for buffer in module.buffers():
            dist.broadcast(buffer, src=data.global_rank(0), group=data.group)
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train()


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


def in_single_precision(module: nn.Module) -> nn.Module:
    """Copy a model to FP32: its operation count does not depend on the precision."""
    return copy.deepcopy(module).float()


def describe(parallel: Parallelism, mesh: Mesh, module: nn.Module) -> dict[str, Any]:
    """Describe the parallelism that runs, the same fields for every engine."""
    synchronized = any(isinstance(layer, SynchronizedBatchNorm) for layer in module.modules())
    return {
        "mode": parallel.mode,
        "sharded": any(isinstance(parameter, DTensor) for parameter in module.parameters()),
        "data_degree": mesh.data.size,
        "pipeline_degree": mesh.pipeline.size,
        "tensor_degree": mesh.tensor.size,
        "batch_norm": "synchronized" if synchronized else "replica",
    }
