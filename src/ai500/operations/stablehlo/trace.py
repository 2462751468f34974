"""Trace of a StableHLO module: the framework-neutral graph that the conventions count."""

from __future__ import annotations

import re
from collections.abc import Collection
from math import prod

from ai500.core.errors import InputError
from ai500.operations.graph import PRODUCTS, UNKNOWN, Op, Shape, Shapes, Trace
from ai500.operations.stablehlo.kinds import KINDS
from ai500.operations.stablehlo.layers import Layer, is_bias, is_zero, recognize
from ai500.operations.stablehlo.program import Instruction, Program, Value, flatten
from ai500.operations.stablehlo.text import REMEDY, parse

_PRODUCTS = ("dot_general", "dot")
#: Kinds whose parameters AIPerf's Table II updates.
_UPDATED_KINDS = {"convolution", "dense", "bias"}
#: Operators of a scatter that combines the updates with the old elements.
_SUMS = ("add", "multiply", "maximum", "minimum")
_BITS = re.compile(r"\d+")
#: Custom calls that only mark a value: partitions and placement.
_MARKS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement")


def trace_stablehlo(
    text: str,
    *,
    parameters: Collection[int] | None = None,
    batch: int | None = None,
    source: str = "StableHLO text",
) -> Trace:
    """Trace the forward pass that StableHLO text describes.

    `parameters` are the numbers of main's arguments that are trained (JAX flattens `f(params,
    data)` in this order); by default every floating-point argument but the last, the data.
    `batch` is by default the first size of the last argument. The text may also contain a whole
    training step: see `training_step.step_difference`.
    """
    try:
        return _traced(text, parameters=parameters, batch=batch, source=source)
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{source} is damaged: operands, types or regions of an operation are missing "
            f"({error!r}).",
            key="model",
            remedy=REMEDY,
        ) from error


def _traced(
    text: str, *, parameters: Collection[int] | None, batch: int | None, source: str
) -> Trace:
    program = flatten(parse(text, source=source), parameters=parameters, source=source)
    trained = [argument for argument in program.arguments if argument.needs_gradient]
    data = program.arguments[-1] if program.arguments else None
    if batch is None:
        batch = data.shape[0] if data is not None and data.shape else 1
    return Trace(
        ops=tuple(_Tracer(program).ops()),
        parameters=sum(argument.elements for argument in trained),
        batch=batch,
        outputs=tuple(result.shape for result in program.results),
        inputs=(data.shape,) if data is not None else (),
    )


class _Tracer:
    """Converter of a program's instructions and layers to operators."""

    def __init__(self, program: Program) -> None:
        self._program = program
        layers = recognize(program)
        self._layers = {layer.last: layer for layer in layers}
        self._parts = {part for layer in layers for part in layer.parts}
        self._seen: set[int] = set()
        self._updated: set[int] = set()

    def ops(self) -> list[Op]:
        """Return the operators in order of execution."""
        operators: list[Op] = []
        for instruction in self._program.instructions:
            layer = self._layers.get(instruction)
            if layer is not None:
                operators.append(self._layer_op(layer))
            elif instruction not in self._parts and (op := self._op(instruction)) is not None:
                operators.append(op)
        return operators

    def _layer_op(self, layer: Layer) -> Op:
        shapes = Shapes((layer.input_shape,), (layer.last.result.shape,))
        values = [value for part in layer.parts for value in part.operands]
        attributes = self._attributes(layer.kind, layer.last, values)
        windows = [part for part in layer.parts if part.operator == "reduce_window"]
        if windows:
            attributes["kernel"] = _window(windows[0])
        return _op(layer.kind, shapes, attributes, layer.last)

    def _op(self, instruction: Instruction) -> Op | None:
        kind, shapes, attributes = _read(instruction, self._program)
        if kind == "view" or not instruction.results:
            return None
        numbers = (*instruction.operands, *instruction.results)
        is_constant = all(value.is_fixed for value in instruction.results)
        is_index = kind not in PRODUCTS and not any(value.is_number for value in numbers)
        if kind != UNKNOWN and (is_constant or is_index):
            kind = "data_movement"  # computed once, or indices and counters
        attributes |= self._attributes(kind, instruction, instruction.operands)
        return _op(kind, shapes, attributes, instruction)

    def _attributes(
        self, kind: str, instruction: Instruction, operands: Collection[Value]
    ) -> dict[str, int]:
        attributes = {"repeats": instruction.repeats if instruction.repeats > 1 else 0}
        attributes["parameters"] = self._first_seen(operands, self._seen)
        if kind in _UPDATED_KINDS:
            attributes["updated"] = self._first_seen(operands, self._updated)
        attributes["activation_bytes"] = instruction.repeats * sum(map(_bytes, instruction.results))
        return attributes

    def _first_seen(self, values: Collection[Value], seen: set[int]) -> int:
        """Count the elements of trained arguments among `values` that are not in `seen`."""
        arguments = self._program.arguments
        owners = {value.owner for value in values if value.owner is not None}
        new = {owner for owner in owners if arguments[owner].needs_gradient} - seen
        seen |= new
        return sum(arguments[owner].elements for owner in new)


