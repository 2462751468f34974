"""Slurm's own measurements of the node, where the cluster gathers energy (acct_gather_energy)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from ai500.meters import Absent, Part, Reading
from ai500.meters.programs import Program

EVERY_SECONDS = 30.0
"""As often as nodes report by default; every node asks the one controller."""
COVERS: dict[str, tuple[Part, ...]] = {
    "ipmi": ("node",),
    "xcc": ("node",),
    "pm_counters": ("node",),
    "ibmaem": ("node",),
    "rapl": ("processors", "memory"),
    "gpu": ("accelerators",),
}
"""What each of Slurm's plugins measures."""


class Slurm:
    """`scontrol show node`: watts, and in older versions joules."""

    def __init__(self, program: Program, *, node: str, covers: tuple[Part, ...]) -> None:
        self._program = program
        self._node = node
        self.covers = covers
        self._last_joules: float | None = None

    def read(self) -> list[Reading]:
        """The node's values, when Slurm has new ones."""
        told = self._program.answer() or ""
        found = []
        watts = _field(told, "CurrentWatts")
        if watts:
            found.append(Reading(self._node, "watts", watts))
        joules = _field(told, "ConsumedJoules")
        if joules:
            # It stands still between two reports: only the moment of a step is known.
            if self._last_joules not in (None, joules):
                found.append(Reading(self._node, "energy_joules", joules))
            self._last_joules = joules
        return found

    def close(self) -> None:
        """End a question that is under way."""
        self._program.close()


def open_meter(root: Path) -> Slurm | Absent:
    """In a job of a cluster that gathers energy."""
    node, program = os.environ.get("SLURMD_NODENAME"), shutil.which("scontrol")
    if node is None or program is None:
        return Absent("not in a job of Slurm")
    try:
        told = subprocess.run(
            [program, "show", "config"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Absent(f"scontrol does not answer: {error}")
    kinds = re.search(r"AcctGatherEnergyType\s*=\s*(\S+)", told)
    names = [] if kinds is None else kinds[1].replace("acct_gather_energy/", "").split(",")
    if len(names) != 1 or names[0] not in COVERS:
        return Absent(f"AcctGatherEnergyType = {','.join(names) or 'none'}: no energy to read")
    asking = Program([program, "--oneliner", "show", "node", node], every_seconds=EVERY_SECONDS)
    return Slurm(asking, node=node, covers=COVERS[names[0]])


def _field(text: str, name: str) -> float | None:
    """A number of Slurm's; `n/s` (not supported) is none."""
    found = re.search(rf"\b{name}=(\d+)\b", text)
    return None if found is None else float(found[1])
