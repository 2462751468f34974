"""NVIDIA's accelerators, described by NVML where the library and a device exist."""

from __future__ import annotations

import contextlib
import importlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from ai500.inventory.description import Accelerator, AcceleratorState

T = TypeVar("T")
_MEGA = 1e6
PCIE_LANE = {
    1: 2.5e9 / 8 * 8 / 10,
    2: 5e9 / 8 * 8 / 10,
    3: 8e9 / 8 * 128 / 130,
    4: 16e9 / 8 * 128 / 130,
    5: 32e9 / 8 * 128 / 130,
    6: 64e9 / 8 * 242 / 256,
}
"""Generation → bytes per second of a lane in each direction: rate × coding (PCIe 6: flits)."""
_CLOCK_EVENTS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x2: "applications' clock setting",
    0x100: "display clock setting",
}
"""nvmlClocksEventReason… of nvml.h; idle (0x1) and sync boost (0x10) are not throttling."""


@contextlib.contextmanager
def library() -> Iterator[Any]:
    """Initialize NVML and yield it; yield None without it."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # NVMLError is not importable without the library
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def accelerators() -> tuple[Accelerator, ...]:
    """Describe every device that this process may see."""
    with library() as nvml:
        if nvml is None:
            return ()
        driver = _optional(lambda: _plain(nvml.nvmlSystemGetDriverVersion()))
        return tuple(
            _accelerator(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount())
        )


def _accelerator(nvml: Any, index: int, driver: str | None) -> Accelerator:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    clock = _optional(lambda: nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM))
    memory_clock = _optional(lambda: nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_MEM))
    limit = _optional(lambda: nvml.nvmlDeviceGetPowerManagementLimit(device))
    generation = _optional(lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(device))
    width = _optional(lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(device))
    links = sum(
        _optional(partial(nvml.nvmlDeviceGetNvLinkState, device, link)) == 1
        for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18))
    )
    return Accelerator(
        index=index,
        name=_plain(nvml.nvmlDeviceGetName(device)),
        uuid=_optional(lambda: _plain(nvml.nvmlDeviceGetUUID(device))),
        memory_bytes=_optional(lambda: int(nvml.nvmlDeviceGetMemoryInfo(device).total)),
        driver=driver,
        firmware=_optional(lambda: _plain(nvml.nvmlDeviceGetVbiosVersion(device))),
        highest_clock_hertz=None if clock is None else clock * _MEGA,
        highest_memory_clock_hertz=None if memory_clock is None else memory_clock * _MEGA,
        power_limit_watts=None if limit is None else limit / 1e3,
        bus=f"PCIe {generation}.0 ×{width}" if generation and width else None,
        links={"NVLink": links} if links else {},
        link_peaks=link_peaks(
            generation, width, nvlinks=links, nvlink_mbps=_nvlink_speed(nvml, device)
        ),
    )


def link_peaks(
    generation: int | None, width: int | None, *, nvlinks: int, nvlink_mbps: int | None
) -> dict[str, float]:
    """Compute the theoretical bytes per second of PCIe and of all NVLinks in each direction."""
    peaks = {}
    if generation in PCIE_LANE and width:
        peaks["PCIe"] = PCIE_LANE[generation] * width
    if nvlinks and nvlink_mbps:
        peaks["NVLink"] = nvlinks * nvlink_mbps * _MEGA
    return peaks


def _nvlink_speed(nvml: Any, device: Any) -> int | None:
    """Return the common speed of the active NVLinks, in MB/s."""
    field = getattr(nvml, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", None)
    if field is None:
        return None
    values = _optional(lambda: nvml.nvmlDeviceGetFieldValues(device, [field]))
    if not values or values[0].nvmlReturn != 0:
        return None
    return int(values[0].value.uiVal) or None


def states() -> tuple[AcceleratorState, ...]:
    """Read clocks, temperature and throttle reasons of each device."""
    with library() as nvml:
        if nvml is None:
            return ()
        return tuple(_state(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))


def _state(nvml: Any, index: int) -> AcceleratorState:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    clock = _optional(lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM))
    memory_clock = _optional(lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM))
    # Renamed from …ThrottleReasons in driver 535; the older name stays in the library.
    reasons = _optional(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)) or 0
    return AcceleratorState(
        index=index,
        clock_hertz=None if clock is None else clock * _MEGA,
        memory_clock_hertz=None if memory_clock is None else memory_clock * _MEGA,
        celsius=_optional(
            lambda: float(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))
        ),
        throttled_by=tuple(name for bit, name in _CLOCK_EVENTS.items() if reasons & bit),
    )


def link_matrix() -> tuple[str, ...]:
    """Return the matrix of links among devices, network cards and NUMA nodes (nvidia-smi)."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        topology = subprocess.run(
            [program, "topo", "-m"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", topology.stdout)  # escapes even in a pipe
    lines = [" ".join(line.split()) for line in plain.splitlines()]
    end = next((i for i, line in enumerate(lines) if line.startswith("Legend")), len(lines))
    return tuple(line for line in lines[:end] if line)


def _optional(query: Callable[[], T]) -> T | None:
    """Return the result of a query; None if the device or driver does not support it."""
    try:
        return query()
    except Exception:  # NVMLError is not importable without the library
        return None


def _plain(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
