"""Program of a StableHLO module: its instructions in order of execution, on values with shapes.

Calls are inlined. The body of a loop stands once, with the number of its executions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import ceil, prod

from ai500.core.errors import InputError
from ai500.operations.graph import Shape
from ai500.operations.stablehlo.text import REMEDY, Function, Region, Statement, TensorType

#: Operations whose result has the elements of the first operand: a view, a copy, a part, a cast.
VIEWS = {
    *("reshape", "transpose", "broadcast_in_dim", "broadcast", "convert", "reverse", "slice"),
    *("dynamic_slice", "dynamic_reshape", "reduce_precision", "copy", "sharding_constraint"),
    *("optimization_barrier", "bitcast_convert", "propagation_barrier"),
}
_CALLS = {"call", "composite"}
_RETURNS = {"return"}


@dataclass(eq=False, slots=True)
class Value:
    """A tensor of the program."""

    shape: Shape
    dtype: str
    producer: Instruction | None = None
    owner: int | None = None
    """Argument of main that it is a view or copy of."""
    constant: str | None = None
    """Printed value of a constant whose elements are equal."""
    needs_gradient: bool = False
    """True if it depends on a trained parameter."""
    is_fixed: bool = False
    """True if it depends on no argument."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def is_number(self) -> bool:
        """True for floating-point and complex types; integers are indices and counters."""
        return self.dtype.startswith(("f", "bf", "complex"))

    @property
    def is_complex(self) -> bool:
        return self.dtype.startswith("complex")


@dataclass(eq=False, slots=True)
class Instruction:
    """An executed operation; `operator` has no dialect: `add`, `convolution`."""

    operator: str
    operands: tuple[Value, ...]
    statement: Statement
    location: str = ""
    repeats: int = 1
    results: tuple[Value, ...] = ()
    position: int = 0

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def reducer(self) -> str:
        """Operator that a reduction applies; `custom` if its region has several."""
        match = re.search(r"applies (?:\w+\.)?(\w+)", self.statement.text)
        if match:
            return match[1]
        regions = self.statement.regions
        names = [s.name.rpartition(".")[2] for s in (regions[-1].statements if regions else ())]
        inside = [name for name in names if name != "return"]
        return inside[0] if len(inside) == 1 else "custom"


@dataclass(slots=True)
class Program:
    """Instructions of main in order of execution, its arguments and its results."""

    arguments: tuple[Value, ...]
    instructions: list[Instruction] = field(default_factory=list)
    results: tuple[Value, ...] = ()


def flatten(
    functions: dict[str, Function], *, parameters: Collection[int] | None, source: str
) -> Program:
    """Inline all calls of main; `parameters` are the numbers of its trained arguments.

    None: every floating-point argument but the last.
    """
    main = functions.get("main") or next(iter(functions.values()))
    last = len(main.types) - 1
    if parameters is None:
        parameters = range(last)
    if any(not 0 <= number <= last for number in parameters):
        raise InputError(
            f"parameters = {sorted(parameters)}: main has the arguments 0 to {last}.",
            key="parameters",
            value=sorted(parameters),
            remedy="Name arguments of main; they are counted from 0.",
        )
    arguments = [_value(kind) for kind in main.types]
    for number, argument in enumerate(arguments):
        argument.owner = number
        argument.needs_gradient = number in parameters and argument.is_number
    program = Program(tuple(arguments))
    flattener = _Flattener(functions, source)
    program.results = flattener.run_region(
        main.body, dict(zip(main.body.arguments, arguments, strict=True)), program.instructions
    )
    for position, instruction in enumerate(program.instructions):
        instruction.position = position
    return program


def _value(kind: TensorType) -> Value:
    return Value(kind.shape, kind.dtype)


Scope = dict[str, Value]


