"""Theoretical peaks and power of accelerators by name, from the vendors' data sheets. No torch."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

FILE_NAME = "accelerators.toml"
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")
# More than any core on the market. FP32: two FMA units of 16 lanes at 6 GHz make 0.38 TFLOPS, and
# matrix units that cores share (Arm SME) stay below 0.5 TFLOPS a core. BF16 and INT8: one Intel AMX
# unit executes 1,024 and 2,048 operations per clock, at up to 5 GHz.
CORE_FLOPS = {"fp32": 0.5e12, "bf16": 5.5e12, "int8": 11e12}
# Operations of int4 count as those of int8: no data sheet above states a larger rate for training.
KERNEL_PRECISION = {
    "mixed-bf16": "bf16", "mixed-fp16": "fp16", "int4": "int8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DataSheet:
    """An accelerator as its vendor describes it."""

    name: str
    source: str
    model: str
    """Regular expression of the words that name it and its variants."""
    watts: float
    """Largest power of one accelerator."""
    flops: dict[str, float]
    """Precision → dense operations per second of one accelerator."""


@cache
def data_sheets() -> tuple[DataSheet, ...]:
    """Return the accelerators whose peaks ship with the package."""
    text = files("ai500.inventory").joinpath(FILE_NAME).read_text(encoding="utf-8")
    return tuple(_sheet(name, row) for name, row in tomllib.loads(text).items())


def _sheet(name: str, row: dict[str, Any]) -> DataSheet:
    flops = {key: 1e12 * float(row[key].removesuffix("TFLOPS")) for key in PRECISIONS if key in row}
    return DataSheet(name, row["source"], row["model"], float(row["watts"]), flops)


def data_sheet(device: str) -> DataSheet | None:
    """Return the data sheet of a device by its driver's name; None: not on record."""
    return next(
        (sheet for sheet in data_sheets() if re.search(rf"\b({sheet.model})\b", device)), None
    )


def largest_flops(device: str, precision: str, *, cores: int | None = None) -> float:
    """Return a rate that one device can't exceed in a precision.

    `cores` of a CPU; None: an accelerator. One that is not on record has the largest rate of those
    that are, and so has a precision without a rate: the device then computes in another one.
    """
    kernel = KERNEL_PRECISION.get(precision, precision)
    if cores is not None:
        return cores * CORE_FLOPS.get(kernel, max(CORE_FLOPS.values()))
    sheet = data_sheet(device)
    sheets = data_sheets() if sheet is None else (sheet,)
    return max(each.flops.get(kernel, max(each.flops.values())) for each in sheets)
