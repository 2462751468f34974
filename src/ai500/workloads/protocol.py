"""What a workload is: problem classes [D4] and the few functions training and scoring need.

A workload file must import without torch (planning runs where torch is not installed), so it
imports torch inside the functions that use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.automl.settings import Search

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ai500.data.climate.recipe import ClimateRecipe
    from ai500.data.store import ImageSource, Samples
    from ai500.illustrations import Drawn


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
    decay_power: float = 2.0
    """Of the `polynomial` schedule; 2 is LARS's own (You et al. 2017). Of `inverse_time`: the
    decay of a step; 0.1/60 is AIPerf's."""
    accumulation: int = 1
    """Micro-steps of `batch_size` whose gradients one optimizer step takes together."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's and LAMB's decay of the first and the second moment."""
    epsilon: float | None = None
    """Adam's, AdaGrad's and LAMB's; None: 1e-8, 1e-10 and 1e-6, as torch and the paper have."""
    trust_coefficient: float = 0.001
    """LARS's η."""

    @property
    def images_per_step(self) -> int:
        """Images of one accelerator between two optimizer steps."""
        return self.batch_size * self.accumulation


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
    input_shape: tuple[int, ...]
    """Of one sample as the model sees it: an image's channels, height and width."""
    stored_shape: tuple[int, int, int]
    """Height, width and channels of an image in the store."""
    stored_value_bytes: int = field(default=1, kw_only=True)
    """1: uint8, as every store of generated or packed images; 4: float32, climate's frames."""
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
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and deviation of each channel over the training samples, where the data tells them;
    None: fixed by the workload, or not known before the user's data is."""
    seconds_per_image: float | None = None
    """A measured guess for `ai500 plan` on one slot of `measured_on`; None: not measured."""
    measured_on: str | None = None
    search: Search | None = None
    """Each member searches architectures in place of training the class's model (AIPerf)."""

    def reference_at(self, parallel_degree: int) -> Hyperparameters:
        """The reference hyper-parameters of a member on so many accelerators."""
        if self.global_batch_size is None:
            return self.reference
        batch_size = max(1, self.global_batch_size // parallel_degree)
        return dataclasses.replace(self.reference, batch_size=batch_size)


SplitKind = Literal["columns", "columns_gathered", "rows", "rows_of_whole", "channels"]


@dataclass(frozen=True, slots=True)
class Split:
    """How tensor parallelism divides the convolutions, linear layers or batch norms of a pattern.

    - `columns`: output channels divided; whole input, the output stays divided
    - `columns_gathered`: the same, and the output is put together
    - `rows`: input channels divided; takes the output of `columns`, the sum over ranks is whole
    - `rows_of_whole`: the same for a whole input
    - `channels`: a batch norm after `columns`
    """

    layers: str
    """Name of a module inside the model; `*` stands for any one part between dots."""
    kind: SplitKind
    channels: int
    """How many are divided: known without torch, checked against the model on the node."""

    def matches(self, name: str) -> bool:
        """Whether the pattern means the module of that name."""
        ours, theirs = self.layers.split("."), name.split(".")
        return len(ours) == len(theirs) and all(
            one in ("*", other) for one, other in zip(ours, theirs, strict=True)
        )


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """What of a model can be divided among accelerators: all that an engine knows of it."""

    splits: tuple[Split, ...]
    """For tensor parallelism; layers that no split names are computed by every rank."""
    stages: tuple[tuple[str, ...], ...]
    """For pipelines: modules whose outputs are the next one's inputs, from the model's input to
    its output, or what the model's own `through` and `ended` make of them
    (`parallel/engines/pipeline.py`). Those in one tuple stay together; between two tuples a stage
    may end. Empty: the model is no such row."""
    units: tuple[str, ...] = ()
    """Modules that sharding gathers one at a time, where no `stages` say it."""

    def split_of(self, name: str) -> Split | None:
        """The first split that means the module of that name."""
        return next((split for split in self.splits if split.matches(name)), None)


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
    recordable: bool
    """A training step, `train_inputs` included, has fixed shapes, never waits for the device and
    draws nothing from torch's generators; left out by an outside workload: it does not."""
    data_of: str
    """The workload whose generated data it shares; left out: it has its own."""

    def source(self, problem_class: ProblemClass) -> ImageSource | ClimateRecipe | None:
        """The generator of the class's data; None where the user has to bring the data."""

    def model(self, problem_class: ProblemClass) -> nn.Module:
        """A fresh model; its weights come from torch's generator, seeded by the caller."""

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
