"""IPMI: the whole node's power, as its management controller measures it (DCMI)."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from ai500.meters import Absent, Part, Reading
from ai500.meters.programs import Program

EVERY_SECONDS = 5.0
DEVICES = ("dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0")
WATTS = re.compile(r"Instantaneous power reading:\s*(\d+(?:\.\d+)?)\s*Watts")


class Ipmi:
    """`ipmitool dcmi power reading`, at a low rate: the controller is slow."""

    covers: tuple[Part, ...] = ("node",)

    def __init__(self, program: Program) -> None:
        self._program = program

    def read(self) -> list[Reading]:
        """The node's watts, when there is a new answer."""
        found = WATTS.search(self._program.answer() or "")
        # A controller without a power sensor answers 0: nothing that runs draws nothing.
        if found is None or float(found[1]) == 0:
            return []
        return [Reading("node", "watts", float(found[1]))]

    def close(self) -> None:
        """End a question that is under way."""
        self._program.close()


def open_meter(root: Path) -> Ipmi | Absent:
    """Where ipmitool is installed and this user may speak to the controller."""
    program = shutil.which("ipmitool")
    if program is None:
        return Absent("ipmitool is not installed")
    devices = [root / name for name in DEVICES if (root / name).exists()]
    if not devices:
        return Absent("no /dev/ipmi0: no management controller, or its driver is not loaded")
    if not any(os.access(device, os.R_OK | os.W_OK) for device in devices):
        return Absent(f"you may not use /{devices[0].relative_to(root)}: ask for access to it")
    return Ipmi(Program([program, "dcmi", "power", "reading"], every_seconds=EVERY_SECONDS))
