"""Divisions of CosmoFlow among accelerators, known without torch."""

from __future__ import annotations

from ai500.records import ParallelPlan, Split

LAST_EDGE = 4
"""Edge of the volumes after the last block."""
HIDDEN = (128, 64)
"""Widths of the first two linear layers."""


def block_count(edge: int) -> int:
    """Return how many blocks halve an edge to `LAST_EDGE`."""
    return (edge // LAST_EDGE).bit_length() - 1


def cosmoflow_plan(edge: int, *, width: int) -> ParallelPlan:
    """Return the splits of the layers and the stages of a pipeline.

    Blocks alternate between split outputs and split inputs: the ranks exchange volumes after every
    second block only. An odd last block gathers its own.
    """
    count = block_count(edge)
    splits = []
    for number in range(count):
        layer, channels = f"blocks.{number}.convolution", width << number
        if number % 2:
            splits.append(Split(layer, "rows", channels // 2))
        else:
            last = number == count - 1
            splits.append(Split(layer, "columns_gathered" if last else "columns", channels))
    linear = (
        Split("regression.layers.1", "columns", HIDDEN[0]),
        Split("regression.layers.3", "rows", HIDDEN[0]),
    )
    stages = (*((f"blocks.{number}",) for number in range(count)), ("regression",))
    return ParallelPlan(splits=(*splits, *linear), stages=stages)
