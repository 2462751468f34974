"""Theoretical peaks of accelerators and processors, from the vendors' documents. No torch."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ai500.inventory.description import Processors

FILE_NAME = "accelerators.toml"
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")
PROCESSORS_FILE = "processors.toml"
# No processor on the market has a higher clock; for nodes that don't report theirs, such as virtual
# machines.
HIGHEST_HERTZ = 6.2e9
# No node of one operating system has more: SGI's UV 2000 had 256 processors of 8 cores.
MOST_CORES = 2048
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


@cache
def _operations_per_clock() -> dict[str, dict[str, int]]:
    """Return instruction-set extension → precision → operations per clock of one core."""
    text = files("ai500.inventory").joinpath(PROCESSORS_FILE).read_text(encoding="utf-8")
    return tomllib.loads(text)


def known_instructions() -> tuple[str, ...]:
    """Return the instruction-set extensions whose operations per clock are known."""
    return tuple(_operations_per_clock())


def processor_flops(processors: Processors, precision: str) -> float | None:
    """Return a rate that a node's CPUs can't exceed in a precision: cores × clock × operations.

    A description of more cores or a higher clock than any node has counts as that of the largest.
    None: the number of cores is unknown, or none of the instructions is in the table.
    """
    cores = processors.cores or processors.threads
    table = _operations_per_clock()
    rows = [table[name] for name in processors.instructions if name in table]
    if not cores or not rows:
        return None
    kernel = KERNEL_PRECISION.get(precision, precision)
    operations = max(row.get(kernel, row["fp32"]) for row in rows)
    hertz = min(processors.highest_hertz or HIGHEST_HERTZ, HIGHEST_HERTZ)
    return min(cores, MOST_CORES) * hertz * operations


def largest_flops(device: str, precision: str) -> float:
    """Return a rate that one accelerator can't exceed in a precision.

    One that is not on record has the largest rate of those that are, and so has a precision without
    a rate: the device then computes in another one.
    """
    kernel = KERNEL_PRECISION.get(precision, precision)
    sheet = data_sheet(device)
    sheets = data_sheets() if sheet is None else (sheet,)
    return max(each.flops.get(kernel, max(each.flops.values())) for each in sheets)
