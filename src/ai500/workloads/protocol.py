"""The `Workload` protocol: the public plugin point for an AI task that can be bagged.

A workload is an object under the entry-point group `ai500.workload`; `docs/adding-a-workload.md`
explains one line by line. Its file must import without torch, because planning runs where torch is
not installed: import torch inside the functions that use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.core import plugins
from ai500.core.errors import AI500Error
from ai500.records import Hyperparameters, ParallelPlan, ProblemClass
from ai500.workloads.member_predictions import MemberPredictions

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ai500.data.store import DataSource, Samples, Store
    from ai500.records.illustrations import Drawn


@dataclass(frozen=True)
class Optimized:
    """A faster form of a model: the same parameters and buffers under the same names."""

    model: nn.Module
    kernels: str
    """Kernels that it runs on, and the errors of those that failed here; for the record."""


class Workload(Protocol):
    """An AI task that can be bagged: problem classes [D4], data, model, loss, quality, ensemble.

    An outside workload may omit `quality_range`, `capturable`, `data_workload`, `sample_noun`,
    `optimized` and `adapt`.
    """

    name: str
    """Name in configurations: `workload = "…"`."""
    quality_name: str
    """Name of the quality metric in reports."""
    quality_direction: Literal["higher", "lower"]
    """The better direction of the quality metric."""
    quality_range: tuple[float, float] | None
    """Bounds of the quality metric, which the rules enforce; None: unbounded."""
    loss_operator: str | None
    """Operator after the model's outputs that is counted with it, such as `softmax`."""
    problem_classes: Mapping[str, ProblemClass]
    """Problem classes by name."""
    draws_per_sample: int
    """Number of uniform random numbers that augmentation takes per sample."""
    capturable: bool
    """True where a training step, `train_inputs` included, can be captured in a CUDA graph: it has
    fixed shapes, never synchronizes with the device and does not use torch's generators."""
    data_workload: str
    """Name of the workload whose generated data it shares; omitted: it has its own."""
    sample_noun: str
    """Word for a sample in messages and reports, such as `image`; omitted: `sample`."""

    def data_source(self, problem_class: ProblemClass) -> DataSource | None:
        """Return the generator of the class's data; None where users bring their own."""

    def adapt(self, problem_class: ProblemClass, *, store: Store) -> ProblemClass:
        """Return the class with the fields and classes of a user's store, where the model can
        train on them; raise `DataError` where it can't. Omitted: the fields must be the class's."""

    def model(self, problem_class: ProblemClass) -> nn.Module:
        """Build a model; its weights come from torch's generator, seeded by the caller."""

    def optimized(
        self, model: nn.Module, *, precision: str, device: torch.device
    ) -> Optimized | None:
        """Return a faster form of `model` for a rank that holds all of it, converted in place or
        anew; None, or left out by an outside workload: there is none."""

    def parallel_plan(self, problem_class: ProblemClass) -> ParallelPlan | None:
        """Return how the class's model can be divided; None: data parallelism only."""

    def train_inputs(
        self, problem_class: ProblemClass, fields: Mapping[str, Tensor], draws: Tensor
    ) -> tuple[Tensor, Any]:
        """Convert stored samples, by field, to the model's inputs and the loss's targets.

        `draws` [samples, draws_per_sample] are the random numbers of the augmentation. Targets are
        a tensor, or tensors in tuples and dicts, a row per sample. A ragged field NAME comes as its
        samples one after another, and `NAME.offsets`.
        """

    def forward(self, model: nn.Module, inputs: Tensor, targets: Any) -> Any:
        """Run a training forward pass and return what `loss` takes."""

    def evaluation_inputs(
        self, problem_class: ProblemClass, fields: Mapping[str, Tensor]
    ) -> Tensor:
        """Convert stored samples to the model's inputs, without augmentation."""

    def loss(self, outputs: Any, targets: Any, *, hyperparameters: Hyperparameters) -> Tensor:
        """Compute the training loss of one batch."""

    def predictions(self, outputs: Any, fields: Mapping[str, Tensor]) -> Tensor:
        """Convert the model's outputs on these samples to the predictions that are saved, one row
        per sample, in the type in which they are saved."""

    def prediction_bytes(self, problem_class: ProblemClass) -> int:
        """Return the bytes of one sample's saved predictions, for planning. Omitted: FP32, one for
        each class, or for each value of the target."""

    def combine(self, members: MemberPredictions) -> NDArray[Any]:
        """Aggregate members' predictions into the ensemble's, as a running reduction.

        Read `members` block by block, so that memory does not grow with the ensemble;
        `ai500.api.average` is the mean.
        """

    def quality(
        self, predictions: NDArray[np.floating], targets: Mapping[str, NDArray[Any]]
    ) -> float:
        """Compute the quality that Eq. 8 compares with the class's target; `targets` has the
        samples' target fields by name."""

    def illustrations(
        self,
        predictions: Mapping[int, NDArray[np.floating]],
        *,
        ensemble: NDArray[np.floating],
        samples: Samples,
    ) -> Drawn | None:
        """Draw the members' and the ensemble's validation predictions for the report; None: no
        pictures. A member's predictions are mapped from its file when they are looked up."""


def class_workload(name: str, definition: ProblemClass) -> Workload:
    """Load the workload of a class; a class of the user's own may name its quality."""
    workload = load_workload(name)
    for_class = getattr(workload, "for_class", None)
    return workload if for_class is None else for_class(definition)


def load_workload(name: str) -> Workload:
    """Load the workload of that name, built in or from another package."""
    loaded: Workload = plugins.load("workload", name)
    return loaded


def sample_noun(name: str) -> str:
    """Return the word for a sample of the workload of that name; `sample` if it has none or can't
    be loaded, as where the report of another machine's run is written."""
    try:
        return str(getattr(load_workload(name), "sample_noun", "sample"))
    except AI500Error:
        return "sample"
