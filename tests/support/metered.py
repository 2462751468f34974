"""Meter logs as recorders write them, from known power and load, and trees that look like nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ai500.core import events

BOOT = "00000000-0000-0000-0000-000000000000"

Columns = Sequence[tuple[str, str, str, float | None]]


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Write files below `root`, in the layout of the kernel's `/`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n", encoding="ascii")
    return root


def write_log(
    folder: Path,
    *,
    host: str = "a",
    member: int = 0,
    boot: str = BOOT,
    covers: Mapping[str, Sequence[str]],
    columns: Columns,
    times: Sequence[float],
    values: Callable[[float], Sequence[float | None]],
    offset: float = 0.0,
    monotonic_zero: float = 0.0,
    period: float = 1.0,
    absent: Mapping[str, str] | None = None,
) -> Path:
    """Write one recorder's log; at the true time t its wall clock shows t + offset."""
    head = {
        "event": "meters", "wall": times[0] + offset, "monotonic": times[0] - monotonic_zero,
        "host": host, "boot": boot, "trial": 1, "member": member, "period_seconds": period,
        "covers": {name: list(parts) for name, parts in covers.items()},
        "absent": dict(absent or {}),
    }  # fmt: skip
    lines: list[dict[str, Any]] = [head, {"event": "columns", "columns": list(columns)}]
    lines += [
        {
            "event": "sample",
            "wall": t + offset,
            "monotonic": t - monotonic_zero,
            "values": list(values(t)),
        }
        for t in times
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{host}-{member:03d}.jsonl"
    events.append(path, lines)
    return path


def seconds(first: float, last: float, step: float = 1.0) -> list[float]:
    """Return the times of samples, both ends included."""
    return [first + step * n for n in range(round((last - first) / step) + 1)]


GPU_NODE_COLUMNS: list[tuple[str, str, str, float | None]] = [
    *((("nvml", f"GPU-{n}", q, None)) for n in range(4)
      for q in ("energy_joules", "watts", "utilization", "memory_utilization")),
    ("host", "host", "cpu_busy_seconds", None), ("host", "host", "cpu_total_seconds", None),
    ("host", "host", "memory_utilization", None),
    ("disk", "nvme0n1", "disk_read_bytes", None), ("disk", "nvme0n1", "disk_written_bytes", None),
    ("network", "lo", "network_sent_bytes", None),
    ("network", "lo", "network_received_bytes", None),
    ("network", "mlx5_0:1", "network_sent_bytes", None),
    ("network", "mlx5_0:1", "network_received_bytes", None),
]  # fmt: skip


def gpu_node(t: float, *, node: int = 0) -> list[float]:
    """Return readings of a node of four accelerators of about 600 W, in waves of an epoch."""
    values: list[float] = []
    for n in range(4):
        watts = 600 + 40 * n + 10 * node + 60 * math.sin(t / 3 + n)
        energy = (600 + 40 * n + 10 * node) * t + 180 * (1 - math.cos(t / 3 + n))
        busy = 0.9 - 0.02 * n + 0.08 * math.sin(t / 3 + node)
        values += [energy, watts, busy, 0.4 + 0.1 * n]
    values += [16 * t + 5 * math.sin(t / 3), 64 * t, 0.2 + 0.01 * node]
    values += [4e8 * t + 1e9 * math.sin(t / 3), 1e7 * t]
    values += [3e7 * t, 3e7 * t, 2.4e9 * t + 2e9 * math.sin(t / 3), 2.3e9 * t]
    return values
