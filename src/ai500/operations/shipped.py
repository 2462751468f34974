"""Counts of the built-in problem classes, shipped with the package: planning needs no torch.

`python -m tests.support.ship_operations` writes the file; a test compares it with traced models.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ai500.core import schema
from ai500.operations.count import convention_named
from ai500.records import OFFICIAL_CONVENTION, Operations

FILE_NAME = "shipped.json"


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Identity of a class's model."""

    parameters: int
    graph_sha256: str


@cache
def _table() -> dict[str, Any]:
    text = files("ai500.operations").joinpath(FILE_NAME).read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def shipped_operations(
    workload: str, problem_class: str, convention: str = OFFICIAL_CONVENTION
) -> Operations | None:
    """Return the shipped count of a built-in class at its own input size; None for others."""
    row = _table().get(workload, {}).get(problem_class)
    if row is None:
        return None
    return schema.decode(Operations, row["operations"][convention_named(convention).name])


def shipped_model(workload: str, problem_class: str) -> ModelIdentity | None:
    """Return the identity of a built-in class's model; None for others."""
    row = _table().get(workload, {}).get(problem_class)
    return None if row is None else schema.decode(ModelIdentity, row["model"])
