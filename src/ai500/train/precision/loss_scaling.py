"""Dynamic loss scaling: keeps small FP16 gradients from underflow; skips steps that overflow.

Micikevicius et al. 2018, with the constants of torch.amp.GradScaler (a test compares the two).
Not GradScaler itself, because a shard of a parallel model sees only its own gradients: the member's
ranks agree on whether a step overflowed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

GROWTH = 2.0
BACKOFF = 0.5
GROWTH_INTERVAL = 2000
"""Number of steps without overflow after which the scale is doubled."""


@dataclass
class LossScaling:
    """Scale and its history, saved in checkpoints."""

    scale: float = 65536.0
    steps_since_change: int = 0
    skipped_steps: int = 0
    largest: float = math.inf
    """Upper bound of the scale."""
    _factor: Tensor | None = field(default=None, repr=False, compare=False)

    def factor(self, device: torch.device) -> Tensor:
        """Return the scale in fixed device memory, where a captured step reads it."""
        if self._factor is None:
            self._factor = torch.tensor(self.scale, device=device)
        return self._factor

    def unscale(self, gradients: Sequence[Tensor]) -> bool:
        """Divide gradients in place; return False if they overflowed on any rank."""
        local = [
            gradient.to_local() if isinstance(gradient, DTensor) else gradient
            for gradient in gradients
        ]
        local = [part for part in local if part.numel()]  # a shard of few rows may be empty
        if not local:
            return _all_finite(torch.zeros(()))
        torch._foreach_mul_(local, 1.0 / self.scale)
        largest = torch.stack([norm.float() for norm in torch._foreach_norm(local, float("inf"))])
        return _all_finite((~torch.isfinite(largest)).any().float())

    def update(self, *, finite: bool) -> None:
        """Halve the scale after an overflow; double it after GROWTH_INTERVAL steps without."""
        if not finite:
            self._set(self.scale * BACKOFF)
            self.steps_since_change = 0
            self.skipped_steps += 1
            return
        self.steps_since_change += 1
        if self.steps_since_change == GROWTH_INTERVAL:
            self._set(min(self.scale * GROWTH, self.largest))
            self.steps_since_change = 0

    def state_dict(self) -> dict[str, float]:
        """Return scale and counters as plain numbers."""
        names = ("scale", "steps_since_change", "skipped_steps")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore scale and counters."""
        self._set(float(state["scale"]))
        self.steps_since_change = int(state["steps_since_change"])
        self.skipped_steps = int(state["skipped_steps"])

    def _set(self, scale: float) -> None:
        self.scale = scale
        if self._factor is not None:
            self._factor.fill_(scale)


def _all_finite(overflow: Tensor) -> bool:
    """Return whether no rank of the member overflowed."""
    overflow = overflow.cpu()  # also from a rank without gradients, which has no other device
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return not bool(overflow)
