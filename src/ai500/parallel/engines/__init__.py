"""Engines: how one member uses its accelerators. The training loop sees only this protocol.

Initial weights are the same in every mode: each rank builds the whole model from the seed, and its
engine keeps the part that is this rank's. What an engine gives out again (weights, optimizer
state) has the names and shapes of the whole model, so a checkpoint does not depend on the mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ai500.parallel.engines.mesh import Mesh
from ai500.parallel.engines.state import Layout
from ai500.records import Parallelism, ParallelPlan

Loss = Callable[[Any, Tensor], Tensor]
Forward = Callable[[nn.Module, Tensor, Tensor], Any]


def without_labels(module: nn.Module, inputs: Tensor, labels: Tensor) -> Any:
    """The training pass of a model that needs no labels for it."""
    return module(inputs)


class CheckpointAction(IntEnum):
    """What rank 0 wants after a step."""

    CONTINUE = 0
    SAVE = 1
    STOP = 2


class Numerics(Protocol):
    """What an engine needs to know of the training precision."""

    @property
    def name(self) -> str:
        """As in train.precision."""

    def forward(self) -> AbstractContextManager[None]:
        """Around a forward pass."""

    def scale(self, loss: Tensor) -> Tensor:
        """The loss as its backward pass wants it."""


class Collective(Protocol):
    """How gradients are averaged over data-parallel ranks."""

    @property
    def keeps_memory(self) -> bool:
        """Whether it keeps something from step to step."""

    def all_reduce_mean(self, flat: Tensor, *, key: str) -> Tensor:
        """The mean over the ranks, on every rank; `key` names the buffer from step to step."""

    @property
    def ddp_hook(self) -> Callable[..., Any]:
        """The same as a communication hook of DDP."""

    def state_dict(self) -> dict[str, Any]:
        """This rank's own memory, such as the errors that int8 feeds back; empty: none."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from that memory."""

    def reset(self) -> None:
        """As new: nothing remembered, nothing counted."""

    def describe(self) -> dict[str, Any]:
        """What is sent, for the record."""


@dataclass(frozen=True)
class Setting:
    """What an engine is made of."""

    module: nn.Module
    """The whole model on this rank's device; the engine takes it over."""
    loss: Loss
    parallel: Parallelism
    mesh: Mesh
    plan: ParallelPlan | None
    input_shape: tuple[int, ...]
    """Of one micro-step on one data-parallel rank, the batch first."""
    device: torch.device
    numerics: Numerics
    collective: Collective | None
    """None: one data-parallel rank, or an engine that averages by itself."""
    forward: Forward = without_labels
    """A training pass through the whole model, or through DDP around it."""
    accumulation: int = 1
    """Micro-steps whose gradients one optimizer step takes together."""
    may_capture: bool = True
    """Whether the engine may record its part of a step; somebody else may want the whole step."""


class Engine(Protocol):
    """One rank's part of a parallel model."""

    mesh: Mesh
    """`mesh.data` says which share of a batch this rank is fed: ranks that share a model share it
    too."""
    module: nn.Module
    """What this rank holds of the model, under the names of the whole."""
    layout: Layout
    """Which part of the whole that is."""

    def forward_backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of this rank's share of the batch; gradients of the whole batch are added to
        `.grad`, which the caller has cleared."""

    def warm_up(self, inputs: Tensor, labels: Tensor) -> None:
        """Whatever the engine only fixes in its first step, fixed before; nothing is learnt."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """What the optimizer updates on this rank."""

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Let an optimizer that looks at whole layers (LARS, LAMB) see them whole."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Evaluation mode, with the running statistics of the first data-parallel rank."""

    def predict(self, inputs: Tensor) -> Any:
        """The whole model's outputs; every rank that shares a model takes part, each gets them."""

    def agree(self, action: CheckpointAction) -> CheckpointAction:
        """Rank 0's wish, on every rank that has to take part in fulfilling it."""

    def unsharded(self) -> nn.Module:
        """The whole model without its weights, for counting its operations."""

    def state_dict(self) -> dict[str, Any]:
        """What is this rank's own besides the weights, and goes into a checkpoint; empty: none."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from that memory."""

    def describe(self) -> dict[str, Any]:
        """What really runs, for the record."""
