"""NVIDIA's accelerators, through NVML: energy counter, power, utilization, memory, clocks.

The accelerators of the run are metered: those that CUDA_VISIBLE_DEVICES leaves, else all. Members
that see different ones are told apart by the accelerators' UUIDs. Numbers in that variable follow
CUDA's order, which is NVML's only if CUDA_DEVICE_ORDER = PCI_BUS_ID or all accelerators are alike;
otherwise nobody knows which are meant, and all are metered: too much energy, never too little.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ai500.meters import Absent, Part, Reading

UNKNOWN_ORDER = (
    "CUDA_VISIBLE_DEVICES has numbers, CUDA_DEVICE_ORDER is not PCI_BUS_ID, and the accelerators "
    "are not alike"
)
Probe = Callable[[], dict[str, float]]


class Nvml:
    """The accelerators that the run can see."""

    covers: tuple[Part, ...] = ("accelerators",)

    def __init__(self, library: Any, probes: Sequence[tuple[str, Probe]]) -> None:
        self._library = library
        self._probes = probes

    def read(self) -> list[Reading]:
        """What each accelerator tells; one that fell off the bus tells nothing."""
        return [
            Reading(device, quantity, value)
            for device, probe in self._probes
            for quantity, value in _told(self._library, probe)
        ]

    def close(self) -> None:
        """Unload NVML."""
        self._library.nvmlShutdown()


def open_meter(root: Path) -> Nvml | Absent:
    """NVML, if its Python binding, the driver and an accelerator are here."""
    try:
        library = import_module("pynvml")
    except ImportError:
        return Absent("pynvml is not installed (`pip install nvidia-ml-py`)")
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return Absent(f"NVML can't be used: {error}")
    probes = [
        (name, probe)
        for name, handle in _visible(library)
        for probe in _probes(library, handle)
        if any(_told(library, probe))  # what an accelerator lacks is not asked for again
    ]
    if not probes:
        library.nvmlShutdown()
        return Absent("NVML shows no accelerator of this run")
    return Nvml(library, probes)


def _visible(library: Any) -> list[tuple[str, Any]]:
    handles = []
    for index in range(library.nvmlDeviceGetCount()):
        handle = library.nvmlDeviceGetHandleByIndex(index)
        handles.append((index, _text(library.nvmlDeviceGetUUID(handle)), handle))
    everyone = [(name, handle) for _, name, handle in handles]
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is not None and variable.strip() in ("", "-1"):
        return []
    stated = [word.strip() for word in (variable or "").split(",") if word.strip()]
    if any(word.isdecimal() for word in stated) and not _same_order(library, everyone):
        # Into the member's log, which is submitted.
        print(f"nvml: {UNKNOWN_ORDER}; all {len(everyone)} are metered", file=sys.stderr)
        return everyone
    chosen = [
        (name, handle)
        for index, name, handle in handles
        if any(word == str(index) or name.startswith(word) for word in stated)
    ]
    # Slices of an accelerator (MIG) have UUIDs of their own; their power is the whole one's.
    return chosen or everyone


def _same_order(library: Any, handles: Sequence[tuple[str, Any]]) -> bool:
    """Whether CUDA's numbers are NVML's, or it does not matter: CUDA begins with the fastest."""
    if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return True
    return len({_text(library.nvmlDeviceGetName(handle)) for _, handle in handles}) <= 1


def _text(told: object) -> str:
    return told.decode() if isinstance(told, bytes) else str(told)


def _probes(library: Any, handle: Any) -> list[Probe]:
    """One call into NVML each, so that one which is not supported costs only itself."""

    def memory() -> dict[str, float]:
        told = library.nvmlDeviceGetMemoryInfo(handle)
        return {"memory_bytes": told.used, "memory_utilization": told.used / told.total}

    return [
        lambda: {"energy_joules": library.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3},
        lambda: {"watts": library.nvmlDeviceGetPowerUsage(handle) / 1e3},
        lambda: {"utilization": library.nvmlDeviceGetUtilizationRates(handle).gpu / 100},
        memory,
        lambda: {
            "temperature_celsius": library.nvmlDeviceGetTemperature(
                handle, library.NVML_TEMPERATURE_GPU
            )
        },
        lambda: {
            "clock_hertz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM) * 1e6
        },
    ]


def _told(library: Any, probe: Probe) -> Iterator[tuple[str, float]]:
    try:
        yield from probe().items()
    except library.NVMLError:
        return
