"""Graph of a training step that ran: does it compute the gradients that the rule derives?

The conventions count the forward graph and derive the backward pass (docs/operations.md). Where a
framework shows the whole step as one graph, its convolutions and products are compared with that.
"""

from __future__ import annotations

from ai500.operations.graph import Op, Trace
from ai500.operations.rules import (
    attention_macc,
    bilinear_macc,
    convolution_macc,
    product_macc,
)

_MACC = {
    "convolution": convolution_macc,
    "dense": product_macc,
    "matmul": product_macc,
    "bilinear": bilinear_macc,
    "attention": attention_macc,
}


def step_difference(forward: Trace, step: Trace) -> int:
    """Return the multiply-accumulates of `step` less those of `forward` with its gradients.

    0: the step computes exactly the derived gradients. Positive: it computes more, such as a
    forward pass that is recomputed to save memory, which is not counted. Negative: the forward
    graph declares gradients that the step does not compute, and the count is too large.
    """
    derived = sum(_macc(op) * (1 + op.attributes.get("gradients", 0)) for op in forward.ops)
    return sum(map(_macc, step.ops)) - derived


def _macc(op: Op) -> int:
    formula = _MACC.get(op.kind)
    return formula(op) * op.attributes.get("repeats", 1) if formula else 0
