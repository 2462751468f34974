"""The ranks of one member on three axes: data × pipeline × tensor.

Tensor-parallel ranks are neighbours (they communicate most, and neighbours share a node), then the
stages of a pipeline; rank = (data × pipeline degree + stage) × tensor degree + tensor rank.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ai500.core.errors import AI500Error
from ai500.parallel.topology import ranks_on_nodes
from ai500.records import Parallelism

AXES = ("data", "pipeline", "tensor")


@dataclass(slots=True)
class Exchanged:
    """Activations, and gradients with respect to them, that this rank has sent along an axis."""

    bytes: float = 0.0
    calls: int = 0

    def add(self, size: float) -> None:
        """Count one exchange of `size` bytes."""
        self.bytes += size
        self.calls += 1


@dataclass(frozen=True, slots=True)
class Axis:
    """This rank's position among the ranks that differ from it on one axis only."""

    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None
    """None: a member of one process."""
    exchanged: Exchanged = field(default_factory=Exchanged, compare=False)

    def global_rank(self, rank: int) -> int:
        """Return the member's rank at a position of the axis."""
        return 0 if self.group is None else dist.get_global_rank(self.group, rank)


@dataclass(frozen=True, slots=True)
class Mesh:
    """This rank's position on every axis."""

    rank: int
    size: int
    data: Axis
    pipeline: Axis
    tensor: Axis
    devices: DeviceMesh | None
    """Torch's device mesh; None for a member of one process."""

    @property
    def ranks_per_node(self) -> int | tuple[int, ...]:
        """Number of the member's ranks on each of its nodes; of a member that straddles nodes
        [D17] a number for each."""
        return ranks_on_nodes(os.environ) or int(os.environ.get("LOCAL_WORLD_SIZE", self.size))


def make_mesh(parallel: Parallelism, *, device: torch.device) -> Mesh:
    """Make the mesh of this process group; all ranks call this."""
    size = dist.get_world_size() if dist.is_initialized() else 1
    shape = (parallel.data_degree, parallel.pipeline_degree, parallel.tensor_degree)
    if size != parallel.degree:
        raise AI500Error(
            f"this member runs as {size} processes; its plan says data {shape[0]} × pipeline "
            f"{shape[1]} × tensor {shape[2]} = {parallel.degree}.",
            key="parallel.degree",
            value=size,
            remedy="Start it through `ai500 run`.",
        )
    if size == 1:
        return Mesh(rank=0, size=1, data=Axis(), pipeline=Axis(), tensor=Axis(), devices=None)
    devices = init_device_mesh(device.type, shape, mesh_dim_names=AXES)
    data, pipeline, tensor = (
        Axis(devices.get_local_rank(name), devices[name].size(), devices.get_group(name))
        for name in AXES
    )
    return Mesh(dist.get_rank(), size, data, pipeline, tensor, devices)
