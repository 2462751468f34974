"""NVIDIA's accelerators, by NVML: energy, power, utilization, memory, clocks, links, faults.

The accelerators of the run are metered: those of CUDA_VISIBLE_DEVICES, else all. Their UUIDs
distinguish the accelerators of different members. Numbers in that variable follow CUDA's order,
which is NVML's only if CUDA_DEVICE_ORDER = PCI_BUS_ID or all accelerators are of one model.
Otherwise the numbers are ambiguous and all accelerators are metered: too much energy, never too
little.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ai500.meters import Absent, Reading
from ai500.meters.sources import FunctionMeter

UNKNOWN_ORDER = (
    "CUDA_VISIBLE_DEVICES has numbers, CUDA_DEVICE_ORDER is not PCI_BUS_ID, and the accelerators "
    "are of different models"
)
Probe = Callable[[], dict[str, float]]
KIBI = 1024
ALL_LINKS = 0xFFFFFFFF
"""Scope of a field that is summed over the accelerator's NVLinks."""
LINK_FIELDS = {
    "nvlink_sent_bytes": ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", ALL_LINKS, KIBI),
    "nvlink_received_bytes": ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", ALL_LINKS, KIBI),
    "pcie_sent_bytes": ("NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 0, 1),
    "pcie_received_bytes": ("NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 0, 1),
}
"""Counter → NVML's field, its scope and its unit. NVLink's counts payload, without headers.
`nvmlDeviceGetPcieThroughput` would block for 20 ms at each sample."""
ECC_KINDS = {
    "memory_corrected_errors": "NVML_MEMORY_ERROR_TYPE_CORRECTED",
    "memory_uncorrected_errors": "NVML_MEMORY_ERROR_TYPE_UNCORRECTED",
}
REDUCED_CLOCKS = 0x08 | 0x20 | 0x40 | 0x80
"""Reasons for lower clocks: hardware slowdown, heat by software and hardware, power brake. The
limit of power (0x04) is not among them: accelerators under load run at it."""
MAX_INTERVAL_SECONDS = 30.0
"""Longest interval between two samples for which a reason is taken to have held."""


def open_meter(root: Path) -> FunctionMeter | Absent:
    """Meter accelerators by NVML, if its Python binding, the driver and an accelerator exist."""
    try:
        library = import_module("pynvml")
    except ImportError:
        return Absent("pynvml is not installed (`pip install nvidia-ml-py`)")
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return Absent(f"NVML can't be used: {error}")
    accelerators = _visible(library)
    faults = _XidErrors(library, accelerators)
    probes: list[tuple[str, Probe]] = []
    for name, handle in accelerators:
        candidates: list[Probe] = [*_probes(library, handle), partial(faults.count, name)]
        # Skip what the accelerator does not support.
        probes += [(name, probe) for probe in candidates if any(_values(library, probe))]
    if not probes:
        library.nvmlShutdown()
        return Absent("NVML shows no accelerator of this run")
    return FunctionMeter(("accelerators",), partial(_read, library, probes), library.nvmlShutdown)


def _read(library: Any, probes: Sequence[tuple[str, Probe]]) -> list[Reading]:
    """Return the readings of each accelerator; none of one that fell off the bus."""
    return [
        Reading(device, quantity, value)
        for device, probe in probes
        for quantity, value in _values(library, probe)
    ]


def _visible(library: Any) -> list[tuple[str, Any]]:
    handles = []
    for index in range(library.nvmlDeviceGetCount()):
        handle = library.nvmlDeviceGetHandleByIndex(index)
        handles.append((index, _text(library.nvmlDeviceGetUUID(handle)), handle))
    everything = [(name, handle) for _, name, handle in handles]
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is not None and variable.strip() in ("", "-1"):
        return []
    selected = [word.strip() for word in (variable or "").split(",") if word.strip()]
    if any(word.isdecimal() for word in selected) and not _same_order(library, everything):
        # Goes into the member's log, which is submitted.
        print(f"nvml: {UNKNOWN_ORDER}; all {len(everything)} are metered", file=sys.stderr)
        return everything
    chosen = [
        (name, handle)
        for index, name, handle in handles
        if any(word == str(index) or name.startswith(word) for word in selected)
    ]
    # MIG slices have their own UUIDs; only the power of the whole accelerator is measured.
    return chosen or everything


def _same_order(library: Any, handles: Sequence[tuple[str, Any]]) -> bool:
    """Return True if CUDA's numbers are NVML's, or all models are the same.

    CUDA's default order starts with the fastest accelerator.
    """
    if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return True
    return len({_text(library.nvmlDeviceGetName(handle)) for _, handle in handles}) <= 1


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _probes(library: Any, handle: Any) -> list[Probe]:
    """Return one function per call of NVML: an unsupported call fails alone."""

    def probe_memory() -> dict[str, float]:
        memory = library.nvmlDeviceGetMemoryInfo(handle)
        return {"memory_bytes": memory.used, "memory_utilization": memory.used / memory.total}

    return [
        lambda: {"energy_joules": library.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3},
        lambda: {"watts": library.nvmlDeviceGetPowerUsage(handle) / 1e3},
        lambda: {"utilization": library.nvmlDeviceGetUtilizationRates(handle).gpu / 100},
        probe_memory,
        lambda: {
            "temperature_celsius": library.nvmlDeviceGetTemperature(
                handle, library.NVML_TEMPERATURE_GPU
            )
        },
        lambda: {
            "clock_hertz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM) * 1e6
        },
        *(partial(_link_bytes, library, handle, quantity) for quantity in LINK_FIELDS),
        *(partial(_ecc_errors, library, handle, quantity) for quantity in ECC_KINDS),
        lambda: {"pcie_lanes": library.nvmlDeviceGetCurrPcieLinkWidth(handle)},
        _ReducedClocks(library, handle),
    ]


def _ecc_errors(library: Any, handle: Any, quantity: str) -> dict[str, float]:
    """Read the ECC errors since the driver was loaded."""
    kind, since = getattr(library, ECC_KINDS[quantity], None), "NVML_VOLATILE_ECC"
    if kind is None or not hasattr(library, since):
        return {}
    return {quantity: library.nvmlDeviceGetTotalEccErrors(handle, kind, getattr(library, since))}


class _ReducedClocks:
    """Counter of the seconds with clocks reduced by heat or a power brake, from samples."""

    def __init__(self, library: Any, handle: Any) -> None:
        # Renamed in 2023; the driver knows both.
        names = ("nvmlDeviceGetCurrentClocksEventReasons",
                 "nvmlDeviceGetCurrentClocksThrottleReasons")  # fmt: skip
        self._reasons = next((getattr(library, n) for n in names if hasattr(library, n)), None)
        self._handle = handle
        self._seconds = 0.0
        self._read: float | None = None

    def __call__(self) -> dict[str, float]:
        if self._reasons is None:
            return {}
        reduced, now = self._reasons(self._handle) & REDUCED_CLOCKS, time.monotonic()
        if reduced and self._read is not None:
            self._seconds += min(now - self._read, MAX_INTERVAL_SECONDS)
        self._read = now
        return {"throttled_seconds": self._seconds}


class _XidErrors:
    """Counter of the critical errors (XID) that the driver logs, from NVML's events."""

    def __init__(self, library: Any, accelerators: Sequence[tuple[str, Any]]) -> None:
        self._library = library
        self._counts: dict[str, dict[str, float]] = {}
        self._events: Any = None
        kind = getattr(library, "nvmlEventTypeXidCriticalError", None)
        if kind is None:
            return
        try:
            self._events = library.nvmlEventSetCreate()
        except library.NVMLError:
            return
        for name, handle in accelerators:
            try:
                library.nvmlDeviceRegisterEvents(handle, kind, self._events)
            except library.NVMLError:
                continue
            self._counts[name] = {"xid_errors": 0.0, "last_xid": 0.0}

    def count(self, name: str) -> dict[str, float]:
        """Collect what was logged since the last call, of all accelerators, without waiting."""
        while self._counts:
            try:
                event = self._library.nvmlEventSetWait(self._events, 0)
            except self._library.NVMLError:  # none is waiting
                break
            device = _text(self._library.nvmlDeviceGetUUID(event.device))
            if device in self._counts:
                number = self._counts[device]["xid_errors"] + 1
                self._counts[device] = {"xid_errors": number, "last_xid": float(event.eventData)}
        return self._counts.get(name, {})


def _link_bytes(library: Any, handle: Any, quantity: str) -> dict[str, float]:
    """Read a counter of links; nothing where binding, driver or accelerator has none."""
    name, scope, unit = LINK_FIELDS[quantity]
    field = getattr(library, name, None)
    if field is None or not hasattr(library, "nvmlDeviceGetFieldValues"):
        return {}
    (read,) = library.nvmlDeviceGetFieldValues(handle, [(field, scope)])
    if read.nvmlReturn != 0:
        return {}
    return {quantity: float(read.value.ullVal) * unit}


def _values(library: Any, probe: Probe) -> Iterator[tuple[str, float]]:
    try:
        yield from probe().items()
    except library.NVMLError:
        return
