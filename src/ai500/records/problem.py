"""Problem classes [D4], hyper-parameters, and the parallel plan of a model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from ai500.records.fields import Field
from ai500.records.search import Search


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Layer 8 of the rules: all that a training step depends on besides model and data."""

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
    """Exponent of the `polynomial` schedule (2 in LARS, You et al. 2017); decay per step of
    `inverse_time` (0.1/60 in AIPerf)."""
    accumulation: int = 1
    """Micro-steps of `batch_size` images whose gradients one optimizer step accumulates."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the first and second moment in Adam and LAMB."""
    epsilon: float | None = None
    """Epsilon of Adam, AdaGrad and LAMB; None: 1e-8, 1e-10 and 1e-6, as in torch and the paper."""
    trust_coefficient: float = 0.001
    """η of LARS."""

    @property
    def samples_per_step(self) -> int:
        """Images per accelerator and optimizer step."""
        return self.batch_size * self.accumulation


@dataclass(frozen=True, slots=True)
class CustomClass:
    """Origin of a class that a configuration defines: comparable with no registered class."""

    base: str | None
    """Registered class that it changes; None: it is defined by the configuration alone."""
    quality_name: str | None = None
    """Name of the quality; None: the workload's."""
    quality_direction: Literal["higher", "lower"] = "higher"
    validation_targets: str | None = None
    """File with the targets of the validation samples; None: the store has them."""


@dataclass(frozen=True, slots=True)
class ProblemClass:
    """Fixed data, model, epochs and target, which make scores of one class comparable [D4]."""

    name: str
    """Name of the class; one of the user's own has that of the registered class that it changes."""
    ensemble_size: int
    """Minimum M of the class [D13]."""
    target_quality: float
    penalty_exponent: int
    """Exponent n of V3 Eq. 8."""
    required_runs: int
    """Least number of trials of a valid result: at least so many [D3]."""
    input_shape: tuple[int, ...]
    """Shape of one input of the model: channels, height and width of an image."""
    input_dtype: str = field(default="float32", kw_only=True)
    """Type of the model's inputs: `int64` for tokens."""
    fields: tuple[Field, ...]
    """Fields of a sample in the store, inputs and targets."""
    classes: int
    """Number of classes of the targets; 0: they have none."""
    train_samples: int
    validation_samples: int
    out_of_bag_samples: int
    """Maximum number of training samples for the out-of-bag quality, evenly spaced over the set."""
    reference: Hyperparameters
    global_batch_size: int | None = None
    """Images per step over all accelerators, where the class fixes it to make its quality
    independent of P_degree; None: `reference.batch_size` per accelerator, as in the papers."""
    provisional_target: bool = False
    """True until reference ensembles have been measured: a result is shown, but never valid."""
    store_sha256: str | None = None
    """Digest of the store that the class is defined on; None: the user's files define it."""
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and standard deviation of each channel over the training samples; None: fixed by the
    workload, or unknown until the user's data is read."""
    seconds_per_sample: float | None = None
    """Seconds per image on one slot of `measured_on`, for estimates; None: not measured."""
    measured_on: str | None = None
    search: Search | None = None
    """Architecture search of each member (AIPerf); None: members train the class's model."""
    custom: CustomClass | None = None
    """Origin of a class of the user's own; None: the class is registered."""

    @property
    def search_settings(self) -> Search:
        """Settings of the search of a class that has one; programs ask this of no other class."""
        assert self.search is not None, f"class {self.name} trains a fixed model"
        return self.search

    def reference_at(self, parallel_degree: int) -> Hyperparameters:
        """Return the reference hyper-parameters of a member on `parallel_degree` accelerators."""
        if self.global_batch_size is None:
            return self.reference
        batch_size = max(1, self.global_batch_size // parallel_degree)
        return dataclasses.replace(self.reference, batch_size=batch_size)


SplitKind = Literal["columns", "columns_gathered", "rows", "rows_of_whole", "channels"]


@dataclass(frozen=True, slots=True)
class Split:
    """Tensor-parallel sharding of the convolutions, linear layers or batch norms of a pattern.

    - `columns`: output channels sharded; unsharded input, sharded output
    - `columns_gathered`: the same, with a gathered output
    - `rows`: input channels sharded; input from `columns`, output summed over the ranks
    - `rows_of_whole`: the same with an unsharded input
    - `channels`: a batch norm after `columns`
    """

    layers: str
    """Path of a module in the model; `*` matches one component."""
    kind: SplitKind
    channels: int
    """Number of sharded channels: known without torch, checked against the model by the worker."""
    group: int = 1
    """Consecutive channels that stay on one rank, such as those of an attention head."""

    @property
    def groups(self) -> int:
        """Number that has to be divisible by the number of ranks."""
        return self.channels // self.group

    def matches(self, name: str) -> bool:
        """Return True if the pattern matches the module called `name`."""
        pattern, path = self.layers.split("."), name.split(".")
        return len(pattern) == len(path) and all(
            part in ("*", component) for part, component in zip(pattern, path, strict=True)
        )


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """Possible divisions of a model among accelerators; engines know nothing else of the model."""

    splits: tuple[Split, ...]
    """Tensor parallelism: sharded layers; every rank computes the others."""
    stages: tuple[tuple[str, ...], ...]
    """Pipelines: modules in order of execution, each fed by the one before, or by the model's
    `through` and `ended` (`parallel/engines/pipeline.py`). The modules of one tuple stay in one
    stage. Empty: the model is no sequence of modules."""
    units: tuple[str, ...] = ()
    """Sharding: modules that are gathered one at a time; empty: those of `stages`."""
    shared: tuple[str, ...] = ()
    """Modules of the first stage whose weights the last stage uses too, such as tied embeddings:
    both stages hold them, and their gradients are summed."""

    def split_of(self, name: str) -> Split | None:
        """Return the first split that matches the module called `name`."""
        return next((split for split in self.splits if split.matches(name)), None)
