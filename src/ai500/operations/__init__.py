"""Counting operations (V3 §3.6, AIPerf §IV-D): traverse the graph, never run it.

Importing this needs no torch; `count` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai500.operations.count import KindCount, OperationCount, count_ops, count_trace
from ai500.operations.graph import Op, Shapes, Trace, with_loss

if TYPE_CHECKING:
    from torch import nn

    from ai500.operations.torch_trace import Example

__all__ = ["KindCount", "Op", "OperationCount", "Shapes", "Trace", "count", "count_ops"]


def count(
    model: nn.Module,
    example_input: Example,
    *,
    convention: str = "aiperf",
    loss: str | None = None,
    regions: int | None = None,
) -> OperationCount:
    """Operations of one training step of `model` on a batch like `example_input`.

    Only the shape and type of the input are read: a tensor on any device, a meta tensor, or a
    shape with the batch first, `(64, 3, 224, 224)`. The model may live on any device; it is
    traced in the mode it is in and left exactly as it was. `loss="softmax"` adds the softmax
    that follows a classifier's logits, as AIPerf's Table III counts it.
    `regions` is how many rows an operator gives whose output size depends on the values of its
    data: a detector's proposals.
    """
    from ai500.operations.torch_trace import trace

    traced = trace(model, example_input, regions=regions)
    return count_trace(with_loss(traced, loss) if loss else traced, convention=convention)
