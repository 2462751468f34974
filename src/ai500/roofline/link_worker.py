"""One rank of the measurement of links; rank 0 leaves the times as JSON.

`torchrun … -m ai500.roofline.link_worker OUT DEVICE SECONDS`. Ranks of a node reduce together
(inside_node), and ranks of the same place on all nodes do (between_nodes, side by side, as the
columns of a hierarchical all-reduce): so a node's links carry all that its ranks can send. From
point to point one pair of neighbours plays ping-pong and the others wait.
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

SIZES = tuple(1024 * 4**power for power in range(9))
"""1 KiB to 64 MiB."""
SAMPLES = 20
LEAST_SAMPLES = 3


class Ranks:
    """This rank's neighbours over each class of links."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rank, size = dist.get_rank(), dist.get_world_size()
        self.per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        self.nodes = size // self.per_node
        self.groups: dict[Scope, dist.ProcessGroup] = {}
        self._form("inside_node", [range(n * self.per_node, (n + 1) * self.per_node)
                                   for n in range(self.nodes)])  # fmt: skip
        self._form("between_nodes", [range(place, size, self.per_node)
                                     for place in range(self.per_node)])  # fmt: skip

    def _form(self, scope: Scope, lines: list[range]) -> None:
        """Every rank makes every group, in the same order."""
        if len(lines[0]) < 2:
            return
        for line in lines:
            group = dist.new_group(list(line))
            if self.rank in line:
                self.groups[scope] = group

    def partner(self, scope: Scope) -> int | None:
        """Of the one pair that plays ping-pong; None: this rank waits."""
        pair = (0, 1) if scope == "inside_node" else (0, self.per_node)
        return pair[1 - pair.index(self.rank)] if self.rank in pair else None


def main() -> int:
    """Measure every class of links that there is."""
    out, kind, seconds = sys.argv[1:]
    device = torch.device("cpu")
    if kind != "cpu":
        device = torch.device(kind, int(os.environ["LOCAL_RANK"]))
        torch.accelerator.set_device_index(device)
    backend = dist.get_default_backend_for_device(device) if kind != "cpu" else "gloo"
    dist.init_process_group(backend, timeout=datetime.timedelta(minutes=5))
    try:
        ranks = Ranks(device)
        each = float(seconds) / max(1, 2 * len(SIZES) * len(ranks.groups))
        times = [
            one
            for scope in ranks.groups
            for size in SIZES
            for one in (_all_reduce(ranks, scope, size, seconds=each),
                        _ping_pong(ranks, scope, size, seconds=each))
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
        dist.all_reduce(buffer, group=group)  # sums, as of gradients

    duration, samples = _timed(ranks, call, seconds=seconds)
    groups = 1 if scope == "inside_node" else ranks.per_node
    return LinkTime("all_reduce", scope, count, groups, size, duration, samples)


def _ping_pong(ranks: Ranks, scope: Scope, size: int, *, seconds: float) -> LinkTime:
    """Half of the way there and back."""
    buffer, partner = _random(size, ranks.device), ranks.partner(scope)

    def call() -> None:
        if partner is None:
            return
        steps = [dist.send, dist.recv] if ranks.rank < partner else [dist.recv, dist.send]
        for step in steps:
            step(buffer, partner)

    duration, samples = _timed(ranks, call, seconds=seconds)
    return LinkTime("point_to_point", scope, 2, 1, size, duration / 2, samples)


def _random(size: int, device: torch.device) -> Tensor:
    """Tiny, and positive: sums of sums of them stay finite."""
    return (0.5 + torch.rand(size // 4, device=device)) * 1e-30


def _timed(ranks: Ranks, call: Callable[[], None], *, seconds: float) -> tuple[float, int]:
    """The slowest rank's median time of a call; all ranks make as many calls."""
    call()
    once = _slowest(ranks, _samples(ranks, call, count=2)[-1])
    count = min(SAMPLES, max(LEAST_SAMPLES, int(seconds / max(once, 1e-7))))
    return _slowest(ranks, median(_samples(ranks, call, count=count))), count


def _samples(ranks: Ranks, call: Callable[[], None], *, count: int) -> list[float]:
    dist.barrier()
    found = []
    for _ in range(count):
        _finish(ranks.device)
        before = time.perf_counter()
        call()
        _finish(ranks.device)
        found.append(time.perf_counter() - before)
    return found


def _finish(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _slowest(ranks: Ranks, seconds: float) -> float:
    value = torch.tensor(seconds, dtype=torch.float64, device=ranks.device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value)


if __name__ == "__main__":
    sys.exit(main())
