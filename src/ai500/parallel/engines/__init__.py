"""Engines: how one member uses its accelerators. The training loop sees only this protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch import Tensor, nn

Loss = Callable[[Any, Tensor], Tensor]


class Engine(Protocol):
    """One rank's part of a parallel model."""

    module: nn.Module
    """The model itself, for evaluation and checkpoints."""

    def forward_backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Loss of this rank's share of the batch; gradients of the whole batch are in place."""

    def settle(self, inputs: Tensor, labels: Tensor) -> None:
        """Whatever the engine only fixes in its first step, fixed before; nothing is learnt."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """What the optimizer updates on this rank."""
