"""This machine: accelerators, CPU cores and slots, without importing torch."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

from ai500.core.processes import usable_cores
from ai500.inventory import host
from ai500.inventory.software import operating_system, package_version
from ai500.records import Slot, System

# Device files of accelerators of all vendors. If one exists, or on macOS, which has none, a
# subprocess imports torch and lists the accelerators that torch can use.
_DEVICE_NODES = ("nvidia[0-9]*", "kfd", "dri/renderD*", "accel/accel*", "davinci[0-9]*")
_PROBE = """
import json, torch
device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
names = []
if device is not None:
    module = torch.get_device_module(device.type)
    name = getattr(module, "get_device_name", lambda index: device.type)  # `mps` has none
    names = [name(i) for i in range(torch.accelerator.device_count())]
print(json.dumps({"type": device.type if device is not None else None, "names": names}))
"""


@cache
def accelerators() -> tuple[str | None, tuple[str, ...]]:
    """Return torch's device type, and the name of each accelerator that torch can use."""
    has_node = any(any(Path("/dev").glob(pattern)) for pattern in _DEVICE_NODES)
    if not has_node and sys.platform != "darwin":
        return None, ()
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=120, check=True
        )
        devices = json.loads(probe.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None, ()  # a login node without torch
    return devices["type"], tuple(devices["names"])


def describe() -> System:
    """Describe the system under test."""
    kind, names = accelerators()
    root = Path("/")
    return System(
        hostname=platform.node(),
        operating_system=operating_system() or platform.platform(),
        kernel=platform.release(),
        python=platform.python_version(),
        cpu=host.processors(root).model or platform.processor() or platform.machine(),
        cores=len(usable_cores()),
        memory_bytes=host.memory_bytes(root),
        accelerator=kind,
        accelerators=names,
        libraries={name: package_version(name) for name in ("ai500", "numpy", "torch")},
    )


def cpu_slots(count: int, *, cores_per_slot: int | None) -> tuple[Slot, ...]:
    """Divide this machine's cores into `count` CPU slots, each a fixed set of cores [D8]."""
    cores = usable_cores()
    size = cores_per_slot or max(1, len(cores) // count)
    return tuple(
        Slot(index=i, device="cpu", cores=cores[i * size : (i + 1) * size]) for i in range(count)
    )


def accelerator_slots(kind: str, count: int) -> tuple[Slot, ...]:
    """Return a slot per accelerator; processes are not pinned to cores."""
    return tuple(Slot(index=i, device=f"{kind}:{i}", cores=()) for i in range(count))


def default_cpu_slots(cores_per_slot: int | None, *, cores: int | None = None) -> int:
    """Return the default number of CPU slots: 2 (1 on a single core), or all that fit [D8]."""
    cores = cores or len(usable_cores())
    return max(1, cores // cores_per_slot) if cores_per_slot else min(2, cores)
