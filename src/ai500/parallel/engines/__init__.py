"""Engines: how one member uses its accelerators. The training loop sees only this protocol.

Initial weights are the same in every mode: each rank builds the whole model from the seed, and its
engine keeps this rank's part. The state that an engine returns (weights, optimizer state) has the
names and shapes of the unsharded model, so a checkpoint does not depend on the mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ai500.parallel.checkpoint_action import CheckpointAction
from ai500.parallel.collectives import Collective
from ai500.parallel.engines.mesh import Mesh
from ai500.parallel.engines.state import Layout
from ai500.parallel.targets import Targets
from ai500.records import Parallelism, ParallelPlan
from ai500.workloads.protocol import Optimized

Loss = Callable[[Any, Targets], Tensor]
Forward = Callable[[nn.Module, Tensor, Targets], Any]
Optimize = Callable[..., Optimized | None]
"""A workload's offer of a faster form of its model: `Workload.optimized`."""


def without_targets(module: nn.Module, inputs: Tensor, targets: Targets) -> Any:
    """Run the training pass of a model that needs no targets for it."""
    return module(inputs)


class Numerics(Protocol):
    """The training precision, as far as an engine needs it."""

    @property
    def name(self) -> str:
        """Value of train.precision."""

    def forward(self) -> AbstractContextManager[None]:
        """Context of a forward pass."""

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss times the loss scale, for the backward pass."""


@dataclass(frozen=True)
class Setting:
    """Everything an engine is built from."""

    module: nn.Module
    """The whole model on this rank's device; the engine owns it."""
    loss: Loss
    parallel: Parallelism
    mesh: Mesh
    plan: ParallelPlan | None
    input_shape: tuple[int, ...]
    """Shape of one micro-step's inputs on one data-parallel rank, the batch first."""
    device: torch.device
    numerics: Numerics
    collective: Collective | None
    """None: one data-parallel rank, or an engine that averages by itself."""
    forward: Forward = without_targets
    """Training pass through the whole model, or through DDP around it."""
    optimized: Optimize | None = None
    """The workload's faster model, for a rank that holds the whole model; None: there is none."""
    accumulation: int = 1
    """Micro-steps whose gradients one optimizer step accumulates."""
    input_dtype: torch.dtype = torch.float32
    may_capture: bool = True
    """False where the caller captures the whole step, so that the engine must not capture."""


class Engine(Protocol):
    """One rank's part of a parallel model."""

    mesh: Mesh
    """Ranks of the member; ranks with the same `mesh.data.rank` get the same batches."""
    module: nn.Module
    """This rank's part of the model, under the names of the whole."""
    layout: Layout
    """Position of that part in the whole."""

    def forward_backward(self, inputs: Tensor, targets: Targets) -> Tensor:
        """Add the gradients of the whole batch to `.grad`, which the caller has cleared; return
        the mean loss of this rank's share."""

    def warm_up(self, inputs: Tensor, targets: Targets) -> None:
        """Run a step without learning, so that the first timed step is like the others."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that the optimizer updates on this rank."""

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Let an optimizer that uses norms of layers (LARS, LAMB) see unsharded norms."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Enter evaluation mode, with the running statistics of data-parallel rank 0."""

    def predict(self, inputs: Tensor) -> Any:
        """Return the model's outputs, on every rank; all ranks that share a model take part."""

    def agree(self, action: CheckpointAction) -> CheckpointAction:
        """Return rank 0's action on every rank that has to take part in it."""

    def unsharded(self) -> nn.Module:
        """Return the whole model without weights, for counting its operations."""

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's checkpoint state besides the weights; empty if there is none."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore that state."""

    def describe(self) -> dict[str, Any]:
        """Describe what runs, for the record."""
