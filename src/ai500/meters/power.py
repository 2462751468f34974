"""Power and energy of a node and its processors: RAPL, Cray's counters, IPMI, Slurm."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ai500.meters import Absent, Part, Reading
from ai500.meters.sources import FunctionMeter, Program, number, text

IPMI_PERIOD_SECONDS = 5.0  # management controllers are slow
IPMI_DEVICES = ("dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0")
IPMI_WATTS = re.compile(r"Instantaneous power reading:\s*(\d+(?:\.\d+)?)\s*Watts")
SLURM_PERIOD_SECONDS = 30.0  # nodes report this often by default, and all query one controller
SLURM_COVERS: dict[str, tuple[Part, ...]] = {
    "ipmi": ("node",),
    "xcc": ("node",),
    "pm_counters": ("node",),
    "ibmaem": ("node",),
    "rapl": ("processors", "memory"),
    "gpu": ("accelerators",),
}
"""Slurm's energy plugin → the parts of the node that it measures."""


@dataclass(frozen=True)
class Zone:
    """A RAPL energy counter."""

    name: str
    path: Path
    wraps_at_joules: float | None


def open_rapl(root: Path) -> FunctionMeter | Absent:
    """Meter processor packages and their memory by RAPL (Intel and AMD, the kernel's powercap).

    Of the zones, packages and their `dram` are read: `core` and `uncore` are parts of a package,
    and `psys` overlaps with all.
    """
    folder = root / "sys/class/powercap"
    folders = [
        zone
        for zone in sorted(folder.glob("intel-rapl:*"))
        if (text(zone / "name") or "").startswith("package")
    ]
    if not folders:
        return Absent("the kernel shows no processor package in /sys/class/powercap")
    packages = [_zone(package, text(package / "name") or "") for package in folders]
    if not all(packages):
        return Absent(f"{folders[0].name}/energy_uj is readable by root only (CVE-2020-8694)")
    memory = [
        _zone(part, f"{text(package / 'name')} dram")
        for package in folders
        for part in sorted(folder.glob(f"{package.name}:*"))
        if text(part / "name") == "dram"
    ]
    zones = [zone for zone in packages + memory if zone is not None]
    with_memory = len(zones) == 2 * len(packages)
    covers: tuple[Part, ...] = ("processors", "memory") if with_memory else ("processors",)
    return FunctionMeter(covers, partial(_read_zones, zones))


def _zone(folder: Path, name: str) -> Zone | None:
    if number(folder / "energy_uj") is None:
        return None
    largest = number(folder / "max_energy_range_uj")
    return Zone(name, folder / "energy_uj", None if largest is None else largest / 1e6)


def _read_zones(zones: Sequence[Zone]) -> list[Reading]:
    return [
        Reading(zone.name, "energy_joules", microjoules / 1e6, zone.wraps_at_joules)
        for zone in zones
        if (microjoules := number(zone.path)) is not None
    ]


def open_cray(root: Path) -> FunctionMeter | Absent:
    """Meter an HPE Cray EX node by its own counters, which every user may read."""
    folder = root / "sys/cray/pm_counters"
    if number(folder / "energy") is None:
        return Absent("no /sys/cray/pm_counters/energy: not a Cray EX node")
    return FunctionMeter(("node",), partial(_read_cray, folder))


def _read_cray(folder: Path) -> list[Reading]:
    return [
        Reading("node", quantity, value)
        for quantity, file in (("energy_joules", "energy"), ("watts", "power"))
        if (value := number(folder / file)) is not None
    ]


def open_ipmi(root: Path) -> FunctionMeter | Absent:
    """Meter the node by `ipmitool dcmi power reading`, if this user may use the controller."""
    ipmitool = shutil.which("ipmitool")
    if ipmitool is None:
        return Absent("ipmitool is not installed")
    devices = [root / name for name in IPMI_DEVICES if (root / name).exists()]
    if not devices:
        return Absent("no /dev/ipmi0: no management controller, or its driver is not loaded")
    if not any(os.access(device, os.R_OK | os.W_OK) for device in devices):
        return Absent(f"no permission for /{devices[0].relative_to(root)}: ask for access to it")
    command = [ipmitool, "dcmi", "power", "reading"]
    program = Program(command, period_seconds=IPMI_PERIOD_SECONDS)
    return FunctionMeter(("node",), partial(_read_ipmi, program), program.close)


def _read_ipmi(program: Program) -> list[Reading]:
    """Return the whole node's watts if its management controller (DCMI) has new output."""
    match = IPMI_WATTS.search(program.poll() or "")
    # A controller without a power sensor reports 0, which no running node draws.
    if match is None or float(match[1]) == 0:
        return []
    return [Reading("node", "watts", float(match[1]))]


class Slurm:
    """Slurm's measurements of the node: watts, and in older versions joules."""

    def __init__(self, program: Program, *, node: str, covers: tuple[Part, ...]) -> None:
        self._program = program
        self._node = node
        self.covers = covers
        self._last_joules: float | None = None

    def read(self) -> list[Reading]:
        """Return the node's values if Slurm reports new ones."""
        output = self._program.poll() or ""
        readings = []
        if watts := _slurm_field(output, "CurrentWatts"):
            readings.append(Reading(self._node, "watts", watts))
        if joules := _slurm_field(output, "ConsumedJoules"):
            # The counter is constant between two reports: only the time of a change is known.
            if self._last_joules not in (None, joules):
                readings.append(Reading(self._node, "energy_joules", joules))
            self._last_joules = joules
        return readings

    def close(self) -> None:
        """Kill scontrol if it is running."""
        self._program.close()


def open_slurm(root: Path) -> Slurm | Absent:
    """Meter the node by `scontrol show node`, in a job of a cluster with acct_gather_energy."""
    node, program = os.environ.get("SLURMD_NODENAME"), shutil.which("scontrol")
    if node is None or program is None:
        return Absent("not in a job of Slurm")
    try:
        output = subprocess.run(
            [program, "show", "config"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Absent(f"scontrol does not answer: {error}")
    match = re.search(r"AcctGatherEnergyType\s*=\s*(\S+)", output)
    names = [] if match is None else match[1].replace("acct_gather_energy/", "").split(",")
    if len(names) != 1 or names[0] not in SLURM_COVERS:
        return Absent(f"AcctGatherEnergyType = {','.join(names) or 'none'}: no energy to read")
    command = [program, "--oneliner", "show", "node", node]
    show_node = Program(command, period_seconds=SLURM_PERIOD_SECONDS)
    return Slurm(show_node, node=node, covers=SLURM_COVERS[names[0]])


def _slurm_field(output: str, name: str) -> float | None:
    """Parse a number of Slurm's output; `n/s` (not supported) is None."""
    match = re.search(rf"\b{name}=(\d+)\b", output)
    return None if match is None else float(match[1])
