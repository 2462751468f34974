"""The node's processors and memory: how busy, how full."""

from __future__ import annotations

import os
from pathlib import Path

from ai500.meters import Absent, Part, Reading
from ai500.meters.files import text


class Host:
    """/proc/stat and /proc/meminfo."""

    covers: tuple[Part, ...] = ()

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._ticks = os.sysconf("SC_CLK_TCK")

    def read(self) -> list[Reading]:
        """Processor seconds since boot, and memory in use now."""
        found = []
        line = (text(self._proc / "stat") or "").partition("\n")[0].split()
        if line[:1] == ["cpu"]:
            # user nice system idle iowait irq softirq steal; guests are in user and nice.
            times = [int(word) / self._ticks for word in line[1:9]]
            total = sum(times)
            found.append(Reading("host", "cpu_busy_seconds", total - times[3] - times[4]))
            found.append(Reading("host", "cpu_total_seconds", total))
        words = [line.split() for line in (text(self._proc / "meminfo") or "").splitlines()]
        memory = {one[0]: float(one[1]) * 1024 for one in words if len(one) == 3}
        if "MemTotal:" in memory and "MemAvailable:" in memory:
            used = memory["MemTotal:"] - memory["MemAvailable:"]
            found.append(Reading("host", "memory_bytes", used))
            found.append(Reading("host", "memory_utilization", used / memory["MemTotal:"]))
        return found

    def close(self) -> None:
        """Nothing is held."""


def open_meter(root: Path) -> Host | Absent:
    """On Linux."""
    meter = Host(root / "proc")
    return meter if meter.read() else Absent("no /proc/stat: not Linux")
