"""Strict decoding: every wrong value is an error with its key."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.core.schema import SchemaError, UnknownKeyError, decode, encode, option


@dataclass(frozen=True)
class Inner:
    rate: float = option(0.1, "a rate", more_than=0)
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    count: int = option(1, "a count", minimum=1)
    flag: bool = False
    mode: Literal["a", "b"] = "a"
    inner: Inner = Inner()
    maybe: int | None = None
    trials: int | Literal["valid"] = 1
    table: dict[str, int] | None = None


def test_round_trip() -> None:
    value = Outer(count=3, flag=True, mode="b", inner=Inner(rate=1.0, names=("x",)), table={"k": 1})
    assert decode(Outer, json.loads(json.dumps(encode(value)))) == value


@pytest.mark.parametrize(
    ("data", "key", "value", "expected"),
    [
        ({"count": "3"}, "count", "3", "a whole number"),
        ({"count": True}, "count", True, "a whole number"),
        ({"count": 1.5}, "count", 1.5, "a whole number"),
        ({"count": 0}, "count", 0, "at least 1"),
        ({"flag": 1}, "flag", 1, "true or false"),
        ({"mode": "c"}, "mode", "c", "'a', 'b'"),
        ({"trials": "all"}, "trials", "all", "a whole number or 'valid'"),
        ({"inner": {"rate": 0}}, "inner.rate", 0.0, "more than 0"),
        ({"inner": {"rate": math.inf}}, "inner.rate", math.inf, "a finite number"),
        ({"inner": {"names": ["x", 2]}}, "inner.names[1]", 2, "text in quotes"),
        ({"inner": 5}, "inner", 5, "a table"),
        ({"table": {"k": "v"}}, "table.k", "v", "a whole number"),
        ([], "", [], "a table"),
    ],
)
def test_a_wrong_value_is_an_error_with_its_key(
    data: Any, key: str, value: object, expected: str
) -> None:
    with pytest.raises(SchemaError) as error:
        decode(Outer, data)
    assert (error.value.key, error.value.value) == (key, value)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("data", "key", "suggestion"),
    [
        ({"coutn": 5}, "coutn", "did you mean 'count'?"),
        ({"inner": {"zzz": 5}}, "inner.zzz", "known: names, rate"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_key(
    data: Any, key: str, suggestion: str
) -> None:
    with pytest.raises(UnknownKeyError) as error:
        decode(Outer, data)
    assert (error.value.key, error.value.value) == (key, 5)
    assert str(error.value).endswith(suggestion)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["count", "flag", "mode", "inner", "rate", "names", "maybe", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(plain)
def test_anything_decodes_or_fails_with_a_message(data: Any) -> None:
    try:
        decoded = decode(Outer, data)
    except SchemaError:
        return
    assert decode(Outer, encode(decoded)) == decoded
