"""Strict decoding of plain data (TOML, JSON) into frozen dataclasses, and back.

Every value is checked against the annotation of its field, so that a configuration, a record on
disk and an untrusted file fail the same way: with the key, the value and the expected type.
ADR 0001 explains why this is not pydantic.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ai500.core.errors import InputError

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]
"""Decodes a value; its second argument is the value's key in error messages."""
BOUNDS = ("minimum", "more_than", "less_than")
MAX_VERSION = 40
"""Characters of a version that an error names: the record may be of another person."""


class SchemaError(InputError):
    """A value that does not fit its annotation; `key` is its dotted path."""

    def __init__(self, key: str, message: str, value: object = None, *, remedy: str = "") -> None:
        message = f"{key}: {message}" if key else message
        super().__init__(message, key=key, value=value, remedy=remedy)


class UnknownKeyError(SchemaError):
    """A key that the record does not have."""


class FormatError(SchemaError):
    """A record in the format of another version of ai500."""


def option(
    default: Any,
    doc: str,
    *,
    minimum: float | None = None,
    more_than: float | None = None,
    less_than: float | None = None,
) -> Any:
    """Declare a field with its documentation and the bounds that decoding checks."""
    bounds = {"minimum": minimum, "more_than": more_than, "less_than": less_than}
    return dataclasses.field(default=default, metadata={"doc": doc, **bounds})


def nearest(word: str, known: list[str]) -> str:
    """Suggest the known name nearest to `word`, or list all known names."""
    containing = [name for name in known if word in name.split("-")]  # bf16: mixed-bf16
    matches = containing or difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {matches[0]!r}?" if matches else "known: " + ", ".join(sorted(known))


def check_known(name: str, known: Iterable[str], *, key: str) -> None:
    """Raise InputError if the value of an option is not one of the known names."""
    names = list(known)
    if name not in names:
        raise InputError(
            f"{key} {name}: no such value; {nearest(name, names)}", key=key, value=name
        )


def decode(kind: type[T], value: object, *, at: str = "") -> T:
    """Convert plain data to `kind`; `at` is the key of `value` in error messages."""
    return _decoder(kind)(value, at)  # type: ignore[arg-type, no-any-return]


def encode(value: Any) -> Any:
    """Convert a record to plain data for JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value


@cache
def _decoder(kind: Any) -> Decoder:
    """Return the decoder of an annotation, analysed once: a large run has millions of values."""
    if kind is Any:
        return lambda value, at: value
    if dataclasses.is_dataclass(kind):
        return partial(_decode_record, kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union_decoder(arguments)
    if origin is Literal:
        return partial(_decode_literal, arguments)
    if origin in (list, tuple, Sequence):
        return partial(_decode_sequence, origin, arguments)
    if origin is dict:
        return partial(_decode_table, arguments[1])
    return partial(_decode_scalar, kind)


def _decode_literal(arguments: tuple[Any, ...], value: Any, at: str) -> Any:
    if value not in arguments or isinstance(value, bool) not in map(_is_bool, arguments):
        choices = ", ".join(repr(choice) for choice in arguments)
        raise SchemaError(at, f"{value!r} is not one of {choices}", value)
    return value


def _decode_table(kind: Any, value: Any, at: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _mismatch(at, "a table", value)
    decoder = _decoder(kind)
    return {key: decoder(item, _join(at, key)) for key, item in value.items()}


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _check_format(kind: Any, value: dict[str, Any], at: str) -> None:
    """Refuse another version's record by its `format`, before its other keys are decoded."""
    expected, stated = getattr(kind, "FORMAT", None), value.get("format")
    if expected is None or not isinstance(stated, int) or stated == expected:
        return
    version = str(value.get("version") or value.get("ai500_version") or "")
    known = 0 < len(version) <= MAX_VERSION
    writer = f"ai500 {version}, which wrote it" if known else "the version of ai500 that wrote it"
    raise FormatError(
        _join(at, "format"),
        f"{stated}, this version reads {expected}.",
        stated,
        remedy=f"Use {writer}.",
    )


