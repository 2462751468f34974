"""Strict decoding: every wrong value is named with its path."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.core.schema import SchemaError, decode, encode, option


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
    table: dict[str, int] | None = None


def test_round_trip() -> None:
    value = Outer(count=3, flag=True, mode="b", inner=Inner(rate=1.0, names=("x",)), table={"k": 1})
    assert decode(Outer, json.loads(json.dumps(encode(value)))) == value


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"count": "3"}, "count: expected a whole number, found '3'"),
        ({"count": True}, "count: expected a whole number, found True"),
        ({"count": 1.5}, "count: expected a whole number, found 1.5"),
        ({"count": 0}, "count: 0 is too small; at least 1"),
        ({"flag": 1}, "flag: expected true or false, found 1"),
        ({"mode": "c"}, "mode: 'c' is not one of 'a', 'b'"),
        ({"inner": {"rate": 0}}, "inner.rate: 0.0 is too small; it must be more than 0"),
        ({"inner": {"rate": math.inf}}, "inner.rate: expected a finite number, found inf"),
        ({"inner": {"names": ["x", 2]}}, "inner.names[1]: expected text in quotes, found 2"),
        ({"inner": 5}, "inner: expected a table, found 5"),
        ({"coutn": 5}, "coutn: unknown key; did you mean 'count'?"),
        ({"inner": {"zzz": 5}}, "inner.zzz: unknown key; known: names, rate"),
        ({"table": {"k": "v"}}, "table.k: expected a whole number, found 'v'"),
        ([], "expected a table, found a list"),
    ],
)
def test_a_wrong_value_is_named(data: Any, says: str) -> None:
    with pytest.raises(SchemaError) as error:
        decode(Outer, data)
    assert str(error.value) == says


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
