"""Which precision which device can do, as far as one knows without torch.

The node asks again, with the device in its hands: `modes.make`.
"""

from __future__ import annotations

import re

from ai500.core.errors import ConfigError
from ai500.core.schema import nearest
from ai500.records import System

PRECISIONS = ("fp32", "tf32", "mixed-bf16", "mixed-fp16", "fp16", "fp8", "int8")

_TENSOR_CORES_ONLY = {
    "tf32": "TF32 is a format of tensor cores (NVIDIA Ampere and later); a CPU computes in FP32",
    "fp8": "FP8 products need tensor cores that have them (NVIDIA Ada, Hopper and later)",
}
"""Precision → why a CPU has none of it."""

_BEFORE_AMPERE = r"P4|P40|P100|V100S?|T4|TITAN|GTX|RTX 20[5-8]0|Quadro"
_BEFORE_ADA = _BEFORE_AMPERE + r"|RTX 30[5-9]0|A\d{1,4}[GX]?"
_TOO_OLD = {"tf32": _BEFORE_AMPERE, "mixed-bf16": _BEFORE_AMPERE, "fp8": _BEFORE_ADA}
"""Names of NVIDIA's that lack a precision. A name that is not known passes: the node decides."""


def check_name(name: str) -> None:
    """A ConfigError with the nearest known name if there is no such precision."""
    if name not in PRECISIONS:
        raise ConfigError(
            f"train.precision = {name!r}: no such precision; {nearest(name, list(PRECISIONS))}"
        )


def check(name: str, *, device_type: str, machine: System | None) -> None:
    """A ConfigError if accelerators of this type certainly can't; `machine` None: another one."""
    if device_type == "cpu" and name in _TENSOR_CORES_ONLY:
        raise ConfigError(
            f'train.precision = "{name}" on system.device = "cpu": {_TENSOR_CORES_ONLY[name]}. '
            'Set train.precision = "fp32", "mixed-bf16" or "int8", or plan for an accelerator.'
        )
    if machine is None or machine.accelerator != device_type:
        return
    for accelerator in machine.accelerators:
        if name in _TOO_OLD and re.search(rf"\b({_TOO_OLD[name]})\b", accelerator):
            raise ConfigError(
                f'train.precision = "{name}": {accelerator} has no such arithmetic. '
                'Set train.precision = "fp32" or "mixed-fp16".'
            )
