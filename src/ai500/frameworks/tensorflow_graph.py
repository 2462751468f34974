"""Operators of a TensorFlow graph, as the framework-neutral graph that is counted.

It reads a concrete function's operations, in order of creation, which is the order of execution.
TensorFlow itself is not imported: the operations bring their types, shapes and attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from ai500.operations import Op, Shapes, Trace
from ai500.operations.graph import UNKNOWN, Shape, channels_first

Operation = Any
Tensor = Any

KINDS = {
    "AddV2": "add",
    "BiasAdd": "bias",
    "FusedBatchNormV3": "batch_norm",
    "MaxPool": "max_pool",
    "Relu": "relu",
}
"""Operators whose kind depends on nothing else."""
NO_OPERATORS = {"Const", "NoOp", "Placeholder"}
CONVOLUTIONS = {"Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput"}
"""A convolution and its gradients, which occur in the graph of a training step."""
MOVES = {"Cast", "Identity", "Transpose"}
"""Copies and casts: their output is their first input's data."""
PRODUCTS = {"convolution", "dense", "matmul"}
UPDATED_KINDS = {"convolution", "dense", "bias"}
"""Kinds whose parameters' update AIPerf counts."""
SPATIAL_AXES = (1, 2)
"""Height and width of N×H×W×C."""


def trace_graph(graph: Any, *, parameters: Iterable[str], batch: int) -> Trace:
    """Trace a graph on images N×H×W×C; `parameters` names the placeholders of trained weights."""
    tracer = _Tracer(set(parameters))
    live = _live_operations(graph)
    for operation in graph.get_operations():
        if operation.name in live:
            tracer.visit(operation)
    output = graph.outputs[0]
    trace = Trace(
        ops=tuple(tracer.ops),
        parameters=tracer.elements,
        batch=batch,
        outputs=(_shape(output),),
    )
    return channels_first(trace)


def _live_operations(graph: Any) -> set[str]:
    """Return the operations that outputs and updates need: TensorFlow runs no others."""
    live: set[str] = set()
    waiting = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    waiting += [tensor.op for tensor in graph.inputs]
    while waiting:
        operation = waiting.pop()
        if operation.name not in live:
            live.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs]
            waiting += operation.control_inputs
    return live


class _Tracer:
    """Operators so far, and which tensors are parameters or depend on them."""

    def __init__(self, parameters: set[str]) -> None:
        self._names = parameters
        self._sources: dict[str, str] = {}
        """Tensor → the parameter that it is a copy of."""
        self._trained: set[str] = set()
        """Tensors that need a gradient: parameters and everything computed from them."""
        self._seen: set[str] = set()
        self.ops: list[Op] = []
        self.elements = 0

    def visit(self, operation: Operation) -> None:
        """Add an operation's operator, if it computes or moves data."""
        if operation.type == "Placeholder" and operation.name in self._names:
            self._sources[operation.outputs[0].name] = operation.name
            self._trained.add(operation.outputs[0].name)
            self.elements += prod(_shape(operation.outputs[0]))
        if operation.type in NO_OPERATORS:
            return
        if any(tensor.name in self._trained for tensor in operation.inputs):
            self._trained.update(tensor.name for tensor in operation.outputs)
        if operation.type in MOVES:
            source = self._sources.get(operation.inputs[0].name)
            if source is not None:
                self._sources[operation.outputs[0].name] = source
        self.ops.append(self._operator(operation))

    def _operator(self, operation: Operation) -> Op:
        kind, shapes = self._kind(operation), _shapes(operation)
        attributes = {
            "activation_bytes": sum(
                tensor.dtype.size * prod(_shape(tensor)) for tensor in operation.outputs
            )
        }
        if kind == "data_movement":
            return Op(kind, shapes, module=operation.name, operator=operation.type)
        attributes["parameters"] = first = self._first_elements(operation)
        if kind == "convolution":
            shapes = _convolution_shapes(operation)
        if kind in ("dense", "matmul"):
            shapes = _product_shapes(operation)
        if kind in UPDATED_KINDS:
            attributes["updated"] = first
        if kind in PRODUCTS:
            attributes["gradients"] = self._gradients(operation)
        if kind == "max_pool":
            attributes["kernel"] = prod(operation.get_attr("ksize"))
        return Op(kind, shapes, attributes, module=operation.name, operator=operation.type)

    def _kind(self, operation: Operation) -> str:
        kind = KINDS.get(operation.type, UNKNOWN)
        if operation.type in MOVES:
            kind = "data_movement"
        if operation.type in CONVOLUTIONS and operation.get_attr("data_format") == b"NHWC":
            kind = "convolution"
        if operation.type == "MatMul":
            kind = "dense" if operation.inputs[1].name in self._sources else "matmul"
        if operation.type == "Mean" and _averages_pixels(operation):
            kind = "average_pool"
        return kind

    def _first_elements(self, operation: Operation) -> int:
        """Return the elements of the parameters that first occur in this operation."""
        elements = 0
        for tensor in operation.inputs:
            source = self._sources.get(tensor.name)
            if source is not None and source not in self._seen:
                self._seen.add(source)
                elements += prod(_shape(tensor))
        return elements

    def _gradients(self, operation: Operation) -> int:
        """Count the factors that need a gradient: the first layer's data needs none."""
        return sum(tensor.name in self._trained for tensor in operation.inputs[:2])


def _averages_pixels(operation: Operation) -> bool:
    axes = _constant(operation.inputs[1])
    return len(_shape(operation.inputs[0])) == 4 and axes == SPATIAL_AXES


def _constant(tensor: Tensor) -> tuple[int, ...] | None:
    """Return the integers of a constant of the graph; None for a computed tensor."""
    if tensor.op.type != "Const":
        return None
    value = tensor.op.get_attr("value")
    content = memoryview(value.tensor_content).cast("i") if value.tensor_content else value.int_val
    return tuple(content)


def _convolution_shapes(operation: Operation) -> Shapes:
    """Return N×C×H×W and O×I×H×W for N×H×W×C and H×W×I×O."""
    data, kernel, *_ = operation.inputs
    out = operation.outputs[0]
    if operation.type == "Conv2DBackpropFilter":
        data, kernel, out = operation.inputs[0], operation.outputs[0], operation.inputs[2]
    if operation.type == "Conv2DBackpropInput":
        data, kernel, out = operation.outputs[0], operation.inputs[1], operation.inputs[2]
    height, width, channels, filters = _shape(kernel)
    return Shapes(
        inputs=(_data_first(_shape(data)), (filters, channels, height, width)),
        outputs=(_data_first(_shape(out)),),
    )


def _data_first(shape: Shape) -> Shape:
    return (shape[0], shape[3], shape[1], shape[2])


def _product_shapes(operation: Operation) -> Shapes:
    left, right = map(_shape, operation.inputs)
    if operation.get_attr("transpose_a"):
        left = left[::-1]
    if operation.get_attr("transpose_b"):
        right = right[::-1]
    return Shapes(inputs=(left, right), outputs=(_shape(operation.outputs[0]),))


def _shapes(operation: Operation) -> Shapes:
    inputs, outputs = (
        tuple(map(_shape, tensors)) for tensors in (operation.inputs, operation.outputs)
    )
    return Shapes(inputs=inputs, outputs=outputs)


def _shape(tensor: Tensor) -> Shape:
    return tuple(tensor.shape.as_list()) if tensor.shape.rank is not None else ()
