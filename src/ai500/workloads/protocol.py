"""What a workload is: problem classes [D4] and the few functions training and scoring need.

A workload file must import without torch (planning runs where torch is not installed), so it
imports torch inside the functions that use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.core import plugins
from ai500.records import Hyperparameters, ParallelPlan, ProblemClass

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ai500.data.store import DataSource, Samples
    from ai500.records.illustrations import Drawn


@dataclass(frozen=True)
class Optimized:
    """A faster form of a model: the same parameters and buffers under the same names."""

    model: nn.Module
    kernels: str
    """Kernels that it runs on, and the errors of those that failed here; for the record."""


class Workload(Protocol):
    """One AI task that can be bagged: how to build, feed, judge and combine its models."""

    name: str
    quality_name: str
    quality_direction: Literal["higher", "lower"]
    quality_range: tuple[float, float] | None
    """Least and most it can be, and nothing else is believed; None, or left out by an outside
    workload: not bounded."""
    loss_operator: str | None
    """What follows the model's outputs and is counted with it, such as `softmax`; None: nothing."""
    problem_classes: Mapping[str, ProblemClass]
    draws_per_image: int
    """Uniform random numbers that augmentation takes per image."""
    capturable: bool
    """A training step, `train_inputs` included, has fixed shapes, never waits for the device and
    draws nothing from torch's generators; left out by an outside workload: it does not."""
    data_of: str
    """The workload whose generated data it shares; left out: it has its own."""

    def source(self, problem_class: ProblemClass) -> DataSource | None:
        """The generator of the class's data; None where the user has to bring the data."""

    def model(self, problem_class: ProblemClass) -> nn.Module:
        """A fresh model; its weights come from torch's generator, seeded by the caller."""

    def optimized(
        self, model: nn.Module, *, precision: str, device: torch.device
    ) -> Optimized | None:
        """Return a faster form of `model` for a rank that holds all of it, converted in place or
        anew; None, or left out by an outside workload: there is none."""

    def parallel_plan(self, problem_class: ProblemClass) -> ParallelPlan | None:
        """How the class's model can be divided; None: it can't, only data parallelism is left."""

    def train_inputs(
        self, problem_class: ProblemClass, images: Tensor, labels: Tensor, draws: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Stored images and labels to the model's inputs and the loss's labels; `draws` augment
        them."""

    def forward(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> Any:
        """A training pass: what `loss` takes. Most models don't look at the labels."""

    def evaluation_inputs(self, problem_class: ProblemClass, images: Tensor) -> Tensor:
        """Stored images to the model's inputs, without augmentation."""

    def loss(self, outputs: Any, labels: Tensor, *, hyperparameters: Hyperparameters) -> Tensor:
        """The training loss of one batch."""

    def predictions(self, outputs: Any) -> Tensor:
        """What is kept of the model's outputs, one row a sample."""

    def combine(
        self, members: NDArray[np.floating], *, voters: NDArray[np.bool_]
    ) -> NDArray[np.floating]:
        """Members' predictions [M, samples, …] to the ensemble's, where `voters` [M, samples]."""

    def quality(self, predictions: NDArray[np.floating], labels: NDArray[Any]) -> float:
        """The quality Eq. 8 compares with the target."""

    def illustrations(
        self, predictions: Mapping[int, NDArray[np.floating]], *, samples: Samples
    ) -> Drawn | None:
        """What the report shows of members' validation predictions; None: nothing."""


def load_workload(name: str) -> Workload:
    """Load the workload of that name, built in or from another package."""
    loaded: Workload = plugins.load("workload", name)
    return loaded
