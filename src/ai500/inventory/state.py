"""Clocks and throttling of a node, now."""

from __future__ import annotations

import re
import time
from pathlib import Path

from ai500.inventory import nvidia
from ai500.inventory.description import State
from ai500.inventory.host import number, text


def observe(root: Path = Path("/")) -> State:
    """The node at this moment; cheap enough to ask before and after every trial."""
    folders = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*"))
    hertz = [number(one / "cpufreq/scaling_cur_freq") for one in folders]
    known = [value * 1e3 for value in hertz if value is not None]
    # Where the kernel sets no frequency (a virtual machine) it may still tell one.
    told = re.findall(r"^cpu MHz\s*: ([\d.]+)$", text(root / "proc/cpuinfo") or "", re.MULTILINE)
    known = known or [float(megahertz) * 1e6 for megahertz in told]
    throttled = [number(one / "thermal_throttle/core_throttle_count") for one in folders]
    counted = [value for value in throttled if value is not None]
    governors = {text(one / "cpufreq/scaling_governor") for one in folders} - {None}
    load = (text(root / "proc/loadavg") or "").split()
    return State(
        wall=time.time(),
        load=float(load[0]) if load else None,
        governors=tuple(sorted(governor for governor in governors if governor)),
        processor_hertz=(min(known), max(known)) if known else None,
        processor_throttled=sum(counted) if counted else None,
        accelerators=nvidia.states(),
    )
