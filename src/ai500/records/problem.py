"""Problem classes [D4], hyper-parameters, and how a model may be divided among accelerators."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from ai500.records.search import Search


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
