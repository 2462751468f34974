"""Numbers for people: the right prefix on both sides of every border."""

from __future__ import annotations

import pytest

from ai500.core.units import human_bytes, human_seconds, human_si


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 "),
        (999.94, "999.9 "),
        (999.99, "1 k"),
        (1e3, "1 k"),
        (999_999, "1 M"),
        (12_345_678_901, "12.35 G"),
        (-2.5e12, "-2.5 T"),
        (1e15, "1 P"),
        (3e18, "3 E"),
    ],
)
def test_si_prefixes(value: float, text: str) -> None:
    assert human_si(value) == text


def test_bytes_have_decimal_prefixes() -> None:
    assert human_bytes(1_048_576) == "1.049 MB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0042, "4.2 ms"),
        (0.9999, "1.0 s"),
        (99.9, "99.9 s"),
        (99.97, "1 min 40 s"),
        (192, "3 min 12 s"),
        (5999, "99 min 59 s"),
        (5999.9, "1 h 40 min"),
        (90_000, "25 h 00 min"),
    ],
)
def test_seconds_in_human_units(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text
