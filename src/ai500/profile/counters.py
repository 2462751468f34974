"""Hardware counters by category (V2 Fig. 10): instructions per cycle and use of DRAM, by ncu.

NVIDIA's Nsight Compute runs each kernel again for its counters. Ranks that wait for each other
would time out meanwhile, so a single rank is measured, on this machine.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ai500.profile.categories import Category, category_of_kernel

INSTRUCTIONS = "sm__inst_executed.avg.per_cycle_active"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
TIME = "gpu__time_duration.sum"
STEPS = 1
"""Number of steps under ncu: every kernel runs several times, so a step takes minutes."""
LONGEST_SECONDS = 180.0
"""Time after which ncu is stopped: counters are an addition, not the profile."""
PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*")
"""Folders of ncu's installers, searched after the PATH."""
_NANOSECONDS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6}


@dataclass(frozen=True, slots=True)
class CountedKernel:
    """One run of a kernel."""

    name: str
    nanoseconds: float
    instructions_per_cycle: float
    dram_utilization: float


@dataclass(frozen=True, slots=True)
class CategoryCounters:
    """Means over the kernels of a category, weighted by their time."""

    instructions_per_cycle: float
    dram_utilization: float


def missing_requirement(*, device: str, scheduler: str) -> str | None:
    """Return the reason why counters can't be read here; None: none is known before trying."""
    if device != "cuda":
        return f"ncu reads NVIDIA's counters; the device is {device}"
    if scheduler != "local":
        return f"ncu runs on this machine only; scheduler.kind is {scheduler!r}"
    if find_ncu() is None:
        return f"ncu (NVIDIA Nsight Compute) is neither on the PATH nor in {' or '.join(PLACES)}"
    return None


def find_ncu() -> str | None:
    """Return the path of ncu; None: it is not installed."""
    folders = (str(folder) for place in PLACES for folder in sorted(Path("/").glob(place[1:])))
    return shutil.which("ncu") or shutil.which("ncu", path=os.pathsep.join(folders))


def command(log: Path, metrics: Iterable[str] = (INSTRUCTIONS, DRAM, TIME)) -> tuple[str, ...]:
    """Return the command line that runs a job under ncu."""
    return (
        find_ncu() or "ncu", "--target-processes", "all", "--profile-from-start", "off",
        "--metrics", ",".join(metrics),
        # Caches and clocks as in training, not flushed and locked for each kernel.
        "--cache-control", "none", "--clock-control", "none",
        "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "demangled",
        "--log-file", str(log),
    )  # fmt: skip


def refusal(text: str, *, metric: str = INSTRUCTIONS) -> str | None:
    """Return ncu's own reason for not counting a metric; None: it counted."""
    if "ERR_NVGPUCTRPERM" in text:
        return "ncu may not read the counters (ERR_NVGPUCTRPERM): the administrator has to allow it"
    errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
    if errors:
        return f"ncu: {errors[0].removeprefix('==ERROR==').strip()}"
    return None if metric in text else "ncu counted no kernel"


def parse(text: str) -> list[CountedKernel]:
    """Parse the kernels of ncu's raw page that have all counters."""
    units, rows = raw_rows(text)
    return [kernel for row in rows if (kernel := _kernel(row, units)) is not None]


def raw_rows(text: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Read ncu's raw page as CSV: a line of names, a line of units, a line for each kernel."""
    lines = [line for line in text.splitlines() if line and not line.startswith("==")]
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = csv.DictReader(io.StringIO("\n".join(lines[start:])))
    return next(rows, {}), list(rows)


def _kernel(row: Mapping[str, str], units: Mapping[str, str]) -> CountedKernel | None:
    """Parse a line; None: ncu has no such counter for this kernel (n/a), or was interrupted."""
    try:
        time, instructions, dram = (
            float(row[metric].replace(",", "")) for metric in (TIME, INSTRUCTIONS, DRAM)
        )
    except (ValueError, KeyError, AttributeError):  # a short line has None
        return None
    return CountedKernel(
        name=row["Kernel Name"],
        nanoseconds=time * _NANOSECONDS.get(units[TIME], 1.0),
        instructions_per_cycle=instructions,
        dram_utilization=dram / 100,
    )


def by_category(
    counted: Iterable[CountedKernel], traced: Mapping[str, Mapping[Category, float]]
) -> dict[Category, CategoryCounters]:
    """Average by category; `traced` has the time of each kernel by category in the trace.

    A kernel with several categories in the trace counts in each by its share of the time there.
    """
    plain = {_plain(name): times for name, times in traced.items()}
    weights: dict[Category, list[tuple[float, CountedKernel]]] = defaultdict(list)
    for kernel in counted:
        times = plain.get(_plain(kernel.name))
        if not times:
            likely = category_of_kernel(kernel.name)
            times = {} if likely is None else {likely: 1.0}
        total = sum(times.values())
        for category, time in times.items():
            if time > 0:
                weights[category].append((kernel.nanoseconds * time / total, kernel))
    return {category: _mean(kernels) for category, kernels in weights.items()}


def _mean(kernels: list[tuple[float, CountedKernel]]) -> CategoryCounters:
    total = sum(weight for weight, _ in kernels) or 1.0
    return CategoryCounters(
        sum(kernel.instructions_per_cycle * weight for weight, kernel in kernels) / total,
        sum(kernel.dram_utilization * weight for weight, kernel in kernels) / total,
    )


def _plain(name: str) -> str:
    """Remove spaces, which the two tools put at different places of a template's name."""
    return "".join(name.split()).removeprefix("void")
