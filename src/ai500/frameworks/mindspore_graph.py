"""MindIR, the graph that MindSpore's front end compiled, as the framework-neutral graph.

Reads the protocol buffer of `mindspore.train.mind_ir_pb2`; images are N×C×H×W already.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

from ai500.operations.graph import UNKNOWN, Op, Shape, Shapes, Trace

KINDS = {
    "Conv2D": "convolution",
    "Conv2DBackpropFilter": "convolution",
    "Conv2DBackpropInput": "convolution",
    "BatchNorm": "batch_norm",
    "ReLU": "relu",
    "Add": "add",
    "MaxPoolWithArgmaxV2": "max_pool",
    "ReduceMean": "average_pool",
    "MatMul": "dense",
    "BiasAdd": "bias",
}
"""Primitive → kind; the gradients occur in the graph of a training step."""
_ORDERING = {"UpdateState", "MakeTuple"}
"""Primitives that only order side effects."""
_NAMES = {"Load", "Depend", "TupleGetItem"}
"""Primitives that give their first input another name."""
_UPDATED_KINDS = {"convolution", "dense", "bias"}
_FLOAT32_BYTES = 4


def trace_mindir(model: Any, *, trained: Collection[str], batch: int) -> Trace:
    """Trace a graph; `trained` are the names of the parameters that have gradients in it."""
    return _Tracer(model, trained).trace(batch)


class _Tracer:
    """Converter of a MindIR model's nodes to operators."""

    def __init__(self, model: Any, trained: Collection[str]) -> None:
        self._graph = model.graph
        self._primitives = {primitive.name: primitive for primitive in model.primitives}
        self._shapes: dict[str, tuple[Shape, ...]] = {}
        self._sizes: dict[str, int] = {}
        self._aliases: dict[str, str] = {}
        self._seen: set[str] = set()
        for value in self._graph.input:
            self._shapes[value.name] = _tensors(value.tensor)
        for parameter in self._graph.parameter:
            self._shapes[parameter.name] = (tuple(parameter.dims),)
            if parameter.ref_key in trained:
                self._sizes[parameter.name] = prod(parameter.dims)
        self._needs_gradient = set(self._sizes)

    def trace(self, batch: int) -> Trace:
        """Return the operators in the graph's order."""
        ops = [op for node in self._graph.node if (op := self._op(node)) is not None]
        return Trace(
            ops=tuple(ops),
            parameters=sum(self._sizes.values()),
            batch=batch,
            outputs=tuple(tuple(value.tensor[0].dims) for value in self._graph.output),
            inputs=tuple(self._shapes[value.name][0] for value in self._graph.input),
        )

    def _op(self, node: Any) -> Op | None:
        if node.op_type == "Constant":
            return None
        primitive = self._primitives.get(node.op_type.removeprefix("REF::"))
        name = primitive.op_type if primitive is not None else node.op_type
        if name in _ORDERING:
            return None
        shapes = _node_shapes(node)
        inputs = [self._aliases.get(value, value) for value in node.input]
        output = node.output[0]
        self._shapes[output] = shapes
        if self._needs_gradient & set(inputs):
            self._needs_gradient.add(output)
        if name in _NAMES:
            self._aliases[output] = inputs[0]
            return None
        known = [value for value in inputs if self._shapes.get(value)]
        kind = KINDS.get(name, UNKNOWN)
        attributes = self._attributes(kind, known, shapes)
        if kind == "max_pool":
            attributes["kernel"] = _window(primitive)
        return Op(
            kind=kind,
            shapes=self._operands(name, known, shapes),
            attributes={key: value for key, value in attributes.items() if value},
            module=node.domain,
            operator=name,
        )

    def _attributes(
        self, kind: str, inputs: list[str], outputs: tuple[Shape, ...]
    ) -> dict[str, int]:
        new = (set(inputs) & set(self._sizes)) - self._seen
        self._seen |= new
        elements = sum(self._sizes[value] for value in new)
        attributes = {
            "parameters": elements,
            "activation_bytes": _FLOAT32_BYTES * sum(map(prod, outputs)),
        }
        if kind in _UPDATED_KINDS:
            attributes["updated"] = elements
        if kind in ("convolution", "dense"):
            attributes["gradients"] = sum(value in self._needs_gradient for value in inputs[:2])
        return attributes

    def _operands(self, name: str, inputs: list[str], outputs: tuple[Shape, ...]) -> Shapes:
        """Return the shapes that the rule of the primitive's kind reads."""
        shapes = tuple(self._shapes[value][0] for value in inputs)
        if name == "Conv2DBackpropFilter":
            gradient, data = shapes
            return Shapes((data, outputs[0]), (gradient,))
        if name == "Conv2DBackpropInput":
            gradient, kernel = shapes
            return Shapes((outputs[0], kernel), (gradient,))
        if name == "MatMul":  # either factor may be transposed
            rows, columns = outputs[0]
            inner = prod(shapes[0]) // rows
            shapes = ((rows, inner), (inner, columns))
        if name == "ReduceMean" and len(outputs[0]) == 2:
            outputs = ((*outputs[0], 1, 1),)
        return Shapes(shapes, outputs)


def _node_shapes(node: Any) -> tuple[Shape, ...]:
    """Read the shapes of a node's outputs; none where the front end inferred none."""
    for attribute in node.attribute:
        if attribute.name == "shape":
            values = attribute.values or [attribute]
            return tuple(shape for value in values for shape in _tensors(value.tensors))
    return ()


def _tensors(tensors: Any) -> tuple[Shape, ...]:
    return tuple(tuple(tensor.dims) for tensor in tensors)


def _window(primitive: Any) -> int:
    """Return the elements of a pooling window."""
    sizes = next(a for a in primitive.attribute if a.name == "kernel_size")
    return prod(int(value.ints[0]) for value in sizes.values)
