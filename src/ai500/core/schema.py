"""Strict decoding of plain data (TOML, JSON) into frozen dataclasses, and back.

One function reads annotations and checks every value against them, so that a configuration, a
record on disk and a file from a stranger all fail the same way: with the path of the value, what
was found and what was expected. ADR 0001 says why this is not pydantic.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ai500.core.errors import InputError

T = TypeVar("T")


class SchemaError(InputError):
    """A value that does not fit its annotation; `key` is its dotted path."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}" if key else message, key=key)


def option(
    default: Any,
    doc: str,
    *,
    minimum: float | None = None,
    more_than: float | None = None,
    less_than: float | None = None,
) -> Any:
    """A field with its documentation and bounds, which decoding checks and `init` prints."""
    bounds = {"minimum": minimum, "more_than": more_than, "less_than": less_than}
    return dataclasses.field(default=default, metadata={"doc": doc, **bounds})


def nearest(word: str, known: list[str]) -> str:
    """ "; did you mean …?" or the list of what is known."""
    part_of = [name for name in known if word in name.split("-")]  # bf16: mixed-bf16
    match = part_of or difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {match[0]!r}?" if match else "known: " + ", ".join(sorted(known))


def decode(kind: type[T], value: object, *, at: str = "") -> T:
    """`value` as `kind`, or a SchemaError that names the place."""
    return _decode(kind, value, at)  # type: ignore[no-any-return]


def encode(value: Any) -> Any:
    """A record as plain data that JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value


def _decode(kind: Any, value: Any, at: str) -> Any:
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _decode_record(kind, value, at)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, value, at)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool) not in map(_is_bool, arguments):
            choices = ", ".join(repr(choice) for choice in arguments)
            raise SchemaError(at, f"{value!r} is not one of {choices}")
        return value
    if origin in (list, tuple):
        return _decode_sequence(origin, arguments, value, at)
    if origin is dict:
        if not isinstance(value, dict):
            raise SchemaError(at, f"expected a table, found {_name(value)}")
        return {key: _decode(arguments[1], item, _join(at, key)) for key, item in value.items()}
    return _decode_scalar(kind, value, at)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _decode_record(kind: Any, value: Any, at: str) -> Any:
    if not isinstance(value, dict):
        raise SchemaError(at, f"expected a table, found {_name(value)}")
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}
    for key in value:
        if key not in fields:
            raise SchemaError(_join(at, key), f"unknown key; {nearest(str(key), list(fields))}")
    hints = _hints(kind)
    decoded: dict[str, Any] = {}
    for name, field in fields.items():
        if name in value:
            decoded[name] = _decode(hints[name], value[name], _join(at, name))
            _check_bounds(decoded[name], field, _join(at, name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SchemaError(_join(at, name), "missing")
    return kind(**decoded)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


MOST = 2**63
"""Of a whole number with bounds: what is computed from it stays a float."""


def _check_bounds(value: Any, field: dataclasses.Field[Any], at: str) -> None:
    if value is None or isinstance(value, str | bool):
        return
    minimum, more_than = field.metadata.get("minimum"), field.metadata.get("more_than")
    if isinstance(value, int) and minimum is not None and value >= MOST:
        raise SchemaError(at, f"this number is too large; it must be less than {MOST}")
    if minimum is not None and value < minimum:
        raise SchemaError(at, f"{value} is too small; at least {minimum}")
    if more_than is not None and value <= more_than:
        raise SchemaError(at, f"{value} is too small; it must be more than {more_than}")
    less_than = field.metadata.get("less_than")
    if less_than is not None and value >= less_than:
        raise SchemaError(at, f"{value} is too large; it must be less than {less_than}")


def _decode_union(arguments: tuple[Any, ...], value: Any, at: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    others = [argument for argument in arguments if argument is not type(None)]
    if len(others) == 1:
        return _decode(others[0], value, at)
    for other in others:
        try:
            return _decode(other, value, at)
        except SchemaError:
            continue
    expected = " or ".join(_expected(other) for other in others)
    raise SchemaError(at, f"expected {expected}, found {_name(value)}")


def _decode_sequence(origin: Any, arguments: tuple[Any, ...], value: Any, at: str) -> Any:
    if not isinstance(value, list | tuple):
        raise SchemaError(at, f"expected a list, found {_name(value)}")
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        if len(value) != len(arguments):
            raise SchemaError(at, f"expected {len(arguments)} values, found {len(value)}")
        kinds = arguments
    else:
        kinds = (arguments[0],) * len(value)
    pairs = zip(kinds, value, strict=True)
    return origin(_decode(kind, item, f"{at}[{i}]") for i, (kind, item) in enumerate(pairs))


def _decode_scalar(kind: Any, value: Any, at: str) -> Any:
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError as error:
            raise SchemaError(at, "expected a number below 1e308, found a larger one") from error
        if not math.isfinite(number):
            raise SchemaError(at, f"expected a finite number, found {number}")
        return number
    if kind is int and isinstance(value, bool):
        raise SchemaError(at, f"expected a whole number, found {_name(value)}")
    if isinstance(value, kind):
        return value
    raise SchemaError(at, f"expected {_expected(kind)}, found {_name(value)}")


def _expected(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
    return names.get(kind, str(kind))


def _name(value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return f"{value!r}"


def _join(at: str, key: object) -> str:
    return f"{at}.{key}" if at else str(key)