def _op(kind: str, shapes: Shapes, attributes: dict[str, int], instruction: Instruction) -> Op:
    return Op(
        kind=kind,
        shapes=shapes,
        attributes={key: value for key, value in attributes.items() if value},
        module=_module(instruction.location),
        operator=_operator_name(instruction),
    )


def _operator_name(instruction: Instruction) -> str:
    """Name an operator as printed, with the target of a custom call."""
    name = instruction.statement.name
    if instruction.operator == "custom_call":
        target = re.search(r"@\"?([^\s\"(]+)|call_target_name = \"([^\"]+)\"", _text(instruction))
        return f"{name} @{target[1] or target[2]}" if target else name
    if instruction.operator == "while":
        return f"{name} (unknown number of iterations)"
    return name


def _text(instruction: Instruction) -> str:
    return instruction.statement.text


def _module(location: str) -> str:
    """Turn a location such as `jit(f)/ResNet/conv/add` into the module path `ResNet.conv`."""
    parts = location.split("/")[:-1]
    return ".".join(part for part in parts if part and "(" not in part)


def _read(instruction: Instruction, program: Program) -> tuple[str, Shapes, dict[str, int]]:
    """Return an instruction's kind, the shapes that its rule reads, and its attributes."""
    operator = instruction.operator
    if operator == "convolution":
        return _convolution(instruction)
    if operator in _PRODUCTS:
        return _product(instruction, program)
    shapes = Shapes(
        tuple(operand.shape for operand in instruction.operands),
        tuple(result.shape for result in instruction.results),
    )
    if operator == "reduce_window":
        return _reduce_window(instruction, shapes)
    if operator == "custom_call":
        is_mark = any(f"@{mark}" in _text(instruction)[:80] for mark in _MARKS)
        return ("view" if is_mark else UNKNOWN), shapes, {}
    if operator == "maximum" and any(map(is_zero, instruction.operands)):
        return "relu", shapes, {}
    if is_bias(instruction):
        return "bias", shapes, {}
    if operator == "scatter":
        # Without an operator it writes and computes nothing; else it adds the updates.
        kind = "sum" if instruction.reducer in _SUMS else "data_movement"
        return kind, Shapes(shapes.inputs[-1:], shapes.outputs), {}
    if operator == "fft":
        return "fft", shapes, _transform(instruction)
    if operator == "abs" and instruction.operands[0].is_complex:
        return "complex_abs", shapes, {}
    is_complex = any(result.is_complex for result in instruction.results)
    attributes = {"complex": _complex_inputs(instruction)} if is_complex else {}
    return KINDS.get(operator, UNKNOWN), shapes, attributes


def _complex_inputs(instruction: Instruction) -> int:
    """Count the complex tensors among the first two operands."""
    return sum(operand.is_complex for operand in instruction.operands[:2])


def _transform(instruction: Instruction) -> dict[str, int]:
    """Read the length of a Fourier transform over all its dimensions."""
    lengths = instruction.statement.whole_numbers("length", "fft_length") or ()
    is_real = re.search(r"\bI?RFFT\b", _text(instruction)) is not None
    return {"points": prod(lengths), "real": int(is_real)}


def _reduce_window(instruction: Instruction, shapes: Shapes) -> tuple[str, Shapes, dict[str, int]]:
    """Read a window: maxima are a pooling, sums count each of their terms.

    A window over a whole dimension that keeps its size is a cumulative sum: each element once.
    """
    kernel, data = _window(instruction), shapes.inputs[0]
    window = instruction.statement.whole_numbers("window_dimensions") or ()
    covers = all(size in (1, whole) for size, whole in zip(window, data, strict=True))
    if covers and data == shapes.outputs[0]:
        return "sum", shapes, {}
    if instruction.reducer in ("maximum", "minimum"):
        return "max_pool", shapes, {"kernel": kernel}
    terms = (kernel * shapes.elements_out,)
    return "sum", Shapes((terms,), shapes.outputs), {}


