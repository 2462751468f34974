"""The framework-neutral graph: a stream of operators. Counting sees nothing but this."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

Shape = tuple[int, ...]

#: Kind of an operator that no table knows. It is reported by name, never dropped.
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Shapes:
    """Shapes of an operator's tensors.

    Convolutions: inputs are data and weight. Dense and matmul: the two factors. Attention: query,
    key, value. All others: their tensors in the order the framework passes them.
    """

    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()

    @property
    def elements_in(self) -> int:
        """Elements of the first input."""
        return prod(self.inputs[0]) if self.inputs else 0

    @property
    def elements_out(self) -> int:
        """Elements of the first output."""
        return prod(self.outputs[0]) if self.outputs else 0


@dataclass(frozen=True, slots=True)
class Op:
    """One operator of a model's graph.

    Attributes a tracer may set, all whole numbers:

    - `kernel`: elements of a pooling window; `transposed`: 1 for a transposed convolution
    - `gradients`: gradients the backward pass computes, 2 for data and weight, 1 for one of them
    - `parameters`: elements of the model's parameters first seen here
    - `updated`: those an optimizer step updates, first seen here in a convolution or dense layer
    - `activation_bytes`: bytes of new memory its outputs hold
    """

    kind: str
    shapes: Shapes
    attributes: Mapping[str, int] = field(default_factory=dict)
    module: str = ""
    operator: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced model: its operators in the order they run, its parameters, and the batch traced."""

    ops: tuple[Op, ...]
    parameters: int
    batch: int
    outputs: tuple[Shape, ...] = ()


#: Module path of what follows the model in a training step.
LOSS = "(loss)"


def with_loss(trace: Trace, kind: str) -> Trace:
    """The trace followed by an operator over the model's first output: `softmax` of its logits."""
    shapes = Shapes(inputs=trace.outputs[:1], outputs=trace.outputs[:1])
    return replace(trace, ops=(*trace.ops, Op(kind, shapes, module=LOSS, operator=kind)))


#: The batch a graph's identity is taken at: a layer may refuse a batch of one.
IDENTITY_BATCH = 2
_TWO_FACTORS = {"convolution", "dense", "matmul", "attention"}


def graph_sha256(trace: Trace) -> str:
    """Identity of a model's graph, the same in every framework and precision that computes it.

    Of each operator: kind, the shapes of what it reads and writes, windows, and how many
    parameters it brings. Not its name, nor copies and casts, nor statistics that one backend
    returns and another does not. Operators that nobody knows count by name.
    """
    rows: list[list[Any]] = []
    for op in trace.ops:
        if op.kind == "data_movement":
            continue
        parameters = op.attributes.get("parameters", 0)
        if op.kind == "bias":  # some backends add it by itself, others inside the layer
            rows[-1][-1] += parameters
            continue
        factors = op.shapes.inputs[: 2 if op.kind in _TWO_FACTORS else 1]
        windows = [op.attributes.get(name, 0) for name in ("kernel", "transposed")]
        name = op.operator if op.kind == UNKNOWN else op.kind
        rows.append([name, factors, op.shapes.outputs[:1], windows, parameters])
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
