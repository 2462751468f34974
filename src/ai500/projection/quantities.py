"""Quantities with their unit spelled out, such as `400Gbps` or `25GB/s`; mix-ups are refused."""

from __future__ import annotations

import math
import re
from typing import Literal

from ai500.core.errors import ConfigError

Kind = Literal["bandwidth", "latency", "flops", "power", "bytes", "time"]
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
UNITS: dict[Kind, dict[str, float]] = {
    # Bits divide by eight; `Gb/s` and `GBps` are not here: each is read both ways.
    "bandwidth": {
        **{f"{prefix}bps": factor / 8 for prefix, factor in _PREFIXES.items()},
        **{f"{prefix}bit/s": factor / 8 for prefix, factor in _PREFIXES.items()},
        **{f"{prefix}B/s": factor for prefix, factor in _PREFIXES.items()},
    },
    "latency": _SECONDS,
    "flops": {f"{prefix}FLOPS": factor for prefix, factor in _PREFIXES.items()},
    "power": {f"{prefix}W": factor for prefix, factor in _PREFIXES.items()},
    "bytes": {f"{prefix}B": factor for prefix, factor in _PREFIXES.items()},
    "time": {**_SECONDS, "min": 60.0, "h": 3600.0, "d": 86400.0, "y": 365.25 * 86400.0},
}
EXAMPLES: dict[Kind, str] = {
    "bandwidth": "100Gbps (bits) or 25GB/s (bytes)",
    "latency": "2us",
    "flops": "989TFLOPS",
    "power": "700W",
    "bytes": "150MB",
    "time": "5y or 12h",
}


def parse(text: str, kind: Kind, *, key: str) -> float:
    """Return a quantity in bytes per second, seconds, FLOPS, watts or bytes."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(\S+)\s*", text)
    units = UNITS[kind]
    if match is None:
        raise ConfigError(
            f"{key} = {text!r}: a number with its unit is needed, such as {EXAMPLES[kind]}.",
            key=key,
            value=text,
        )
    number, unit = float(match[1]), match[2]
    if unit not in units:
        raise ConfigError(
            f"{key} = {text!r}: {_problem(unit, kind)}",
            key=key,
            value=text,
            remedy=f"Write it like {EXAMPLES[kind]}.",
        )
    quantity = number * units[unit]
    if not 0 < quantity < math.inf:
        raise ConfigError(
            f"{key} = {text!r}: must be more than 0, and finite.", key=key, value=text
        )
    return quantity


def _problem(unit: str, kind: Kind) -> str:
    if kind == "bandwidth" and re.fullmatch(r"[kKMGTP]?[bB](/s|ps|it)?", unit):
        return f"{unit!r} may mean bits or bytes, a factor of 8, or lacks “per second”."
    kinds = [other for other, units in UNITS.items() if unit in units]
    if kinds:
        return f"{unit!r} is a unit of {kinds[0]}, not of {kind}."
    return f"{unit!r} is no unit of {kind}."
