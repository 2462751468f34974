"""The `Backend` protocol: what a framework implements so that `array_member.py` can train with it.

Batches, predictions and states are NumPy's arrays; names and shapes of weights are the reference's,
so that checkpoints, digests and equivalence tests need no framework of their own.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.operations import Trace
from ai500.records import Hyperparameters, ProblemClass
from ai500.train.worker import Rank
from ai500.workloads.models.resnet_layers import ResNet, class_resnet

Arrays = Mapping[str, NDArray[Any]]
State = dict[str, NDArray[Any]]
"""Weights, buffers and optimizer state by name; `momentum.NAME` belongs to the parameter NAME."""

MOMENTUM = "momentum."
"""Prefix of the optimizer's state."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything a backend is built from."""

    problem_class: ProblemClass
    hyperparameters: Hyperparameters
    weights: State
    """Initial parameters and buffers, equal on every rank."""
    rank: Rank
    device: str
    """The rank's own device, `cpu` or `cuda:N`."""
    threads: int | None
    """Cores of the rank; None: not known, or an accelerator."""
    dtype: str = "float32"
    """Type of the weights; `float64` in equivalence tests."""
    other_model: ResNet | None = None
    """A model other than the class's, in equivalence tests."""
    workload: str = "image_classification"

    @property
    def model(self) -> ResNet:
        """Structure of the model."""
        return self.other_model or class_resnet(self.problem_class)

    @property
    def batch_size(self) -> int:
        """Images of one optimizer step on this rank."""
        return self.hyperparameters.samples_per_step


@dataclass(frozen=True, slots=True)
class Description:
    """Software and hardware that run, read from the framework, for the member's record."""

    framework: dict[str, Any]
    """`name`, `version`, `compiled`, `deterministic` and what else identifies the build."""
    numerics: dict[str, Any]
    """`precision`, `products`, `parameter_dtypes`, `tf32`."""
    communication: dict[str, Any]
    """`backend`, `version`, `mode`, `precision`; all None for a single process."""
    optimizer_class: str
    """Code of the update, as `module.name`."""
    device_name: str
    versions: dict[str, str]
    """Package → version, without ai500, Python and NumPy."""


def adam_epsilon(hyper: Hyperparameters) -> float:
    """Return the ε of Adam's denominator; torch's default where none is set."""
    return 1e-8 if hyper.epsilon is None else hyper.epsilon


def cpu_name() -> str:
    """Return the name of the CPU, as the reference's record has it."""
    return platform.processor() or platform.machine()


class Backend(Protocol):
    """One rank's model, optimizer and communication in one framework."""

    def place(self, fields: Arrays, draws: NDArray[np.float32]) -> Any:
        """Start to bring a batch of stored samples to the device; called from a reading thread."""

    def train_step(self, batch: Any, *, learning_rate: float) -> Any:
        """Train on a placed batch, gradients averaged over the ranks; return this rank's mean loss,
        a scalar for which `float` waits."""

    def predict(self, fields: Arrays) -> NDArray[Any]:
        """Return the predictions for stored samples, by the running statistics of batch norm."""

    def use_first_statistics(self) -> None:
        """Replace this rank's running statistics by rank 0's; every rank calls this."""

    def state(self) -> State:
        """Return parameters, buffers and optimizer state under the reference's names and shapes."""

    def load_state(self, state: State) -> None:
        """Replace parameters, buffers and, where `state` has it, the optimizer's state."""

    def trace(self, *, batch: int) -> Trace:
        """Return the operators of the framework's own graph of the model, on a batch that big."""

    def mean(self, value: float) -> float:
        """Average a value over the ranks; the same result on every rank."""

    def broadcast(self, value: int) -> int:
        """Return rank 0's value on every rank."""

    def gather(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Concatenate the equally many rows of all ranks, on every rank."""

    def describe(self) -> Description:
        """Describe what runs."""

    def close(self) -> None:
        """Leave the ranks' group."""
