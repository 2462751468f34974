"""Targets of a batch: a tensor, or tensors in tuples, lists and dicts, a row per sample each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Targets = Any
"""Targets that a workload's `train_inputs` returns for its loss."""


def map_tensors(function: Callable[[Tensor], Any], targets: Targets) -> Any:
    """Apply a function to every tensor; everything else stays as it is."""
    if isinstance(targets, Tensor):
        return function(targets)
    if isinstance(targets, dict):
        return {key: map_tensors(function, value) for key, value in targets.items()}
    if isinstance(targets, tuple | list):
        return type(targets)(map_tensors(function, value) for value in targets)
    return targets


def tensors_of(targets: Targets) -> list[Tensor]:
    """Return all tensors, in order."""
    tensors: list[Tensor] = []
    map_tensors(tensors.append, targets)
    return tensors


def with_tensors(targets: Targets, tensors: Iterator[Tensor]) -> Targets:
    """Return the same structure with other tensors, given in the order of `tensors_of`."""
    return map_tensors(lambda _: next(tensors), targets)


def chunked(targets: Targets, chunks: int) -> list[Targets]:
    """Divide the rows of every tensor among micro-steps, as `Tensor.chunk` does."""
    if isinstance(targets, Tensor):
        return list(targets.chunk(chunks))
    parts = [tensor.chunk(chunks) for tensor in tensors_of(targets)]
    if not parts:
        return [targets] * chunks
    return [with_tensors(targets, iter(step)) for step in zip(*parts, strict=True)]


def rows_of(targets: Targets, rows: Tensor) -> Targets:
    """Select rows of every tensor."""
    return map_tensors(lambda tensor: torch.index_select(tensor, 0, rows), targets)
