"""One rank of the measurement of links; rank 0 writes the times as JSON.

`torchrun … -m ai500.roofline.link_worker OUT DEVICE SECONDS`. All-reduces run among the ranks of a
node (inside_node), and among ranks of equal local rank on all nodes (between_nodes, concurrently,
like the columns of a hierarchical all-reduce), so that a node's links carry all that its ranks can
send. Point to point, one pair of neighbours plays ping-pong while the other ranks wait.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

from ai500.core import atomic, schema
from ai500.roofline.records import LinkTime, Scope

# 1 KiB to 64 MiB.
SIZES = tuple(1024 * 4**power for power in range(9))
SAMPLES = 20
MIN_SAMPLES = 3


class Ranks:
    """Process groups and partners of this rank over each class of links."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rank, size = dist.get_rank(), dist.get_world_size()
        self.per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        self.nodes = size // self.per_node
        self.groups: dict[Scope, dist.ProcessGroup] = {}
        self._form("inside_node", [range(n * self.per_node, (n + 1) * self.per_node)
                                   for n in range(self.nodes)])  # fmt: skip
        self._form("between_nodes", [range(local_rank, size, self.per_node)
                                     for local_rank in range(self.per_node)])  # fmt: skip

    def _form(self, scope: Scope, groups: list[range]) -> None:
        """Create the groups of one class of links.

        Every rank creates every group, in the same order.
        """
        if len(groups[0]) < 2:
            return
        for members in groups:
            group = dist.new_group(list(members))
            if self.rank in members:
                self.groups[scope] = group

    def partner(self, scope: Scope) -> int | None:
        """Return the other rank of the ping-pong pair; None: this rank waits."""
        pair = (0, 1) if scope == "inside_node" else (0, self.per_node)
        return pair[1 - pair.index(self.rank)] if self.rank in pair else None


def main() -> int:
    """Measure every class of links of this job."""
    out, device_type, seconds = sys.argv[1:]
    device = torch.device("cpu")
    if device_type != "cpu":
        device = torch.device(device_type, int(os.environ["LOCAL_RANK"]))
        torch.accelerator.set_device_index(device)
    backend = dist.get_default_backend_for_device(device) if device_type != "cpu" else "gloo"
    dist.init_process_group(backend, timeout=datetime.timedelta(minutes=5))
    try:
        ranks = Ranks(device)
        seconds_each = float(seconds) / max(1, 2 * len(SIZES) * len(ranks.groups))
        times = [
            link_time
            for scope in ranks.groups
            for size in SIZES
            for link_time in (_all_reduce(ranks, scope, size, seconds=seconds_each),
                        _ping_pong(ranks, scope, size, seconds=seconds_each))
        ]  # fmt: skip
        if ranks.rank == 0:
            atomic.write_json(Path(out), schema.encode(times))
        dist.barrier()
    finally:
        dist.destroy_process_group()
    return 0


def _all_reduce(ranks: Ranks, scope: Scope, size: int, *, seconds: float) -> LinkTime:
    buffer, group = _random(size, ranks.device), ranks.groups[scope]
    count = dist.get_world_size(group)

    def call() -> None:
        dist.all_reduce(buffer, group=group)  # a sum, as for gradients

    duration, samples = _time_call(ranks, call, seconds=seconds)
    groups = 1 if scope == "inside_node" else ranks.per_node
    return LinkTime("all_reduce", scope, count, groups, size, duration, samples)


def _ping_pong(ranks: Ranks, scope: Scope, size: int, *, seconds: float) -> LinkTime:
    """Time half a round trip."""
    buffer, partner = _random(size, ranks.device), ranks.partner(scope)

    def call() -> None:
        if partner is None:
            return
        steps = [dist.send, dist.recv] if ranks.rank < partner else [dist.recv, dist.send]
        for step in steps:
            step(buffer, partner)

    duration, samples = _time_call(ranks, call, seconds=seconds)
    return LinkTime("point_to_point", scope, 2, 1, size, duration / 2, samples)


def _random(size: int, device: torch.device) -> Tensor:
    """Return small positive values, whose repeated sums stay finite."""
    return (0.5 + torch.rand(size // 4, device=device)) * 1e-30


def _time_call(ranks: Ranks, call: Callable[[], None], *, seconds: float) -> tuple[float, int]:
    """Return the slowest rank's median time of a call; all ranks make the same number of calls."""
    call()
    once = _slowest(ranks, _samples(ranks, call, count=2)[-1])
    count = min(SAMPLES, max(MIN_SAMPLES, int(seconds / max(once, 1e-7))))
    return _slowest(ranks, median(_samples(ranks, call, count=count))), count


def _samples(ranks: Ranks, call: Callable[[], None], *, count: int) -> list[float]:
    dist.barrier()
    durations = []
    for _ in range(count):
        _synchronize(ranks.device)
        before = time.perf_counter()
        call()
        _synchronize(ranks.device)
        durations.append(time.perf_counter() - before)
    return durations


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _slowest(ranks: Ranks, seconds: float) -> float:
    value = torch.tensor(seconds, dtype=torch.float64, device=ranks.device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value)


if __name__ == "__main__":
    sys.exit(main())
