"""What NVIDIA's management library tells, where both it and a device are there."""

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
_CLOCK_EVENTS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x2: "applications' clock setting",
    0x100: "display clock setting",
}
"""nvmlClocksEventReason… of nvml.h; idle (0x1) and sync boost (0x10) are no slowdown."""


@contextlib.contextmanager
def library() -> Iterator[Any]:
    """NVML, initialised; None without it."""
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
    """Every device the driver shows to this process."""
    with library() as nvml:
        if nvml is None:
            return ()
        driver = _asked(lambda: _plain(nvml.nvmlSystemGetDriverVersion()))
        return tuple(
            _accelerator(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount())
        )


def _accelerator(nvml: Any, index: int, driver: str | None) -> Accelerator:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    clock = _asked(lambda: nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM))
    memory_clock = _asked(lambda: nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_MEM))
    limit = _asked(lambda: nvml.nvmlDeviceGetPowerManagementLimit(device))
    generation = _asked(lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(device))
    width = _asked(lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(device))
    links = sum(
        _asked(partial(nvml.nvmlDeviceGetNvLinkState, device, link)) == 1
        for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18))
    )
    return Accelerator(
        index=index,
        name=_plain(nvml.nvmlDeviceGetName(device)),
        uuid=_asked(lambda: _plain(nvml.nvmlDeviceGetUUID(device))),
        memory_bytes=_asked(lambda: int(nvml.nvmlDeviceGetMemoryInfo(device).total)),
        driver=driver,
        firmware=_asked(lambda: _plain(nvml.nvmlDeviceGetVbiosVersion(device))),
        highest_clock_hertz=None if clock is None else clock * _MEGA,
        highest_memory_clock_hertz=None if memory_clock is None else memory_clock * _MEGA,
        power_limit_watts=None if limit is None else limit / 1e3,
        bus=f"PCIe {generation}.0 ×{width}" if generation and width else None,
        links={"NVLink": links} if links else {},
    )


def states() -> tuple[AcceleratorState, ...]:
    """Clocks, temperature and what slows each device now."""
    with library() as nvml:
        if nvml is None:
            return ()
        return tuple(_state(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))


def _state(nvml: Any, index: int) -> AcceleratorState:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    clock = _asked(lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM))
    memory_clock = _asked(lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM))
    # Renamed from …ThrottleReasons in driver 535; the older name stays in the library.
    reasons = _asked(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)) or 0
    return AcceleratorState(
        index=index,
        clock_hertz=None if clock is None else clock * _MEGA,
        memory_clock_hertz=None if memory_clock is None else memory_clock * _MEGA,
        celsius=_asked(
            lambda: float(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))
        ),
        throttled_by=tuple(name for bit, name in _CLOCK_EVENTS.items() if reasons & bit),
    )


def link_matrix() -> tuple[str, ...]:
    """How devices, network cards and NUMA nodes are joined, as `nvidia-smi topo -m` prints it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        answer = subprocess.run(
            [program, "topo", "-m"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", answer.stdout)  # it underlines even into a pipe
    lines = [" ".join(line.split()) for line in plain.splitlines()]
    end = next((i for i, line in enumerate(lines) if line.startswith("Legend")), len(lines))
    return tuple(line for line in lines[:end] if line)


def _asked(question: Callable[[], T]) -> T | None:
    """An answer, or None where this device or driver has none."""
    try:
        return question()
    except Exception:  # the library's own error, for each thing a device lacks
        return None


def _plain(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
