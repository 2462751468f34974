"""Parser of StableHLO text: functions of statements, with the regions of loops and reductions.

It reads what `jax.jit(f).lower(...).as_text()` prints, with or without locations, and MLIR's
generic form. Only names, operands, result types and regions are parsed; attributes stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ai500.core.errors import InputError
from ai500.operations.graph import Shape

REMEDY = "Write it with jax.jit(f).lower(...).as_text(), with concrete shapes."


class TensorType(NamedTuple):
    """Shape and element type of a value; a token has the type `token`."""

    shape: Shape
    dtype: str


@dataclass(slots=True)
class Statement:
    """One operation as printed: `results = name(operands) attributes : types`."""

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    types: tuple[TensorType, ...]
    text: str
    location: str = ""
    regions: list[Region] = field(default_factory=list)

    def whole_numbers(self, *keys: str) -> tuple[int, ...] | None:
        """Read a list such as `dimensions = [0, 1]` or `length = array<i64: 8>`; None: absent."""
        for key in keys:
            match = re.search(rf"\b{key} = (?:array<i64(?:: )?|\[)([-\d, ]*)[\]>]", self.text)
            if match:
                return tuple(map(int, re.findall(r"-?\d+", match[1])))
        return None


@dataclass(slots=True)
class Region:
    """Statements in braces, with the names of the block's arguments."""

    arguments: tuple[str, ...] = ()
    statements: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A function of the module: names and types of its arguments, and its body."""

    name: str
    types: tuple[TensorType, ...]
    body: Region


_TYPE = r"(?:tensor<((?:[\d?]+x)*)(complex<\w+>|!quant\.\w+|\w+)|!\w+\.(token))"
_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
#: A use of a value; a name before a type defines an argument of a region.
_OPERAND = re.compile(rf"{_VALUE.pattern}(?![\w.$#-]|: (?:tensor|!))")
_ARGUMENT = re.compile(rf"(%[\w.$-]+): {_TYPE}")
_STATEMENT = re.compile(r'(?:(%[^=]*?) = )?"?([a-z_]\w*(?:\.[\w.]+)?)"?(.*)', re.DOTALL)
_LOCATION = re.compile(r" ?\bloc\((#loc\d*|unknown|\"(?:[^\"\\]|\\.)*\".*)\)$")
_LOCATION_ALIAS = re.compile(r"(#loc\d*) = loc\((.*)\)$")
#: Operations that print one type for each result instead of one for all operands and results.
_LISTS_RESULT_TYPES = ("while", "optimization_barrier")


def parse(text: str, *, source: str = "StableHLO text") -> dict[str, Function]:
    """Parse a module's functions by name; raise InputError for text that is no such module."""
    functions: dict[str, Function] = {}
    locations = dict(_location_aliases(text))
    #: Open regions, each with the statement that it belongs to; none for a function's body.
    stack: list[tuple[Region, Statement | None]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line, location = _without_location(raw.strip(), locations)
        if line.startswith(("func.func", '"func.func"')):
            function = _function(line, f"{source}, line {number}")
            functions[function.name] = function
            if line.endswith("{"):
                stack.append((function.body, None))
        elif not line or line[0] in "#/" or line.startswith(("module", '"builtin.module"')):
            continue
        elif line.startswith("}"):
            _close(line[1:].strip(), location, stack)
        elif stack:
            _read(line, location, stack, at=f"{source}, line {number}")
    if not functions:
        kind = "HLO" if text.lstrip().startswith("HloModule") else "no"
        raise InputError(
            f"{source} contains {kind} text, not a StableHLO module.", key="model", remedy=REMEDY
        )
    if stack:
        raise InputError(f"{source} ends inside a function.", key="model", remedy=REMEDY)
    return functions


def _location_aliases(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if line.startswith("#loc") and (match := _LOCATION_ALIAS.match(line)):
            yield match[1], _location_name(match[2])


def _location_name(text: str) -> str:
    """Return the name in a location; a place in a file has none."""
    match = re.match(r'"((?:[^"\\]|\\.)*)"(?!:)', text)
    return match[1] if match else ""


def _without_location(line: str, locations: Mapping[str, str]) -> tuple[str, str]:
    match = _LOCATION.search(line) if line.endswith(")") else None
    if match is None:
        return line, ""
    name = locations.get(match[1]) if match[1].startswith("#") else _location_name(match[1])
    return line[: match.start()].rstrip(), name or ""


def _function(line: str, at: str) -> Function:
    name = re.search(r"(?:@|sym_name = )\"?([\w.$-]+)", line)
    if name is None:
        raise InputError(f"{at}: a function without a name.", key="model", remedy=REMEDY)
    generic = re.search(r"function_type = \((.*?)\) ->", line)
    if generic:  # the block that follows names its arguments
        types = tuple(_tensor_type(groups, at) for groups in re.findall(_TYPE, generic[1]))
        return Function(name[1], types, Region())
    arguments = list(_ARGUMENT.finditer(line))
    return Function(
        name[1],
        tuple(_tensor_type(match.groups()[1:], at) for match in arguments),
        Region(tuple(match[1] for match in arguments)),
    )


def _tensor_type(groups: tuple[str | None, ...], at: str) -> TensorType:
    sizes, dtype, token = groups
    if token:
        return TensorType((), token)
    if "?" in (sizes or ""):
        raise InputError(
            f"{at}: the shape {sizes}{dtype} is not known.", key="model", remedy=REMEDY
        )
    return TensorType(tuple(int(size) for size in (sizes or "").split("x")[:-1]), dtype or "")


def _read(
    line: str, location: str, stack: list[tuple[Region, Statement | None]], *, at: str
) -> None:
    """Read a line inside a region: block arguments, a region of the last statement, a statement."""
    region, _ = stack[-1]
    if line.startswith("^"):
        region.arguments = tuple(_VALUE.findall(line))
        return
    if line.startswith(("cond {", "reducer(")):
        owner = region.statements[-1]
        names = tuple(_VALUE.findall(line))
        stack.append((Region(names), owner))
        owner.regions.append(stack[-1][0])
        return
    statement = _statement(line, location, at)
    region.statements.append(statement)
    if line.endswith("{"):
        statement.regions.append(Region())
        stack.append((statement.regions[-1], statement))


def _close(rest: str, location: str, stack: list[tuple[Region, Statement | None]]) -> None:
    """Close a region; `rest` opens the next one of the same statement, or ends the statement."""
    if not stack:
        return
    _, owner = stack.pop()
    if owner is None:
        return
    owner.location = location or owner.location
    if rest.endswith("{"):  # `} do {`, `}, {`
        owner.regions.append(Region())
        stack.append((owner.regions[-1], owner))
    elif rest.startswith((")", ":")):  # attributes and types follow the regions
        owner.text += f" {rest}"
        owner.types = _result_types(owner.name, rest, len(owner.results), at=owner.name)


def _statement(line: str, location: str, at: str) -> Statement:
    match = _STATEMENT.match(line)
    if match is None:
        raise InputError(f"{at}: not StableHLO: {line[:60]!r}.", key="model", remedy=REMEDY)
    names, name, rest = match.groups()
    results = tuple(_result_names(names or ""))
    operands = tuple(_OPERAND.findall(rest)) if "constant" not in name else ()
    types = () if line.endswith("{") else _result_types(name, rest, len(results), at=at)
    return Statement(name, results, operands, types, rest, location)


def _result_names(text: str) -> Iterator[str]:
    """Yield a name per result: `%5:2` defines `%5#0` and `%5#1`."""
    for part in text.split(","):
        name, _, number = part.strip().partition(":")
        if number:
            yield from (f"{name}#{index}" for index in range(int(number)))
        elif name:
            yield name


def _result_types(name: str, text: str, results: int, *, at: str) -> tuple[TensorType, ...]:
    if not results:
        return ()
    signature = text.rpartition(" : ")[2]
    _, arrow, after = signature.rpartition("->")
    type_texts = re.findall(_TYPE, after if arrow else signature)
    if not type_texts:
        raise InputError(f"{at}: {name} has no type.", key="model", remedy=REMEDY)
    types = tuple(_tensor_type(groups, at) for groups in type_texts)
    if arrow or name.rpartition(".")[2] in _LISTS_RESULT_TYPES:
        return types
    return (types[-1],) * results