class _Flattener:
    """Interpreter on shapes: it appends the instructions of a region to a list."""

    def __init__(self, functions: dict[str, Function], source: str) -> None:
        self._functions = functions
        self._source = source

    def run_region(
        self,
        region: Region,
        scope: Scope,
        executed: list[Instruction],
        *,
        repeats: int = 1,
        caller: str = "",
    ) -> tuple[Value, ...]:
        """Execute a region's statements in `scope`; return the values that it returns."""
        for statement in region.statements:
            operator = statement.name.rpartition(".")[2]
            if operator in _RETURNS:
                return self._operands(statement, scope)
            location = _inlined_location(caller, statement.location)
            if operator == "while":
                results = self._loop(statement, scope, executed, repeats, location)
            elif operator in _CALLS:
                results = self._call(statement, scope, executed, repeats, location)
            else:
                instruction = self._instruction(statement, operator, scope, repeats, location)
                executed.append(instruction)
                results = instruction.results
            scope.update(zip(statement.results, results, strict=True))
        raise InputError(
            f"{self._source}: a function or a loop does not return.", key="model", remedy=REMEDY
        )

    def _operands(self, statement: Statement, scope: Scope) -> tuple[Value, ...]:
        try:
            return tuple(scope[name] for name in statement.operands)
        except KeyError as error:
            raise InputError(
                f"{self._source}: {statement.name} uses {error.args[0]}, which is not defined.",
                key="model",
                remedy=REMEDY,
            ) from error

    def _instruction(
        self, statement: Statement, operator: str, scope: Scope, repeats: int, location: str
    ) -> Instruction:
        operands = self._operands(statement, scope)
        results = tuple(map(_value, statement.types))
        needs_gradient = any(operand.needs_gradient for operand in operands)
        instruction = Instruction(operator, operands, statement, location, repeats, results)
        is_fixed = all(operand.is_fixed for operand in operands)
        is_view = operator in VIEWS or "@Sharding" in statement.text[:20]
        for index, result in enumerate(results):
            result.producer, result.is_fixed = instruction, is_fixed
            result.needs_gradient = needs_gradient and result.is_number
            if is_view and operands:
                source = operands[index] if operator == "optimization_barrier" else operands[0]
                result.owner, result.constant = source.owner, source.constant
            elif operator == "constant":
                result.constant = _splat(statement.text)
        return instruction

    def _call(
        self,
        statement: Statement,
        scope: Scope,
        executed: list[Instruction],
        repeats: int,
        location: str,
    ) -> tuple[Value, ...]:
        names = re.findall(r"@\"?([\w.$-]+)", statement.text)
        function = self._functions.get(names[-1]) if names else None
        if function is None:
            raise InputError(
                f"{self._source}: {statement.name} of a function that is not defined: "
                f"{', '.join(names)}.",
                key="model",
                remedy=REMEDY,
            )
        operands = self._operands(statement, scope)
        inner = dict(zip(function.body.arguments, operands, strict=True))
        return self.run_region(function.body, inner, executed, repeats=repeats, caller=location)

    def _loop(
        self,
        statement: Statement,
        scope: Scope,
        executed: list[Instruction],
        repeats: int,
        location: str,
    ) -> tuple[Value, ...]:
        """Execute a loop's body once, with its number of executions.

        A loop whose number of executions depends on data is an instruction `while` by itself.
        """
        condition, body = statement.regions
        results = tuple(map(_value, statement.types))
        # Pretty form: `%carried = %initial` pairs; generic form: block arguments.
        is_pretty = not body.arguments
        names = statement.operands[::2] if is_pretty else body.arguments
        initial_names = statement.operands[1::2] if is_pretty else statement.operands
        initial = [scope[name] for name in initial_names]
        carried, returned, instructions = self._settled_body(
            body, dict(zip(names, initial, strict=True)), scope, repeats=repeats, location=location
        )
        test_names = condition.arguments or names
        test = self.run_region(
            condition, {**scope, **dict(zip(test_names, carried, strict=True))}, []
        )
        trips = _trip_count(test, carried, initial, returned)
        if trips is None:
            unknown = Instruction("while", tuple(initial), statement, location, repeats, results)
            executed.append(unknown)
        else:
            for instruction in instructions:
                instruction.repeats *= trips
            executed.extend(instruction for instruction in instructions if instruction.repeats)
        for result, value in zip(results, carried, strict=True):
            result.owner, result.constant = value.owner, value.constant
            result.needs_gradient = value.needs_gradient
        return results

    def _settled_body(
        self,
        body: Region,
        initial: dict[str, Value],
        scope: Scope,
        *,
        repeats: int,
        location: str,
    ) -> tuple[list[Value], tuple[Value, ...], list[Instruction]]:
        """Return a loop's carried values, what its body returns for them, and its instructions.

        The body is executed until it is known which carried values it leaves as they are, and which
        need a gradient.
        """
        invariant = [True] * len(initial)
        needs_gradient = [value.needs_gradient for value in initial.values()]
        # A pass that changes anything settles at least one of the two flags of a value.
        for _ in range(2 * len(initial) + 1):
            carried = [
                Value(
                    value.shape,
                    value.dtype,
                    owner=value.owner if is_invariant else None,
                    constant=value.constant if is_invariant else None,
                    needs_gradient=gradient,
                )
                for value, is_invariant, gradient in zip(
                    initial.values(), invariant, needs_gradient, strict=True
                )
            ]
            instructions: list[Instruction] = []
            inner = {**scope, **dict(zip(initial, carried, strict=True))}
            returned = self.run_region(body, inner, instructions, repeats=repeats, caller=location)
            still = [
                old and new is value
                for old, new, value in zip(invariant, returned, carried, strict=True)
            ]
            gradient = [
                old or value.needs_gradient
                for old, value in zip(needs_gradient, returned, strict=True)
            ]
            if (still, gradient) == (invariant, needs_gradient):
                break
            invariant, needs_gradient = still, gradient
        return carried, returned, instructions


def _trip_count(
    test: Sequence[Value],
    carried: Sequence[Value],
    initial: Sequence[Value],
    returned: Sequence[Value],
) -> int | None:
    """Count a loop's executions: a counter that grows by a constant up to a constant bound."""
    compare = test[0].producer if test else None
    if compare is None or compare.operator != "compare":
        return None
    counter, bound = compare.operands
    index = next((i for i, value in enumerate(carried) if value is counter), None)
    if index is None:
        return None
    first, last = _whole(initial[index]), _whole(bound)
    step = _step(returned[index], counter)
    if first is None or last is None or not step:
        return None
    direction = re.search(r"\b(LT|LE|GT|GE|NE)\b", compare.statement.text)
    if direction is None:
        return None
    distance = last - first + {"LE": 1, "GE": -1}.get(direction[1], 0)
    return max(0, ceil(distance / step))


def _step(returned: Value, counter: Value) -> int | None:
    producer = returned.producer
    if producer is None or producer.operator not in ("add", "subtract"):
        return None
    left, right = producer.operands
    if right is counter and producer.operator == "add":
        left, right = right, left
    size = _whole(right)
    if left is not counter or size is None:
        return None
    return size if producer.operator == "add" else -size


def _whole(value: Value) -> int | None:
    text = value.constant
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def _splat(text: str) -> str | None:
    """Return the value of a constant whose elements are equal."""
    match = re.search(r"dense<([^\[\]\"<>]*)>", text[:200])
    return match[1] if match else None


def _inlined_location(caller: str, own: str) -> str:
    """Join the locations of a call and of a statement in the function that it calls."""
    if not caller or own.startswith(caller.split("/")[0]):
        return own
    return f"{caller}/{own}" if own else caller
