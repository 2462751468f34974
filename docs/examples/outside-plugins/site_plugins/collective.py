"""A collective: all gradients through one rank, as parameter servers did."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor

from ai500.api import Collective, ConfigError, Ranks, Traffic


class ThroughOne:
    """The mean of a flat buffer over a group, in place: to the first rank, and back."""

    def __init__(self, ranks: Ranks, *, traffic: Traffic) -> None:
        self._ranks, self._traffic = ranks, traffic
        self.lost: dict[str, Tensor] = {}  # of error feedback, which there is none of

    def __call__(self, flat: Tensor, *, key: str) -> None:
        members, group = self._ranks.ranks, self._ranks.group
        flat.mul_(1 / len(members))
        dist.reduce(flat, dst=members[0], group=group)
        dist.broadcast(flat, src=members[0], group=group)
        first = self._ranks.position == 0
        for other in range(1, len(members)) if first else (0,):
            self._ranks.count(self._traffic, to=other, sent=flat.nbytes)

    def describe(self) -> dict[str, Any]:
        return {"bytes": "analytical"}


def through_one(precision: str, *, group: dist.ProcessGroup | None, local_size: int) -> Collective:
    """`communication.mode = "through_one"`."""
    if precision != "fp32":
        raise ConfigError("communication.mode = 'through_one' sends fp32 alone.")
    ranks, traffic = Ranks(group, local_size=local_size), Traffic()
    what = {"mode": "through_one", "precision": precision, "nodes": len(set(ranks.nodes))}
    reduction = ThroughOne(ranks, traffic=traffic)
    return Collective(reduction, traffic=traffic, size=len(ranks.ranks), what=what)
