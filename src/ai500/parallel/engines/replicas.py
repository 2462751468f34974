"""What engines have in common: evaluation mode, rank 0's word, a model without weights."""

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
    """Evaluation mode; running statistics are those of the first data-parallel rank."""
    if data.size > 1:
        for buffer in module.buffers():
            dist.broadcast(buffer, src=data.global_rank(0), group=data.group)
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train()


def broadcast_action(wanted: CheckpointAction, mesh: Mesh) -> CheckpointAction:
    """Rank 0's word on every rank; over the CPU, so that no accelerator is waited for."""
    if mesh.size == 1:
        return wanted
    word = torch.tensor(wanted, dtype=torch.uint8)
    dist.broadcast(word, src=0)
    return CheckpointAction(int(word))


def without_weights(module: nn.Module) -> nn.Module:
    """A copy that takes no memory: shapes and structure only."""
    # One tensor at a time: a whole second model may not fit beside the first.
    memo: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        empty: Tensor = torch.empty_like(tensor, device="meta")
        if isinstance(tensor, nn.Parameter):
            empty = nn.Parameter(empty, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = empty
    return copy.deepcopy(module, memo)


def in_single_precision(module: nn.Module) -> nn.Module:
    """A copy whose parameters and inputs have one type: operations do not depend on precision."""
    return copy.deepcopy(module).float()


def described(parallel: Parallelism, mesh: Mesh, module: nn.Module) -> dict[str, Any]:
    """What every engine tells of itself."""
    synchronized = any(isinstance(one, SynchronizedBatchNorm) for one in module.modules())
    return {
        "mode": parallel.mode,
        "sharded": any(isinstance(one, DTensor) for one in module.parameters()),
        "data_degree": mesh.data.size,
        "pipeline_degree": mesh.pipeline.size,
        "tensor_degree": mesh.tensor.size,
        "batch_norm": "synchronized" if synchronized else "replica",
    }
