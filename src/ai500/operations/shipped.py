"""Counts of the built-in problem classes that ship with the package: planning needs no torch.

`python -m ai500.workloads.ship_operations` writes the file; a test holds it equal to traced models.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ai500.operations.count import convention_named

FILE_NAME = "shipped.json"


@dataclass(frozen=True, slots=True)
class PerImage:
    """Operations of a class's model at the class's own input size."""

    convention: str
    forward: int
    """Of one image."""
    backward: int
    """Gradients of one image, without the update."""
    update: int
    """Of one optimizer step, however many images [D12]."""
    parameters: int


@cache
def _table() -> dict[str, Any]:
    text = files("ai500.operations").joinpath(FILE_NAME).read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def shipped(workload: str, problem_class: str, convention: str = "aiperf") -> PerImage | None:
    """The shipped count, or None for a workload or class of somebody else's."""
    row = _table().get(workload, {}).get(problem_class)
    if row is None:
        return None
    name = convention_named(convention).name
    return PerImage(convention=name, parameters=row["parameters"], **row["per_image"][name])


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What a class's model is known by."""

    parameters: int
    graph_sha256: str


def shipped_model(workload: str, problem_class: str) -> ModelIdentity | None:
    """The identity of a built-in class's model; None for somebody else's."""
    row = _table().get(workload, {}).get(problem_class)
    return None if row is None else ModelIdentity(row["parameters"], row["graph_sha256"])