def _window(instruction: Instruction) -> int:
    return prod(instruction.statement.whole_numbers("window_dimensions") or ())


def _gradients(factors: tuple[Value, ...]) -> int:
    return sum(factor.needs_gradient for factor in factors)


def _convolution(instruction: Instruction) -> tuple[str, Shapes, dict[str, int]]:
    """Read a convolution as data N×C×…, weight O×I×… and output N×C×….

    The transpose of a convolution counts its input positions, without the zeros between them and
    around them. Groups of the batch are groups of weight gradients: the output's batch counts.
    """
    data, weight = instruction.operands[:2]
    output = instruction.result
    dimensions = re.search(r"\[([^\]]*)\]x\[([^\]]*)\]->\[([^\]]*)\]", _text(instruction))
    if dimensions is None:
        return UNKNOWN, Shapes((data.shape, weight.shape), (output.shape,)), {}
    data_layout, weight_layout, output_layout = (part.split(", ") for part in dimensions.groups())
    output_shape = _ordered(output.shape, output_layout, "bf")
    data_shape = (output_shape[0], *_ordered(data.shape, data_layout, "bf")[1:])
    shapes = Shapes((data_shape, _ordered(weight.shape, weight_layout, "oi")), (output_shape,))
    attributes = {
        "gradients": _gradients((data, weight)),
        "transposed": int(_is_transposed(instruction)),
        "complex": _complex_inputs(instruction),
    }
    return "convolution", shapes, attributes


def _is_transposed(instruction: Instruction) -> bool:
    """Return True for a dilated input, or a reversed kernel with a stride of 1."""
    statement = instruction.statement
    dilation = statement.whole_numbers("lhs_dilate", "lhs_dilation") or ()
    strides = statement.whole_numbers("stride", "window_strides") or ()
    producer = instruction.operands[1].producer
    is_reversed = producer is not None and producer.operator == "reverse"
    is_strided = any(stride > 1 for stride in strides)
    return any(size > 1 for size in dilation) or (is_reversed and not is_strided)


def _ordered(shape: Shape, layout: list[str], leading: str) -> Shape:
    """Order sizes by the two leading letters of a layout, then by the spatial numbers."""
    sizes = dict(zip(layout, shape, strict=True))
    spatial = [sizes[str(number)] for number in range(len(shape) - 2)]
    return (*(sizes[letter] for letter in leading), *spatial)


def _product(instruction: Instruction, program: Program) -> tuple[str, Shapes, dict[str, int]]:
    """Read a product as (batch, rows, contracted) times (batch, contracted, columns).

    Without batching dimensions the factors are matrices, as in other frameworks' graphs.
    """
    left, right = instruction.operands[:2]
    batching, contracting = _dimension_pairs(instruction)
    batch = [left.shape[dimension] for dimension in batching]
    contracted = [left.shape[dimension] for dimension in contracting]
    rows = left.elements // max(1, prod(batch) * prod(contracted))
    columns = right.elements // max(1, prod(batch) * prod(contracted))
    leading = (prod(batch),) if batch else ()
    shapes = Shapes(
        ((*leading, rows, prod(contracted)), (*leading, prod(contracted), columns)),
        (instruction.result.shape,),
    )
    arguments = program.arguments
    owners = [factor.owner for factor in (left, right) if factor.owner is not None]
    is_dense = any(arguments[owner].needs_gradient for owner in owners)
    attributes = {
        "gradients": _gradients((left, right)),
        "complex": _complex_inputs(instruction),
    }
    return "dense" if is_dense else "matmul", shapes, attributes


def _dimension_pairs(instruction: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the batching and contracting dimensions of the left factor."""
    statement = instruction.statement
    if instruction.operator == "dot":
        return (), (len(instruction.operands[0].shape) - 1,)
    batching = statement.whole_numbers("batching_dims", "lhs_batching_dimensions")
    contracting = statement.whole_numbers("contracting_dims", "lhs_contracting_dimensions")
    return batching or (), contracting or ()


def _bytes(value: Value) -> int:
    bits = int(width[0]) if (width := _BITS.search(value.dtype)) else 0
    return value.elements * bits * (2 if value.is_complex else 1) // 8
