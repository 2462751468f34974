"""Counting operations (V3 §3.6, AIPerf §IV-D): traverse the graph without running it.

Only `count` needs torch; the package itself does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai500.operations.count import KindCount, OperationCount, count_trace
from ai500.operations.graph import Op, Shapes, Trace, with_loss

if TYPE_CHECKING:
    from torch import nn

    from ai500.operations.torch_trace import Example

__all__ = [
    "KindCount", "Op", "OperationCount", "Shapes", "Trace", "count", "count_trace",
    "counted_graph", "example_input",
]  # fmt: skip


def example_input(shape: tuple[int, ...], *, dtype: str) -> Example:
    """Return an input of this shape and type for `count`."""
    if dtype == "float32":
        return shape
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def count(
    model: nn.Module,
    example_input: Example,
    *,
    convention: str = "aiperf",
    loss: str | None = None,
    regions: int | None = None,
) -> OperationCount:
    """Count the operations of one training step of `model` on a batch like `example_input`.

    Only shape and type of the input are used: pass a tensor on any device, a meta tensor, or a
    shape with the batch first, `(64, 3, 224, 224)`. The model may be on any device; it is traced
    in its current mode and not changed. `loss="softmax"` adds the softmax after a classifier's
    logits, as AIPerf's Table III counts it. `regions` is the number of output rows of operators
    whose output size depends on the values of their input, such as a detector's proposals.
    """
    from ai500.operations.torch_trace import trace

    traced = trace(model, example_input, regions=regions)
    return count_trace(with_loss(traced, loss) if loss else traced, convention=convention)


def counted_graph(model: nn.Module, example_input: Example, *, loss: str | None = None) -> Trace:
    """Trace the graph that `count` counts, with its loss."""
    from ai500.operations.torch_trace import trace

    traced = trace(model, example_input)
    return with_loss(traced, loss) if loss else traced
