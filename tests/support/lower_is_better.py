"""A workload whose quality is an error: an outsider's plugin, as far as the tests know [D15]."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ai500.workloads.image_classification import CLASSES, ImageClassification


class ErrorRate(ImageClassification):
    """Image classification, judged by its share of mistakes."""

    name = "error_rate"
    quality_name = "top-1 error"
    quality_direction: Literal["lower"] = "lower"  # type: ignore[assignment]
    problem_classes = {"smoke": replace(CLASSES["smoke"], target_quality=0.9)}  # noqa: RUF012


WORKLOAD = ErrorRate()
