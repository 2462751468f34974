"""A collective: all gradients through one rank, as with a parameter server."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor

from ai500.api import Collective, ConfigError, Ranks, Traffic


class ThroughOne:
    """Mean of a flat buffer over a group, in place: reduce to the first rank, broadcast back."""

    def __init__(self, ranks: Ranks, *, traffic: Traffic) -> None:
        self._ranks, self._traffic = ranks, traffic
        self.lost: dict[str, Tensor] = {}  # fp32 rounds nothing: no error feedback

    def __call__(self, flat: Tensor, *, key: str) -> None:
        members, group = self._ranks.ranks, self._ranks.group
        flat.mul_(1 / len(members))
        dist.reduce(flat, dst=members[0], group=group)
        dist.broadcast(flat, src=members[0], group=group)
        first = self._ranks.position == 0
        for receiver in range(1, len(members)) if first else (0,):
            self._ranks.count(self._traffic, to=receiver, sent=flat.nbytes)

    def describe(self) -> dict[str, Any]:
        return {"bytes": "analytical"}


def through_one(precision: str, *, group: dist.ProcessGroup | None, local_size: int) -> Collective:
    """Make the collective of `communication.mode = "through_one"`."""
    if precision != "fp32":
        raise ConfigError(
            "communication.mode = 'through_one' sends fp32 only.", key="communication.precision"
        )
    ranks, traffic = Ranks(group, local_size=local_size), Traffic()
    return Collective(
        ThroughOne(ranks, traffic=traffic),
        traffic=traffic,
        size=len(ranks.ranks),
        description={
            "mode": "through_one", "precision": precision, "nodes": len(set(ranks.nodes)),
        },
        synchronous=True,  # no rank goes on before it has the mean of all (V2 §5.1.6)
    )  # fmt: skip
