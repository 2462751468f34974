"""Precisions, and the devices that certainly lack one, without torch.

A worker checks again on the device itself (`train/precision/modes.py`).
"""

from __future__ import annotations

import re

from ai500.core.errors import setting_error
from ai500.core.schema import nearest
from ai500.records import System

KEY = "train.precision"
PRECISIONS = ("fp32", "tf32", "mixed-bf16", "mixed-fp16", "fp16", "fp8", "int8")

_TENSOR_CORES_ONLY = {
    "tf32": "TF32 is a format of tensor cores (NVIDIA Ampere and later); a CPU computes in FP32",
    "fp8": "FP8 products need tensor cores that have them (NVIDIA Ada, Hopper and later)",
}
"""Precision → why a CPU lacks it."""

_BEFORE_AMPERE = r"P4|P40|P100|V100S?|T4|TITAN|GTX|RTX 20[5-8]0|Quadro"
_BEFORE_ADA = _BEFORE_AMPERE + r"|RTX 30[5-9]0|A\d{1,4}[GX]?"
_TOO_OLD = {"tf32": _BEFORE_AMPERE, "mixed-bf16": _BEFORE_AMPERE, "fp8": _BEFORE_ADA}
"""Precision → NVIDIA models that lack it. Other names pass: the worker checks the device."""


def check_name(name: str) -> None:
    """Raise a ConfigError unless there is a precision `name`."""
    if name not in PRECISIONS:
        raise setting_error(KEY, name, "no such precision;", nearest(name, list(PRECISIONS)))


def check(name: str, *, device_type: str, machine: System | None) -> None:
    """Raise a ConfigError if devices of this type certainly lack the precision.

    `machine` is this machine; None if the run is planned for another machine.
    """
    if device_type == "cpu" and name in _TENSOR_CORES_ONLY:
        raise setting_error(
            KEY,
            name,
            f'with system.device = "cpu": {_TENSOR_CORES_ONLY[name]}.',
            f'Set {KEY} = "fp32", "mixed-bf16" or "int8", or plan for an accelerator.',
        )
    if machine is None or machine.accelerator != device_type:
        return
    for accelerator in machine.accelerators:
        if name in _TOO_OLD and re.search(rf"\b({_TOO_OLD[name]})\b", accelerator):
            problem = f"{accelerator} has no such arithmetic."
            raise setting_error(KEY, name, problem, f'Set {KEY} = "fp32" or "mixed-fp16".')
