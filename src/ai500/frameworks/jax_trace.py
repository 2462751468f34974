"""From JAX's graph (a jaxpr) to the framework-neutral graph that is counted.

A layer of `jax_backend.py` is one equation of the graph, a nested `jit` under the layer's name.
Convolutions and products are read from the primitive inside. An equation that is neither a layer
nor a movement of data is reported by its name, never dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ai500.operations.graph import UNKNOWN, Op, Shape, Shapes, Trace

LAYERS = {
    "convolution": "convolution",
    "batch_norm": "batch_norm",
    "batch_norm_training": "batch_norm",
    "relu": "relu",
    "add": "add",
    "max_pool": "max_pool",
    "average_pool": "average_pool",
    "dense": "dense",
}
"""Name of a layer's function → kind of the operator."""
MOVEMENTS = {
    *("convert_element_type", "transpose", "reshape", "squeeze", "broadcast_in_dim", "copy"),
    *("slice", "concatenate", "stop_gradient", "copy_p"),
}
UPDATED = ("convolution", "dense")
"""Kinds whose parameters AIPerf's Table II updates."""
POOLING_WINDOW = "window_dimensions"


def trace_of(closed: Any, weights: Mapping[str, Any], *, batch: int) -> Trace:
    """Return the operators of a jaxpr whose first arguments are these weights, in their order."""
    jaxpr = closed.jaxpr
    # JAX flattens dicts in the order of their sorted keys.
    owners = dict(zip(map(id, jaxpr.invars), sorted(weights), strict=False))
    sizes = {name: math.prod(value.shape) for name, value in weights.items()}
    trained: set[int] = {id(variable) for variable in jaxpr.invars[: len(weights)]}
    seen: set[str] = set()
    ops = []
    for equation in jaxpr.eqns:
        names = [owners[id(v)] for v in equation.invars if id(v) in owners]
        new = sum(sizes[name] for name in names if name not in seen)
        seen.update(names)
        if any(id(variable) in trained for variable in equation.invars):
            trained.update(map(id, equation.outvars))
        if _kind(equation) == "data_movement" and names:  # a cast weight is the weight
            owners.update(dict.fromkeys(map(id, equation.outvars), names[0]))
        ops.append(_op(equation, new=new, trained=trained))
    output = tuple(int(size) for size in jaxpr.outvars[0].aval.shape)
    return Trace(tuple(ops), parameters=sum(sizes.values()), batch=batch, outputs=(output,))


def _op(equation: Any, *, new: int, trained: set[int]) -> Op:
    kind = _kind(equation)
    inputs = [variable for variable in equation.invars if hasattr(variable.aval, "shape")]
    attributes = {"parameters": new}
    if kind in UPDATED:
        attributes["updated"] = new
        attributes["gradients"] = sum(id(variable) in trained for variable in inputs[:2])
    if kind == "max_pool":
        (window,) = (e for e in _inner(equation) if POOLING_WINDOW in e.params)
        attributes["kernel"] = math.prod(window.params[POOLING_WINDOW])
    return Op(
        kind=kind,
        shapes=_shapes(kind, inputs, equation.outvars),
        attributes={key: value for key, value in attributes.items() if value},
        operator=_name(equation),
    )


def _shapes(kind: str, inputs: list[Any], outputs: list[Any]) -> Shapes:
    """Return the shapes in the neutral graph's order: N×C×H×W, O×I×H×W."""
    arguments, results = map(_channels_first, inputs), tuple(map(_channels_first, outputs))
    if kind == "convolution":
        data, kernel = (tuple(map(int, variable.aval.shape)) for variable in inputs[:2])
        height, width, channels_in, channels_out = kernel
        weight = (channels_out, channels_in, height, width)
        return Shapes((_first(data), weight), results)
    if kind == "dense":
        data, weight, *_ = arguments
        return Shapes((data, weight[::-1]), results)
    if kind == "average_pool":
        return Shapes(tuple(arguments), ((*results[0], 1, 1),))
    return Shapes(tuple(arguments), results)


def _channels_first(variable: Any) -> Shape:
    return _first(tuple(int(size) for size in variable.aval.shape))


def _first(shape: Shape) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) == 4 else shape


def _kind(equation: Any) -> str:
    name = _name(equation)
    if name in LAYERS:
        return LAYERS[name]
    return "data_movement" if name in MOVEMENTS else UNKNOWN


def _name(equation: Any) -> str:
    """Return the name of a nested function, or of a primitive."""
    return str(equation.params.get("name") or equation.primitive.name)


def _inner(equation: Any) -> Iterator[Any]:
    """Yield the equations inside of a nested function, at any depth."""
    nested = equation.params.get("jaxpr")
    for inner in nested.jaxpr.eqns if nested is not None else ():
        yield inner
        yield from _inner(inner)
