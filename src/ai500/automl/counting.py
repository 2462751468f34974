"""Operations of an architecture, from its layers alone (docs/operations.md). Needs no torch.

Workers count each candidate with it, and verification counts again. A test compares it with the
trace of the module that trains.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ai500.operations.count import count_trace
from ai500.operations.graph import Op, Shape, Shapes, Trace, with_loss
from ai500.records import Operations
from ai500.workloads.models.architecture import Architecture, Layer


def count_architecture(
    architecture: Architecture, *, input_shape: tuple[int, ...], convention: str
) -> Operations:
    """Count the operations of an architecture, softmax included as in AIPerf Table I."""
    traced = with_loss(trace_of(architecture, input_shape=input_shape), "softmax")
    count = count_trace(traced, convention=convention)
    return count.as_record()


def trace_of(architecture: Architecture, *, input_shape: tuple[int, ...]) -> Trace:
    """Return the operators of one image in the order they run."""
    shapes: dict[int, Shape] = {}
    ops: list[Op] = []
    for layer in architecture.layers:
        inputs = [shapes[source] for source in layer.inputs] or [(1, *input_shape)]
        shapes[layer.number] = _output(layer, inputs)
        ops += _operators(layer, inputs, shapes[layer.number], of_images=layer.inputs == (0,))
    parameters = sum(op.attributes.get("parameters", 0) for op in ops)
    return Trace(tuple(ops), parameters, 1, (shapes[architecture.layers[-1].number],))


def _output(layer: Layer, inputs: list[Shape]) -> Shape:
    batch, channels, *size = inputs[0]
    if layer.kind in ("convolution", "max_pool"):
        channels = layer.channels or channels
        size = [(length + 2 * layer.padding - layer.kernel) // layer.stride + 1 for length in size]
        return batch, channels, *size
    if layer.kind == "concat":
        return batch, sum(shape[1] for shape in inputs), *size
    if layer.kind == "global_pool":
        return batch, channels
    return (batch, layer.channels) if layer.kind == "dense" else inputs[0]


def _operators(
    layer: Layer, inputs: list[Shape], output: Shape, *, of_images: bool
) -> Iterator[Op]:
    inside = inputs[0][1]
    if layer.kind in ("convolution", "dense"):
        square = (layer.kernel, layer.kernel) if layer.kind == "convolution" else ()
        weight = (layer.channels, inside, *square)
        bias = layer.channels if layer.kind == "dense" else 0
        learned = prod(weight) + bias
        # The gradient of the input image is not computed.
        attributes = {
            "gradients": 1 if of_images else 2, "parameters": learned, "updated": learned,
        }  # fmt: skip
        factors = (inputs[0], weight if square else weight[::-1])
        yield Op(layer.kind, Shapes(factors, (output,)), attributes)
    elif layer.kind == "batch_norm":
        yield Op("batch_norm", Shapes((inputs[0],), (output,)), {"parameters": 2 * inside})
    elif layer.kind == "relu":
        yield Op("relu", Shapes((inputs[0],), (output,)))
    elif layer.kind == "max_pool":
        yield Op("max_pool", Shapes((inputs[0],), (output,)), {"kernel": layer.kernel**2})
    elif layer.kind == "global_pool":
        yield Op("average_pool", Shapes((inputs[0],), ((*output, 1, 1),)))
    elif layer.kind == "add":
        for other in inputs[1:]:
            yield Op("add", Shapes((output, other), (output,)))
