"""Framework-neutral graph of a model: a stream of operators, the only input of counting."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

Shape = tuple[int, ...]

#: Kind of an operator that no table lists; it is reported by name, never dropped.
UNKNOWN = "unknown"

#: Kinds that count for integers too, as int8 models have them. All other arithmetic on integers
#: is that of indices and counters, and counts 0.
PRODUCTS = frozenset(("convolution", "dense", "matmul", "bilinear"))


@dataclass(frozen=True, slots=True)
class Shapes:
    """Shapes of an operator's tensors.

    Convolutions: inputs are data and weight. Dense and matmul: the two factors. Bilinear: left,
    weight, right. Attention: query, key, value. All others: their tensors in the order the
    framework passes them.
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

    A tracer may set these attributes, all whole numbers:

    - `kernel`: elements of a pooling window; `transposed`: 1 for a transposed convolution
    - `gradients`: number of gradients in the backward pass: of data, of weight, or 2 for both
    - `parameters`: elements of the model's parameters that first occur here
    - `updated`: elements that an optimizer step updates and that first occur here
    - `activation_bytes`: bytes of new memory of its outputs
    - `repeats`: executions in a loop, 1 unless set
    - `complex`: number of complex factors, of the two of a product; 1 or 2 for other arithmetic
    - `points`: length of a Fourier transform, over all its dimensions, by default the last one;
      `real`: 1 for real data
    - `order`: of a distance, 1 without a power (also the largest difference), 2 Euclidean, else 3
    """

    kind: str
    shapes: Shapes
    attributes: Mapping[str, int] = field(default_factory=dict)
    module: str = ""
    operator: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced model: operators in order of execution, parameters, and the traced batch size."""

    ops: tuple[Op, ...]
    parameters: int
    batch: int
    outputs: tuple[Shape, ...] = ()
    inputs: tuple[Shape, ...] = ()
    """Shapes of the data, batch included; a tracer may leave them out."""


def channels_first(trace: Trace) -> Trace:
    """Change the graph of a model on images N×H×W×C to the layout of the others, N×C×H×W.

    Convolutions have it already: their tracers read the layout. A global pool's output is N×C×1×1.
    """
    return replace(trace, ops=tuple(map(_channels_first, trace.ops)))


def _channels_first(op: Op) -> Op:
    if op.kind == "convolution":
        return op
    inputs, outputs = (
        tuple(map(_moved, shapes)) for shapes in (op.shapes.inputs, op.shapes.outputs)
    )
    if op.kind == "average_pool" and len(outputs[0]) == 2:
        outputs = ((*outputs[0], 1, 1),)
    return replace(op, shapes=Shapes(inputs, outputs))


def _moved(shape: Shape) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) == 4 else shape


#: Module path of the loss, which follows the model in a training step.
LOSS = "(loss)"


def with_loss(trace: Trace, kind: str) -> Trace:
    """Append an operator over the model's first output, such as the `softmax` of its logits."""
    shapes = Shapes(inputs=trace.outputs[:1], outputs=trace.outputs[:1])
    return replace(trace, ops=(*trace.ops, Op(kind, shapes, module=LOSS, operator=kind)))


#: Batch size at which a graph is identified; some layers reject a batch of 1.
IDENTITY_BATCH = 2
_TWO_FACTORS = {"convolution", "dense", "matmul", "attention"}


def graph_sha256(trace: Trace) -> str:
    """Hash a model's graph, with the same result in every framework and precision.

    The hash covers each operator's kind, shapes, windows and number of parameters. It excludes
    operator names, copies, casts, and statistics that only some backends return. Operators
    without a kind are hashed by name.
    """
    rows: list[list[Any]] = []
    for op in trace.ops:
        if op.kind == "data_movement":
            continue
        parameters = op.attributes.get("parameters", 0)
        if op.kind == "bias":  # a separate operator in some backends only
            rows[-1][-1] += parameters
            continue
        factors = op.shapes.inputs[: 2 if op.kind in _TWO_FACTORS else 1]
        windows = [op.attributes.get(name, 0) for name in ("kernel", "transposed")]
        name = op.operator if op.kind == UNKNOWN else op.kind
        rows.append([name, factors, op.shapes.outputs[:1], windows, parameters])
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
