"""File of a counted graph: compact, canonical JSON, from which anyone counts again without torch.

A row is one operator: kind, shapes of inputs and outputs, attributes, and the framework's name of
an operator that no rule counts. Module paths do not change a count and are left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ai500.core.errors import InputError
from ai500.operations.count import count_trace
from ai500.operations.graph import Op, Shape, Shapes, Trace
from ai500.operations.rules import CONVENTIONS
from ai500.records import Operations

FORMAT = 1
# Bounds for a graph of an untrusted author; the largest built-in one has under 2,000 operators.
MAX_OPERATORS = 100_000
MAX_NUMBER = 1 << 62
MAX_DIMENSIONS = 16


def graph_bytes(trace: Trace) -> bytes:
    """Return the only file that a counted graph has."""
    rows = []
    for op in trace.ops:
        name = op.operator if not _counted_everywhere(op.kind) else ""
        shapes = [op.shapes.inputs, op.shapes.outputs]
        rows.append([op.kind, *shapes, dict(sorted(op.attributes.items())), name])
    graph = {"batch": trace.batch, "format": FORMAT, "ops": rows, "parameters": trace.parameters}
    return json.dumps(graph, separators=(",", ":"), ensure_ascii=False).encode()


def graph_digest(data: bytes) -> str:
    """Return the SHA-256 of a graph's file."""
    return hashlib.sha256(data).hexdigest()


def read_graph(data: bytes) -> Trace:
    """Read a graph's file; raise an InputError unless it is exactly as `graph_bytes` writes it."""
    try:
        graph = json.loads(data)
        rows = graph["ops"]
        if len(rows) > MAX_OPERATORS:
            raise InputError(f"a graph of {len(rows)} operators; at most {MAX_OPERATORS} are read.")
        ops = tuple(_op(*row) for row in rows)
        trace = Trace(ops, parameters=_number(graph["parameters"]), batch=_number(graph["batch"]))
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"not a counted graph: {error!r:.200}.") from error
    if trace.batch < 1 or graph_bytes(trace) != data:
        raise InputError("not a counted graph as ai500 writes it.")
    return trace


def recount(trace: Trace) -> dict[str, Operations]:
    """Count the graph by every convention."""
    return {name: count_trace(trace, convention=name).as_record() for name in CONVENTIONS}


def _counted_everywhere(kind: str) -> bool:
    return all(kind in convention.rules for convention in CONVENTIONS.values())


def _op(kind: str, inputs: Any, outputs: Any, attributes: Mapping[str, Any], name: str) -> Op:
    if not isinstance(kind, str) or not isinstance(name, str):
        raise TypeError("kind or name is not a string")
    numbers = {key: _number(value) for key, value in attributes.items()}
    shapes = Shapes(tuple(map(_shape, inputs)), tuple(map(_shape, outputs)))
    return Op(kind, shapes, numbers, operator=name)


def _shape(dimensions: Any) -> Shape:
    if len(dimensions) > MAX_DIMENSIONS:
        raise ValueError("too many dimensions")
    return tuple(map(_number, dimensions))


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise ValueError("not a whole number that a graph may have")
    return value
