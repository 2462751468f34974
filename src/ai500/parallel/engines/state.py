"""Weights and optimizer state, gathered from all ranks on rank 0 and sharded again.

A gathered state has the names and shapes of the unsharded model, so a checkpoint does not depend on
the parallel mode. Nothing is computed on the way: gathering and sharding keep every bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ai500.parallel.engines.mesh import Axis


@dataclass(frozen=True, slots=True)
class Layout:
    """This rank's part of the whole model."""

    axis: Axis = field(default_factory=Axis)
    """Axis over which split tensors are split."""
    splits: Mapping[str, int] = field(default_factory=dict)
    """Parameter or buffer → the dimension it is split along; all others are whole."""
    replica: int = 0
    """Number of this copy among ranks with the same part; the state is replica 0's."""
    scattered: bool = False
    """True if some rank holds a part that rank 0 does not."""
    copies: frozenset[str] = frozenset()
    """Parameters that another pipeline stage holds too; the state is that stage's."""

    def part(self, name: str, whole: Tensor) -> Tensor:
        """Return this rank's part of a whole tensor."""
        if name not in self.splits:
            return whole
        dimension = self.splits[name]
        parts = whole.chunk(self.axis.size, dimension)
        if self.axis.rank < len(parts):
            return parts[self.axis.rank]
        return whole.narrow(dimension, 0, 0)  # fewer rows than ranks

    def holds(self, name: str) -> bool:
        """Return whether this rank's copy goes into the gathered state."""
        if self.replica > 0 or name in self.copies:
            return False
        return name in self.splits or self.axis.rank == 0


def gather_weights(module: nn.Module, layout: Layout) -> dict[str, Tensor] | None:
    """Gather all parameters and buffers on rank 0 (None on the others); every rank calls this."""
    parts = {name: _local(value) for name, value in module.state_dict().items()}
    return gather_tensors(parts, layout, {name: name for name in parts})


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], layout: Layout) -> None:
    """Load this rank's part of gathered weights."""
    for name, value in module.state_dict().items():
        local, part = _local(value), layout.part(name, weights[name])
        if local.shape != part.shape:
            raise ValueError(f"{name} is {tuple(part.shape)}, the model has {tuple(local.shape)}")
        local.copy_(part)


def gather_optimizer(
    optimizer: torch.optim.Optimizer, module: nn.Module, layout: Layout
) -> dict[str, Any] | None:
    """Gather the optimizer's state by parameter name on rank 0; None on the others."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    parts: dict[str, Tensor] = {}
    owners: dict[str, str] = {}
    for parameter, state in optimizer.state.items():
        name = names[id(parameter)]
        for key, value in state.items():
            if value is not None:
                tensor = torch.as_tensor(value)
                parts[f"{name}/{key}"] = _local(tensor)
                # State of another shape, such as a step count, is not split with its parameter.
                owners[f"{name}/{key}"] = name if tensor.shape == parameter.shape else ""
    state = gather_tensors(parts, layout, owners)
    return None if state is None else {"state": state, "groups": _options(optimizer)}


def load_optimizer(
    optimizer: torch.optim.Optimizer, module: nn.Module, gathered: Mapping[str, Any], layout: Layout
) -> None:
    """Load this rank's part of a gathered optimizer state."""
    named = dict(module.named_parameters())
    optimizer.state.clear()
    for path, value in gathered["state"].items():
        name, _, key = path.rpartition("/")
        if name in named:
            optimizer.state[named[name]][key] = _part_like(named[name], name, value, layout)
    for group, options in zip(optimizer.param_groups, gathered["groups"], strict=True):
        group.update(options)


def gather_objects(value: Any, *, size: int) -> list[Any] | None:
    """Gather every rank's object on rank 0; None on the others."""
    if size == 1:
        return [value]
    objects: list[Any] | None = [None] * size if dist.get_rank() == 0 else None
    dist.gather_object(value, objects, dst=0)
    return objects


def gather_tensors(
    local: Mapping[str, Tensor], layout: Layout, owners: Mapping[str, str]
) -> dict[str, Tensor] | None:
    """Concatenate copies of all ranks' parts, in the order of the ranks.

    `owners` maps each tensor to the parameter or buffer that it is split like.
    """
    kept = {
        key: value.detach().to("cpu", copy=True)
        for key, value in local.items()
        if layout.holds(owners[key])
    }
    dimensions = {key: layout.splits[owners[key]] for key in kept if owners[key] in layout.splits}
    if not layout.scattered:
        return kept if _is_first() else None
    ranks = gather_objects((kept, dimensions), size=dist.get_world_size())
    if ranks is None:
        return None
    parts: dict[str, list[Tensor]] = {}
    along: dict[str, int] = {}
    for tensors, split in ranks:
        along |= split
        for key, value in tensors.items():
            parts.setdefault(key, []).append(value)
    return {
        key: torch.cat(tensors, along[key]) if key in along else tensors[0]
        for key, tensors in parts.items()
    }


def _is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def _local(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _part_like(parameter: Tensor, name: str, whole: Tensor, layout: Layout) -> Tensor:
    """Return the part in the parameter's own format; a step count stays as it is."""
    if whole.shape != _whole_shape(parameter, name, layout):
        return whole.clone()
    local = torch.empty_like(_local(parameter).detach(), dtype=whole.dtype)
    local.copy_(layout.part(name, whole))
    if not isinstance(parameter, DTensor):
        return local
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _whole_shape(parameter: Tensor, name: str, layout: Layout) -> torch.Size:
    if isinstance(parameter, DTensor) or name not in layout.splits:
        return parameter.shape
    shape = list(parameter.shape)
    shape[layout.splits[name]] *= layout.axis.size
    return torch.Size(shape)


def _options(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
