"""What a workload is: problem classes [D4] and the few functions training and scoring need.

A workload file must import without torch (planning runs where torch is not installed), so it
imports torch inside the functions that use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ai500.data.store import ImageSource


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Layer 8 of the rules: everything a training step depends on besides the model and data."""

    epochs: int
    batch_size: int
    """Images per accelerator and step."""
    optimizer: str
    base_learning_rate: float
    """Learning rate at `reference_batch_size` images per step; scaled linearly with the batch."""
    reference_batch_size: int
    schedule: str
    warmup_epochs: float
    momentum: float
    weight_decay: float
    label_smoothing: float = 0.0
    precision: str = "fp32"
    evaluate_every_epochs: int = 1
    decay_epochs: tuple[int, ...] = ()
    """Epochs at which the `step` schedule divides the learning rate by ten."""


@dataclass(frozen=True, slots=True)
class ProblemClass:
    """Fixed data, model, epochs and target, so that two scores of one class compare [D4]."""

    name: str
    ensemble_size: int
    """The least M of the class [D13]."""
    target_quality: float
    penalty_exponent: int
    """n of Eq. 8."""
    least_runs: int
    input_shape: tuple[int, int, int]
    """Channels, height and width the model sees."""
    stored_shape: tuple[int, int, int]
    """Height, width and channels of an image in the store."""
    classes: int
    train_samples: int
    validation_samples: int
    out_of_bag_samples: int
    """At most so many training samples are judged out of bag, evenly spaced over the set."""
    reference: Hyperparameters
    global_batch_size: int | None = None
    """Images of a step over all accelerators, where the class fixes them so that its quality does
    not depend on P_degree; None: `reference.batch_size` on each accelerator, as in the papers."""
    store_sha256: str | None = None
    """Identity of the store the class is defined on; None where the user's own files define it."""
    seconds_per_image: float | None = None
    """A measured guess for `ai500 plan` on one slot of `measured_on`; None: not measured."""
    measured_on: str | None = None

    def reference_at(self, parallel_degree: int) -> Hyperparameters:
        """The reference hyper-parameters of a member on so many accelerators."""
        if self.global_batch_size is None:
            return self.reference
        batch_size = max(1, self.global_batch_size // parallel_degree)
        return dataclasses.replace(self.reference, batch_size=batch_size)


class Workload(Protocol):
    """One AI task that can be bagged: how to build, feed, judge and combine its models."""

    name: str
    quality_name: str
    quality_direction: Literal["higher", "lower"]
    loss_operator: str | None
    """What follows the model's outputs and is counted with it, such as `softmax`; None: nothing."""
    problem_classes: Mapping[str, ProblemClass]
    draws_per_image: int
    """Uniform random numbers that augmentation takes per image."""

    def source(self, problem_class: ProblemClass) -> ImageSource | None:
        """The generator of the class's data; None where the user has to bring the data."""

    def model(self, problem_class: ProblemClass) -> nn.Module:
        """A fresh model; its weights come from torch's generator, seeded by the caller."""

    def train_inputs(self, problem_class: ProblemClass, images: Tensor, draws: Tensor) -> Tensor:
        """Stored images (uint8, N×H×W×C) to the model's inputs, augmented by `draws`."""

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

    def quality(self, predictions: NDArray[np.floating], labels: NDArray[np.int64]) -> float:
        """The quality Eq. 8 compares with the target."""
