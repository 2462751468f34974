"""Parts of a model and of its optimizer's state, put together on rank 0 and taken apart again.

A whole state has the names and shapes of the whole model, whoever held its parts: a checkpoint
does not depend on the parallel mode. Nothing is computed on the way, so what is taken apart again
is bit by bit what was put together.
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
    """Which part of the whole model this rank holds."""

    axis: Axis = field(default_factory=Axis)
    """The ranks among which split tensors are split."""
    splits: Mapping[str, int] = field(default_factory=dict)
    """Parameter or buffer → the dimension it is split along; the others are whole."""
    replica: int = 0
    """Of several ranks with the same part, the state of replica 0 is the one that counts."""
    scattered: bool = False
    """Whether any other rank holds something that rank 0 does not."""

    def part(self, name: str, whole: Tensor) -> Tensor:
        """This rank's part of a whole tensor."""
        if name not in self.splits:
            return whole
        dimension = self.splits[name]
        parts = whole.chunk(self.axis.size, dimension)
        if self.axis.rank < len(parts):
            return parts[self.axis.rank]
        return whole.narrow(dimension, 0, 0)  # fewer rows than ranks

    def holds(self, name: str) -> bool:
        """Whether this rank's copy goes into the whole."""
        return self.replica == 0 and (name in self.splits or self.axis.rank == 0)


def gather_weights(module: nn.Module, layout: Layout) -> dict[str, Tensor] | None:
    """All parameters and buffers on rank 0, None on the others; every rank takes part."""
    mine = {name: _local(value) for name, value in module.state_dict().items()}
    return gather_tensors(mine, layout, {name: name for name in mine})


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], layout: Layout) -> None:
    """Take this rank's part of whole weights over."""
    for name, value in module.state_dict().items():
        mine, part = _local(value), layout.part(name, weights[name])
        if mine.shape != part.shape:
            raise ValueError(f"{name} is {tuple(part.shape)}, the model has {tuple(mine.shape)}")
        mine.copy_(part)


def gather_optimizer(
    optimizer: torch.optim.Optimizer, module: nn.Module, layout: Layout
) -> dict[str, Any] | None:
    """The optimizer's state by parameter name on rank 0, None on the others."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    mine: dict[str, Tensor] = {}
    owners: dict[str, str] = {}
    for parameter, state in optimizer.state.items():
        name = names[id(parameter)]
        for key, value in state.items():
            if value is not None:
                tensor = torch.as_tensor(value)
                mine[f"{name}/{key}"] = _local(tensor)
                # What has not the parameter's shape, such as a step count, is not split with it.
                owners[f"{name}/{key}"] = name if tensor.shape == parameter.shape else ""
    whole = gather_tensors(mine, layout, owners)
    return None if whole is None else {"state": whole, "groups": _options(optimizer)}


def load_optimizer(
    optimizer: torch.optim.Optimizer, module: nn.Module, whole: Mapping[str, Any], layout: Layout
) -> None:
    """Take this rank's part of a whole optimizer state over."""
    named = dict(module.named_parameters())
    optimizer.state.clear()
    for path, value in whole["state"].items():
        name, _, key = path.rpartition("/")
        if name in named:
            optimizer.state[named[name]][key] = _part_like(named[name], name, value, layout)
    for group, options in zip(optimizer.param_groups, whole["groups"], strict=True):
        group.update(options)


def gather_objects(mine: Any, *, size: int) -> list[Any] | None:
    """Every rank's object on rank 0, None on the others."""
    if size == 1:
        return [mine]
    everyone: list[Any] | None = [None] * size if dist.get_rank() == 0 else None
    dist.gather_object(mine, everyone, dst=0)
    return everyone


def gather_tensors(
    mine: Mapping[str, Tensor], layout: Layout, owners: Mapping[str, str]
) -> dict[str, Tensor] | None:
    """Copies of all ranks' parts, put together in the order of the ranks."""
    kept = {
        key: value.detach().to("cpu", copy=True)
        for key, value in mine.items()
        if layout.holds(owners[key])
    }
    dimensions = {key: layout.splits[owners[key]] for key in kept if owners[key] in layout.splits}
    if not layout.scattered:
        return kept if _is_first() else None
    everyone = gather_objects((kept, dimensions), size=dist.get_world_size())
    if everyone is None:
        return None
    parts: dict[str, list[Tensor]] = {}
    along: dict[str, int] = {}
    for tensors, split in everyone:
        along |= split
        for key, value in tensors.items():
            parts.setdefault(key, []).append(value)
    return {
        key: torch.cat(found, along[key]) if key in along else found[0]
        for key, found in parts.items()
    }


def _is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def _local(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _part_like(parameter: Tensor, name: str, whole: Tensor, layout: Layout) -> Tensor:
    """A part in the parameter's own layout; a step count stays where the optimizer keeps it."""
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
