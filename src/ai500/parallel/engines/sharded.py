"""Sharded data parallelism (FSDP2): a share of the batch, and a share of weights and gradients."""

from __future__ import annotations

import itertools
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule, fully_shard

from ai500.parallel.engines import Setting
from ai500.parallel.engines.replicas import ReplicaEngine
from ai500.parallel.engines.state import Layout


class ShardedDataParallel(ReplicaEngine):
    """Torch's FSDP2: weights are gathered layer by layer, gradients reduced to their owner.

    FSDP2 brings its own reduce-scatter, so no other communication mode goes with it.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        # FSDP2 supports contiguous tensors only.
        self.module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        names = [name for name, _ in self.module.named_parameters()]
        self.layout = Layout(
            axis=self.mesh.data, splits=dict.fromkeys(names, 0), scattered=self.mesh.size > 1
        )
        self._synchronize_batch_norm()
        if self.mesh.size > 1:
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

    def _averaging(self, *, last: bool) -> AbstractContextManager[None]:
        if isinstance(self.module, FSDPModule):
            self.module.set_requires_gradient_sync(last)
        return nullcontext()

    def describe(self) -> dict[str, Any]:
        """Describe parallelism and communication; FSDP2 does not report its bytes."""
        return super().describe() | {
            "communication": {
                "mode": "all_reduce",
                "precision": "fp32",
                "bytes": "not counted",
                "synchronous": True,
            }
        }