def _decode_record(kind: Any, value: Any, at: str) -> Any:
    if not isinstance(value, dict):
        raise _mismatch(at, "a table", value)
    _check_format(kind, value, at)
    fields = _fields(kind)
    if not value.keys() <= fields.keys():
        key, item = next((key, item) for key, item in value.items() if key not in fields)
        suggestion = nearest(str(key), list(fields))
        raise UnknownKeyError(_join(at, key), f"unknown key; {suggestion}", item)
    decoded: dict[str, Any] = {}
    for name, field in fields.items():
        if name in value:
            decoded[name] = item = field.decoder(value[name], _join(at, name))
            if field.bounds is not None:
                _check_bounds(item, field.bounds, _join(at, name))
        elif field.is_required:
            raise SchemaError(_join(at, name), "missing")
    return kind(**decoded)


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """Decoder of a record's field."""

    decoder: Decoder
    is_required: bool
    bounds: Mapping[str, Any] | None


@cache
def _fields(kind: Any) -> dict[str, _Field]:
    hints, missing = get_type_hints(kind), dataclasses.MISSING
    return {
        field.name: _Field(
            _decoder(hints[field.name]),
            is_required=field.default is missing and field.default_factory is missing,
            bounds=field.metadata
            if any(field.metadata.get(bound) is not None for bound in BOUNDS)
            else None,
        )
        for field in dataclasses.fields(kind)
        if field.init
    }


MAX_INTEGER = 2**63  # products of a few integers below it are still finite floats


def _check_bounds(value: Any, bounds: Mapping[str, Any], at: str) -> None:
    if value is None or isinstance(value, str | bool):
        return
    minimum, more_than = bounds.get("minimum"), bounds.get("more_than")
    if isinstance(value, int) and minimum is not None and value >= MAX_INTEGER:
        raise SchemaError(at, f"the number is too large; it must be less than {MAX_INTEGER}", value)
    if minimum is not None and value < minimum:
        raise SchemaError(at, f"{value} is too small; it must be at least {minimum}", value)
    if more_than is not None and value <= more_than:
        raise SchemaError(at, f"{value} is too small; it must be more than {more_than}", value)
    less_than = bounds.get("less_than")
    if less_than is not None and value >= less_than:
        raise SchemaError(at, f"{value} is too large; it must be less than {less_than}", value)


def _union_decoder(arguments: tuple[Any, ...]) -> Decoder:
    accepts_none = type(None) in arguments
    alternatives = [argument for argument in arguments if argument is not type(None)]
    decoders = [_decoder(alternative) for alternative in alternatives]

    def decode_union(value: Any, at: str) -> Any:
        if value is None and accepts_none:
            return None
        if len(decoders) == 1:
            return decoders[0](value, at)
        for decoder in decoders:
            try:
                return decoder(value, at)
            except SchemaError:
                continue
        raise _mismatch(at, " or ".join(map(_describe_type, alternatives)), value)

    return decode_union


def _decode_sequence(origin: Any, arguments: tuple[Any, ...], value: Any, at: str) -> Any:
    if not isinstance(value, list | tuple):
        raise _mismatch(at, "a list", value)
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        if len(value) != len(arguments):
            raise SchemaError(at, f"expected {len(arguments)} values, found {len(value)}", value)
        pairs = zip(arguments, value, strict=True)
        return tuple(_decoder(kind)(item, f"{at}[{i}]") for i, (kind, item) in enumerate(pairs))
    decoder = _decoder(arguments[0])
    decoded = [decoder(item, f"{at}[{i}]") for i, item in enumerate(value)]
    return decoded if origin is list else tuple(decoded)


def _decode_scalar(kind: Any, value: Any, at: str) -> Any:
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError as error:
            message = "expected a number below 1e308, found a larger number"
            raise SchemaError(at, message, value) from error
        if not math.isfinite(number):
            raise _mismatch(at, "a finite number", number)
        return number
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise _mismatch(at, _describe_type(kind), value)


def _mismatch(at: str, expected: str, value: object) -> SchemaError:
    names: dict[type, str] = {dict: "a table", list: "a list"}
    shown = names.get(type(value), f"{value!r}")
    return SchemaError(at, f"expected {expected}, found {shown}", value)


def _describe_type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(repr(choice) for choice in get_args(kind))
    names = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
    return names.get(kind, str(kind))


def _join(at: str, key: object) -> str:
    return f"{at}.{key}" if at else str(key)
