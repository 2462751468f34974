"""Workload `custom`: a task that only the user's script knows; its class is in the configuration.

It has neither data nor a model. Members' predictions are averaged; the ensemble's quality is
computed where the class names one of METRICS, and not measured otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import ConfigError, DataError
from ai500.records import ProblemClass
from ai500.workloads.averaging import average

Metric = Callable[[NDArray[Any], NDArray[Any]], float]


def accuracy(predictions: NDArray[Any], targets: NDArray[Any]) -> float:
    """Compute the share of samples whose largest score is that of their class."""
    return float(np.mean(predictions.argmax(axis=-1) == targets))


def mean_absolute_error(predictions: NDArray[Any], targets: NDArray[Any]) -> float:
    """Compute the mean absolute difference over all values."""
    return float(np.mean(np.abs(predictions.astype(np.float64) - targets)))


def mean_squared_error(predictions: NDArray[Any], targets: NDArray[Any]) -> float:
    """Compute the mean squared difference over all values."""
    return float(np.mean((predictions.astype(np.float64) - targets) ** 2))


METRICS: Mapping[str, tuple[Metric, Literal["higher", "lower"]]] = {
    "accuracy": (accuracy, "higher"),
    "mean absolute error": (mean_absolute_error, "lower"),
    "mean squared error": (mean_squared_error, "lower"),
}
"""Qualities that are computed from predictions, with their better direction."""


@dataclass(frozen=True)
class Custom:
    """A task of the user's own, trained by a script."""

    name: str = "custom"
    quality_name: str = "quality"
    quality_direction: Literal["higher", "lower"] = "higher"
    quality_range: tuple[float, float] | None = None
    loss_operator: str | None = None
    problem_classes: Mapping[str, ProblemClass] = field(default_factory=dict)
    draws_per_sample: int = 0
    capturable: bool = False
    combine = staticmethod(average)

    def for_class(self, definition: ProblemClass) -> Custom:
        """Return the workload with the quality that a class names."""
        custom = definition.custom
        if custom is None or custom.quality_name is None:
            return self
        name, direction = custom.quality_name, custom.quality_direction
        return replace(self, quality_name=name, quality_direction=direction)

    def data_source(self, problem_class: ProblemClass) -> None:
        """Return nothing: the script or its user brings the data."""

    def parallel_plan(self, problem_class: ProblemClass) -> None:
        """Return nothing: the script divides its own model."""

    def model(self, problem_class: ProblemClass) -> NoReturn:
        """Refuse to build a model: only the script has one."""
        raise ConfigError(
            "workload = 'custom' has no model of its own.",
            key="workload",
            value=self.name,
            remedy="Count a torch module: ai500 flops package.module:factory.",
        )

    @property
    def measures(self) -> bool:
        """True where `quality` can be computed."""
        return self.quality_name in METRICS

    def quality(self, predictions: NDArray[Any], targets: Mapping[str, NDArray[Any]]) -> float:
        """Compute the quality that the class names, against its only target."""
        (target,) = targets.values()
        expected = predictions.shape[:1] if self.quality_name == "accuracy" else predictions.shape
        if target.shape != expected:
            raise DataError(
                f"predictions of shape {predictions.shape} need targets of shape {expected} for "
                f"{self.quality_name}; they have {target.shape}.",
                key="custom_class.validation_targets",
                value=target.shape,
            )
        metric, _ = METRICS[self.quality_name]
        return metric(predictions, target)

    def illustrations(self, predictions: Any, *, ensemble: Any, samples: Any) -> None:
        """Draw nothing."""


WORKLOAD = Custom()
