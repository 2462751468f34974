"""Layers of a StableHLO program, which prints only their parts.

Normalization, softmax, mean, pooling, ReLU and biases are recognized by the data flow between
their parts, so that they count as the same layers of other frameworks do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isqrt
from typing import NamedTuple

from ai500.operations.graph import Shape
from ai500.operations.stablehlo.program import VIEWS, Instruction, Program, Value

#: Arithmetic between the input of a normalization and its statistics.
_STATISTICS = {
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "reduce", "negate"),
    *("select", "is_finite", "compare", "constant", "abs", "square"),
}
_MAX_AFFINE = 2  # scale and shift of a normalization
_PRODUCTS = ("convolution", "dot_general", "dot")
_GELU_PARTS = ("add", "multiply", "tanh", "power")
_GELU_CONSTANTS = (0.5, 1.0, 0.044715, 0.7978845608)
"""GELU by tanh: 0.5 · x · (1 + tanh(0.798 · (x + 0.0447 · x³)))."""


class Layer(NamedTuple):
    """A recognized layer, in place of its last instruction; `parts` are its instructions."""

    kind: str
    input_shape: Shape
    last: Instruction
    parts: frozenset[Instruction]


def recognize(program: Program) -> list[Layer]:
    """Recognize the layers of a program; no instruction is part of two of them."""
    users = _users(program)
    layers: list[Layer] = []
    taken: set[Instruction] = set()
    recognizers = (
        _softmax, _log_softmax, _normalization, _mean, _gelu, _embedding, _negative_log_likelihood,
    )  # fmt: skip
    for recognizer in recognizers:
        for instruction in program.instructions:
            if instruction in taken:
                continue
            layer = recognizer(instruction, users)
            if layer is not None and taken.isdisjoint(layer.parts):
                layers.append(layer)
                taken |= layer.parts
    return layers


Users = dict[Value, list[Instruction]]


def _users(program: Program) -> Users:
    users: Users = {}
    for instruction in program.instructions:
        for operand in dict.fromkeys(instruction.operands):
            users.setdefault(operand, []).append(instruction)
    return users


def origin(value: Value) -> Value:
    """Return the value that this one is a view or copy of."""
    while value.producer is not None and value.producer.operator in VIEWS:
        value = value.producer.operands[0]
    return value


def made_by(value: Value, *operators: str) -> Instruction | None:
    """Return the instruction that made the origin of a value, if it is one of `operators`."""
    producer = origin(value).producer
    return producer if producer is not None and producer.operator in operators else None


def is_zero(value: Value) -> bool:
    """Return True for a constant of zeros."""
    try:
        return value.constant is not None and float(value.constant) == 0
    except ValueError:
        return False


def is_bias(instruction: Instruction) -> bool:
    """Return True for a parameter per feature added to a convolution or a product."""
    if instruction.operator != "add":
        return False
    for data, other in _both_ways(instruction):
        product, bias = made_by(data, *_PRODUCTS), origin(other)
        if product is not None and bias.owner is not None:
            return bias.elements in (max(bias.shape, default=0), _features(product))
    return False


def _features(product: Instruction) -> int:
    """Return the columns of a product with a weight; they may be several dimensions (heads)."""
    left, right = product.operands[:2]
    weight = right if right.owner is not None else left
    contracted = isqrt(left.elements * right.elements // max(1, product.result.elements))
    return weight.elements // max(1, contracted)


def _both_ways(instruction: Instruction) -> Iterator[tuple[Value, Value]]:
    left, right = instruction.operands
    yield left, right
    yield right, left


def _summed(value: Value, reducer: str = "add") -> Instruction | None:
    """Return the reduction of one operand that made a value."""
    reduce = made_by(value, "reduce")
    return reduce if reduce and reduce.reducer == reducer else None


def _softmax(last: Instruction, users: Users) -> Layer | None:
    """Match exp(x − max) / sum(exp(x − max))."""
    if last.operator != "divide":
        return None
    exponential = made_by(last.operands[0], "exponential")
    total = _summed(last.operands[1])
    if exponential is None or total is None or origin(total.operands[0]) is not exponential.result:
        return None
    source, shift = _shift(exponential.operands[0])
    return Layer("softmax", source.shape, last, frozenset({last, total, exponential, *shift}))


def _log_softmax(last: Instruction, users: Users) -> Layer | None:
    """Match (x − max) − log(sum(exp(x − max)))."""
    if last.operator != "subtract":
        return None
    logarithm = made_by(last.operands[1], "log")
    total = _summed(logarithm.operands[0]) if logarithm else None
    exponential = made_by(total.operands[0], "exponential") if total else None
    if logarithm is None or total is None or exponential is None:
        return None
    if origin(exponential.operands[0]) is not origin(last.operands[0]):
        return None
    source, shift = _shift(last.operands[0])
    parts = frozenset({last, logarithm, total, exponential, *shift})
    return Layer("log_softmax", source.shape, last, parts)


def _shift(value: Value) -> tuple[Value, set[Instruction]]:
    """Return x of x − max(x), and the parts of the subtraction; without one the value itself."""
    subtract = made_by(value, "subtract")
    if subtract is None:
        return value, set()
    parts = {subtract}
    largest = subtract.operands[1]
    while (guard := made_by(largest, "maximum", "select")) is not None:
        parts.add(guard)  # against a maximum that is −∞
        if guard.operator == "select":
            if (finite := made_by(guard.operands[0], "is_finite")) is not None:
                parts.add(finite)
            largest = guard.operands[1]
        else:
            left, right = guard.operands
            largest = left if right.constant is not None else right
    maximum = _summed(largest, "maximum")
    if maximum is None or origin(maximum.operands[0]) is not origin(subtract.operands[0]):
        return value, set()
    return subtract.operands[0], {*parts, maximum}


def _gelu(last: Instruction, users: Users) -> Layer | None:
    """Match GELU by tanh: from its product with x back to x there is arithmetic of x alone."""
    if last.operator != "multiply":
        return None
    for source, factor in _both_ways(last):
        parts, constants, waiting = {last}, set(), [factor]
        while waiting:
            value = origin(waiting.pop())
            if value is origin(source):
                continue
            if value.constant is not None:
                constants.add(value.constant)
            elif value.producer is not None and value.producer.operator in _GELU_PARTS:
                if value.producer not in parts:
                    parts.add(value.producer)
                    waiting += value.producer.operands
            else:
                break
        else:
            is_tanh = sum(part.operator == "tanh" for part in parts) == 1
            if is_tanh and all(_has_value(constants, number) for number in _GELU_CONSTANTS):
                return Layer("gelu", source.shape, last, frozenset(parts))
    return None


def _has_value(constants: Iterable[str], number: float) -> bool:
    """Return True where a printed constant is this number, in any precision."""
    for constant in constants:
        try:
            if abs(float(constant) - number) < 0.01 * number:
                return True
        except ValueError:
            continue
    return False


def _embedding(last: Instruction, users: Users) -> Layer | None:
    """Match rows of a trained table, chosen by integers."""
    if last.operator != "gather":
        return None
    table, indices = last.operands[:2]
    rows_of_table = (*indices.shape[:-1], *table.shape[1:])
    if table.owner is None or len(table.shape) != 2 or last.result.shape != rows_of_table:
        return None
    return Layer("embedding", table.shape, last, frozenset({last}))


def _negative_log_likelihood(last: Instruction, users: Users) -> Layer | None:
    """Match the negative of chosen log-probabilities."""
    if last.operator != "negate":
        return None
    chosen = made_by(last.operands[0], "gather", "select")
    parts = {last}
    if chosen is not None and chosen.operator == "select":  # NaN for an index outside
        parts.add(chosen)
        chosen = made_by(chosen.operands[1], "gather")
    if chosen is None:
        return None
    subtract = made_by(chosen.operands[0], "subtract")
    if subtract is None or _log_softmax(subtract, users) is None:
        return None
    return Layer("nll_loss", subtract.result.shape, last, frozenset({*parts, chosen}))


def _mean(last: Instruction, users: Users) -> Layer | None:
    """Match sum(x) / n, by a division or a product with 1 / n; n is a constant."""
    if last.operator not in ("divide", "multiply") or last.operands[1].constant is None:
        return None
    total = made_by(last.operands[0], "reduce", "reduce_window")
    if total is None or total.reducer != "add" or total.repeats != last.repeats:
        return None
    data = total.operands[0]
    is_pool = total.operator == "reduce_window" or _is_global_pool(total)
    parts = frozenset({last, total})
    return Layer("average_pool" if is_pool else "mean", data.shape, last, parts)


def _is_global_pool(total: Instruction) -> bool:
    """Return True for a sum over all spatial dimensions, with channels first or last."""
    rank = len(total.operands[0].shape)
    dimensions = total.statement.whole_numbers("dimensions")
    return rank >= 4 and dimensions in (tuple(range(1, rank - 1)), tuple(range(2, rank)))


def _normalization(root: Instruction, users: Users) -> Layer | None:
    """Match (x − mean) · rsqrt(variance + ε) · scale + shift; without mean an RMS norm.

    The mean and variance come from x, or in inference from arguments.
    """
    if root.operator not in ("rsqrt", "sqrt"):
        return None
    statistics = _Statistics(root)
    normalized = _normalized(root, statistics, users)
    if normalized is None:
        return None
    last, data, parts = normalized
    parts |= statistics.parts | {root}
    for _ in range(_MAX_AFFINE):
        following = [user for user in _uses(last.result, users) if _is_affine(user, last)]
        if not following:
            break
        last = following[0]
        parts.add(last)
    parts |= _running_statistics(parts, users)
    return Layer(statistics.kind(data), data.shape, last, frozenset(parts))


class _Statistics:
    """Instructions from the input of a normalization to its root, and that input."""

    def __init__(self, root: Instruction) -> None:
        self.parts: set[Instruction] = set()
        self.source: Value | None = None
        frontier = [root.operands[0]]
        while frontier:
            frontier.sort(key=_position)
            value = frontier.pop()
            if self._reductions() and not frontier and not self._is_inside(value):
                self.source = value
                return
            producer = value.producer
            if producer is None:
                continue
            if producer.operator not in _STATISTICS | VIEWS:
                self.source = value if self._reductions() else None
                self.parts = self.parts if self.source else set()
                return
            self.parts.add(producer)
            inputs = producer.operands[:1] if producer.operator == "reduce" else producer.operands
            for operand in inputs:
                if not operand.is_fixed and operand not in frontier:
                    frontier.append(operand)

    def _reductions(self) -> list[Instruction]:
        return [part for part in self.parts if part.operator == "reduce"]

    def _is_inside(self, value: Value) -> bool:
        """Return True between the sum and its input: a square, or x less its mean."""
        producer = value.producer
        if producer is None:
            return False
        if producer.operator in VIEWS or producer.operator in ("power", "abs", "square"):
            return producer.operator != "convert" or self._is_inside(producer.operands[0])
        if producer.operator == "multiply":
            left, right = map(origin, producer.operands)
            return left is right
        return producer.operator == "subtract" and _is_centred(producer)

    def kind(self, data: Value) -> str:
        """Name the normalization by the dimensions of its sums."""
        sums = self._reductions()
        if not sums:
            return "batch_norm"  # inference: the statistics are arguments
        dimensions = sums[0].statement.whole_numbers("dimensions") or ()
        rank = len(sums[0].operands[0].shape)
        if 0 in dimensions and rank > len(dimensions):
            return "batch_norm"
        if dimensions != tuple(range(rank - len(dimensions), rank)):
            return "group_norm"
        return "layer_norm" if any(p.operator == "subtract" for p in self.parts) else "rms_norm"


def _position(value: Value) -> int:
    return -1 if value.producer is None else value.producer.position


def _is_centred(subtract: Instruction) -> bool:
    """Return True for x − mean(x)."""
    *_, total = (None, *_mean_parts(subtract.operands[1]))
    return total is not None and origin(total.operands[0]) is origin(subtract.operands[0])


def _mean_parts(value: Value) -> list[Instruction]:
    """Return the division and the sum of a mean."""
    average = made_by(value, "divide", "multiply", "reduce")
    if average is None or average.operator == "reduce":
        return [average] if average else []
    total = made_by(average.operands[0], "reduce")
    return [average, total] if total else []


def _normalized(
    root: Instruction, statistics: _Statistics, users: Users
) -> tuple[Instruction, Value, set[Instruction]] | None:
    """Find the product of the data with the root: product, data, and the parts between them."""
    parts: set[Instruction] = set()
    pending = [root.result]
    while pending:
        scale = pending.pop()
        for user in _uses(scale, users):
            if user.operator not in ("multiply", "divide"):
                continue
            index = next(i for i, operand in enumerate(user.operands) if origin(operand) is scale)
            other = user.operands[1 - index]
            data = _data_of(other, statistics)
            if data is not None and data.elements > root.result.elements:
                parts.add(user)
                if (centred := made_by(other, "subtract")) is not None and data is not other:
                    parts |= {centred, *_mean_parts(centred.operands[1])}
                return user, data, parts
            if origin(other).owner is not None and user.operator == "multiply":
                parts.add(user)  # the scale, before the product with the data
                pending.append(user.result)
    return None


def _data_of(value: Value, statistics: _Statistics) -> Value | None:
    """Return x if `value` is x or x − mean: the input of the statistics, or any in inference."""
    subtract = made_by(value, "subtract")
    data = subtract.operands[0] if subtract else value
    if statistics.source is None:  # the mean is an argument
        is_centred = subtract is not None and origin(subtract.operands[1]).owner is not None
        return data if is_centred else None
    for candidate in (value, data):
        if origin(candidate) is origin(statistics.source):
            return candidate
    return None


def _uses(value: Value, users: Users) -> Iterator[Instruction]:
    """Yield the users of a value and of its views."""
    for user in users.get(value, ()):
        if user.operator in VIEWS:
            yield from _uses(user.result, users)
        else:
            yield user


def _is_affine(user: Instruction, previous: Instruction) -> bool:
    """Return True for a product or sum with a broadcast parameter."""
    if user.operator not in ("multiply", "add"):
        return False
    return any(
        origin(data) is previous.result
        and origin(other).owner is not None
        and origin(other).elements < data.elements
        for data, other in _both_ways(user)
    )


def _running_statistics(parts: Iterable[Instruction], users: Users) -> set[Instruction]:
    """Find the update of running statistics: m·old + (1 − m)·new, on vectors of the channels."""
    updates: set[Instruction] = set()
    vectors = [part.result for part in parts if part.results and len(part.result.shape) <= 1]
    for vector in vectors:
        for weighted in _uses(vector, users):
            if weighted.operator != "multiply" or not _has_constant(weighted):
                continue
            for total in _uses(weighted.result, users):
                old = next(
                    (
                        producer
                        for operand in total.operands
                        if (producer := made_by(operand, "multiply")) is not None
                        and producer is not weighted
                        and any(origin(value).owner is not None for value in producer.operands)
                    ),
                    None,
                )
                if total.operator == "add" and old is not None:
                    updates |= {weighted, total, old}
    return updates


def _has_constant(instruction: Instruction) -> bool:
    return any(operand.constant is not None for operand in instruction.operands)
