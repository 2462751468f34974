"""Measures kernels in a process of its own and tells each result at once, as a line of JSON.

`python -m ai500.roofline.worker DEVICE SECONDS KERNEL:PRECISION … [memory]`. A kernel that kills
its process (an instruction the machine only claims to have) takes nothing else with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, TextIO

from ai500.core import schema
from ai500.roofline import theory
from ai500.roofline.records import Peak


def main() -> int:
    """Tell what the device is, then measure what was asked for."""
    device_name, seconds, *jobs = sys.argv[1:]
    # Results go to the real output; whatever libraries print goes to stderr.
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if device_name.startswith("cpu"):
        # As the workers that train: oneDNN dies of its AMX kernels (train/precision/modes.py).
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    try:
        device = _device(device_name)
        description = _described(device)
    except (RuntimeError, AssertionError, AttributeError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        _tell(told, refused=why, devices=_devices())
        return 1
    _tell(told, device=description)
    reasons = {job: _why_not(job, device) for job in jobs}
    each = float(seconds) / max(1, sum(reason is None for reason in reasons.values()))
    for job, reason in reasons.items():
        _tell(told, begin=job)
        reason = reason or _measure(told, job, device, seconds=each)
        if reason is not None:
            _tell(told, unavailable=[job, reason])
        _tell(told, end=job)
        if not _still_works(device):
            return 1  # a new worker goes on
    return 0


def _device(name: str) -> Any:
    """By torch's name, with all cores that this process has, or its first of several."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError("torch knows no such device") from error  # its list is of all vendors
    if device.type == "cpu":
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        return device
    return device if device.index is not None else torch.device(device.type, 0)


def _devices() -> list[str]:
    """Those that torch can use here."""
    import torch

    if not torch.accelerator.is_available():
        return ["cpu"]
    kind = torch.accelerator.current_accelerator()
    return ["cpu", *(f"{kind}:{index}" for index in range(torch.accelerator.device_count()))]


def _why_not(job: str, device: Any) -> str | None:
    from ai500.roofline import ceilings

    kernel, _, precision = job.partition(":")
    return ceilings.why_not(kernel, precision, device)


def _tell(told: TextIO, **what: Any) -> None:
    told.write(json.dumps(what) + "\n")
    told.flush()


def _measure(told: TextIO, job: str, device: Any, *, seconds: float) -> str | None:
    """Tell each result; why there is none, if the device refuses."""
    from ai500.roofline import ceilings

    kernel, _, precision = job.partition(":")
    try:
        if job == "memory":
            for memory in ceilings.measure_memory(device=device, seconds=seconds):
                _tell(told, memory=schema.encode(memory))
            return None
        for found in ceilings.measure_kernel(
            "gemm" if kernel == "gemm" else "conv", precision, device=device, seconds=seconds
        ):
            _tell(told, kernel=schema.encode(found))
    except (RuntimeError, NotImplementedError, MemoryError) as error:
        return (str(error).splitlines() or [type(error).__name__])[0]
    return None


def _still_works(device: Any) -> bool:
    """False: an error of the device that stays with this process for good."""
    import torch

    if device.type == "cpu":
        return True
    try:
        torch.ones(1, device=device).add_(1).item()
    except RuntimeError:
        return False
    return True


def _described(device: Any) -> dict[str, Any]:
    """Name, how many units kernels run on together, and their theoretical peaks."""
    import torch

    if device.type == "cpu":
        cores = torch.get_num_threads()
        physical = theory.physical_cores(os.sched_getaffinity(0))
        peaks = theory.cpu(theory.read_processor(), cores=physical)
        return {"unit": "core", "units": cores, "peaks": schema.encode(peaks)}
    module = torch.get_device_module(device)
    peaks = []
    if device.type == "cuda" and torch.version.hip is None:
        properties = module.get_device_properties(device)
        peaks = theory.nvidia(
            (properties.major, properties.minor),
            multiprocessors=properties.multi_processor_count,
            hertz=_highest_clock(properties, index=device.index or 0),
        )
        peaks += _memory_peak(properties)
    name = str(module.get_device_name(device))
    return {"unit": "accelerator", "units": 1, "name": name, "peaks": schema.encode(peaks)}


def _memory_peak(properties: Any) -> list[Peak]:
    """Two transfers a clock over the whole bus, where torch tells both."""
    kilohertz = getattr(properties, "memory_clock_rate", 0)
    bits = getattr(properties, "memory_bus_width", 0)
    if not kilohertz or not bits:
        return [Peak("memory", None, "not derivable: clock or width of the bus is not told")]
    rate = 2 * kilohertz * 1e3 * bits / 8
    return [Peak("memory", rate, f"{bits} bit × {kilohertz / 1e6:.4g} GHz × 2")]


def _highest_clock(properties: Any, *, index: int) -> float | None:
    """Hertz of the multiprocessors: torch's word, else the driver's."""
    kilohertz = getattr(properties, "clock_rate", 0)
    if kilohertz:
        return float(kilohertz) * 1e3
    query = [
        "nvidia-smi",
        f"--id={index}",
        "--query-gpu=clocks.max.sm",
        "--format=csv,noheader,nounits",
    ]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
        return float(said.strip()) * 1e6
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


if __name__ == "__main__":
    sys.exit(main())
