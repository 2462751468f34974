"""`ai500 doctor`: what this machine lacks, and how to get it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from ai500.cli.arguments import AsJson
from ai500.cli.terminal import Row, console, print_json, rows
from ai500.core.units import human_bytes
from ai500.data.store import cache_folder
from ai500.frameworks.interpreted import installed_interpreter
from ai500.frameworks.protocol import OTHER_FRAMEWORKS
from ai500.projection.simulator import simgrid_python

Need = Literal["required", "optional"]
PACKAGES: tuple[tuple[str, Need, str, str], ...] = (
    ("torch", "required", "training", "pip install torch"),
    ("numpy", "required", "everything", "pip install numpy"),
    ("h5py", "required", "reading HDF5", "pip install h5py"),
    ("jinja2", "required", "reports and the list", "pip install jinja2"),
    ("pillow", "required", "images", "pip install pillow"),
    ("optuna", "optional", "--workload automl", "pip install optuna"),
    ("nvidia-ml-py", "optional", "power and clocks of NVIDIA GPUs", "pip install nvidia-ml-py"),
    ("pyarrow", "optional", "Parquet files", "pip install pyarrow"),
    ("pandas", "optional", "data frames of the Python API", "pip install pandas"),
    ("cryptography", "optional", "signing submissions", "pip install cryptography"),
    ("simgrid", "optional", "ai500 project", "apt install python3-simgrid, on Debian"),
    *(
        (name, "optional", f"--set framework.kind={name}", f"pip install {name}")
        for name in OTHER_FRAMEWORKS
    ),
)
"""Distribution, whether every run needs it, what it is for, how to get it."""
PROGRAMS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("sbatch",), "--scheduler slurm", "run ai500 on a login node of a cluster with Slurm"),
    (("apptainer", "podman", "docker"), "containers", "ask the administrator for one of them"),
    (("ncu",), "ai500 profile --counters", "install NVIDIA Nsight Compute"),
)
"""Programs of which one suffices, what it is for, how to get it."""
POWERCAP = Path("/sys/class/powercap")
LEAST_FREE_BYTES = 2_000_000_000  # class `smoke` of every workload, its data and its run


@dataclass(frozen=True)
class Check:
    """Something that a part of ai500 needs."""

    name: str
    need: Need
    present: bool
    text: str
    """Version that is installed, or the use of what is missing."""
    remedy: str = ""


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine lacks and how to get it.

    Loads nothing of what it looks for, so a package that is installed may still be broken: a run of
    class smoke shows that. Exit code 3: something that every run needs is missing.

    Example: ai500 doctor
    """
    checks = list(examine())
    lacking = [check for check in checks if check.need == "required" and not check.present]
    if as_json:
        print_json(checks)
    else:
        _show(checks, lacking)
    if lacking:
        raise typer.Exit(3)


def examine() -> Iterator[Check]:
    """Yield every check with its result."""
    here = ".".join(map(str, sys.version_info[:3]))
    yield Check("Python", "required", sys.version_info >= (3, 11), here, "install Python 3.11")
    for name, need, purpose, remedy in PACKAGES:
        version = _version(name)
        yield Check(name, need, version is not None, version or f"for {purpose}", remedy)
    for names, purpose, remedy in PROGRAMS:
        path = next(filter(None, map(shutil.which, names)), None)
        name = " or ".join(names)
        yield Check(name, "optional", path is not None, path or f"for {purpose}", remedy)
    yield _accelerator()
    yield _energy()
    for label, folder in (("disk here", Path.cwd()), ("disk of the data cache", cache_folder())):
        yield _disk(label, folder)


def _version(name: str) -> str | None:
    """Return a package's version, or the other interpreter that has it; None: it is missing."""
    elsewhere = simgrid_python() if name == "simgrid" else installed_interpreter(name)
    if elsewhere is not None and elsewhere != sys.executable:
        return f"in {elsewhere}"
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        installed = importlib.util.find_spec(name.replace("-", "_")) is not None
        return "installed" if installed else None


def _accelerator() -> Check:
    """Look for device files, without loading torch."""
    devices = {
        "NVIDIA": [*Path("/dev").glob("nvidia[0-9]*")],
        "AMD": [*Path("/dev").glob("kfd")],
        "Intel": [*Path("/dev/accel").glob("accel*")],
    }
    present = [f"{vendor}: {len(files)}" for vendor, files in devices.items() if files]
    return Check(
        "accelerator", "optional", bool(present),
        ", ".join(present) or "none, so slots of the CPU stand in",
        "run on a machine with a GPU whose driver is installed",
    )  # fmt: skip


def _energy() -> Check:
    """Look for a power meter that this user may read."""
    counters = list(POWERCAP.glob("*/energy_uj"))
    readable = [file for file in counters if os.access(file, os.R_OK)]
    text = f"{len(readable)} counters of RAPL" if readable else "for watts of the CPU (RAPL)"
    remedy = (
        "ask the administrator: chmod a+r /sys/class/powercap/*/energy_uj" if counters
        else "none on this machine: virtual machines hide it"
    )  # fmt: skip
    return Check("power meter", "optional", bool(readable), text, remedy)


def _disk(label: str, folder: Path) -> Check:
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    text = f"{human_bytes(free)} free" if writable else f"{folder} is not writable"
    return Check(
        label, "required", writable and free >= LEAST_FREE_BYTES, text,
        f"{human_bytes(LEAST_FREE_BYTES)} are needed; use another disk",
    )  # fmt: skip


def _show(checks: list[Check], lacking: list[Check]) -> None:
    def lines(chosen: list[Check]) -> list[Row]:
        return [
            (check.name, check.text if check.present else f"{check.text}: {check.remedy}")
            for check in chosen
        ]

    if lacking:
        rows("Missing, and every run needs it", lines(lacking))
    rows("Here", lines([check for check in checks if check.present]))
    missing = [check for check in checks if not check.present and check.need == "optional"]
    if missing:
        rows("Not here, and only needed for some things", lines(missing))
    if not lacking:
        console.print("ready: `ai500 run` can start", style="bold green", markup=False)
