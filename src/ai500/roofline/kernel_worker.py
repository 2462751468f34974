"""Measure kernels in a process of its own and write each result at once, as a line of JSON.

`python -m ai500.roofline.kernel_worker DEVICE SECONDS KERNEL:PRECISION … [memory]`. A kernel that
kills its process (an instruction the machine only claims to have) costs no other result.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, TextIO

from ai500.core import schema
from ai500.core.processes import usable_cores
from ai500.roofline import peaks as theoretical
from ai500.roofline.records import Peak


def main() -> int:
    """Describe the device, then measure the jobs of the command line."""
    device_name, seconds, *jobs = sys.argv[1:]
    # Results go to stdout; what libraries print goes to stderr.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if device_name.startswith("cpu"):
        # As in training workers: oneDNN crashes in its AMX kernels (train/precision/modes.py).
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    try:
        device = _open_device(device_name)
        description = _describe(device)
    except (RuntimeError, AssertionError, AttributeError, ValueError) as error:
        refusal = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        _write(output, refused=refusal, devices=_usable_devices())
        return 1
    _write(output, device=description)
    from ai500.roofline.kernel_benchmarks import InputPools, unsupported_reason

    pools = InputPools(device)
    reasons = {job: unsupported_reason(*job.partition(":")[::2], device) for job in jobs}
    seconds_each = float(seconds) / max(1, sum(reason is None for reason in reasons.values()))
    for job, reason in reasons.items():
        _write(output, begin=job)
        reason = reason or _measure(output, job, pools, seconds=seconds_each)
        if reason is not None:
            _write(output, unavailable=[job, reason])
        _write(output, end=job)
        if not _still_works(device):
            return 1  # a new worker continues
    return 0


def _open_device(name: str) -> Any:
    """Open the named device, the first of its kind without an index; let a CPU use all cores."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError("torch knows no such device") from error  # torch lists all vendors' names
    if device.type == "cpu":
        torch.set_num_threads(len(usable_cores()))
        return device
    return device if device.index is not None else torch.device(device.type, 0)


def _usable_devices() -> list[str]:
    """Return the devices that torch can use here."""
    import torch

    if not torch.accelerator.is_available():
        return ["cpu"]
    kind = torch.accelerator.current_accelerator()
    return ["cpu", *(f"{kind}:{index}" for index in range(torch.accelerator.device_count()))]


def _write(output: TextIO, **message: Any) -> None:
    output.write(json.dumps(schema.encode(message)) + "\n")
    output.flush()


def _measure(output: TextIO, job: str, pools: Any, *, seconds: float) -> str | None:
    """Write each result; return the reason if the device refuses."""
    from ai500.roofline import kernel_benchmarks

    kernel, _, precision = job.partition(":")
    try:
        if job == "memory":
            for memory in kernel_benchmarks.measure_memory(pools=pools, seconds=seconds):
                _write(output, memory=memory)
            return None
        for kernel_time in kernel_benchmarks.measure_kernel(
            "gemm" if kernel == "gemm" else "conv", precision, pools=pools, seconds=seconds
        ):
            _write(output, kernels=kernel_time)
    except (RuntimeError, NotImplementedError, MemoryError) as error:
        return (str(error).splitlines() or [type(error).__name__])[0]
    return None


def _still_works(device: Any) -> bool:
    """Return False after a device error that persists in this process."""
    import torch

    if device.type == "cpu":
        return True
    try:
        torch.ones(1, device=device).add_(1).item()
    except RuntimeError:
        return False
    return True


def _describe(device: Any) -> dict[str, Any]:
    """Return name, number of units the kernels run on, and theoretical peaks."""
    import torch

    if device.type == "cpu":
        cores = torch.get_num_threads()
        physical = theoretical.physical_cores(usable_cores())
        peaks = theoretical.cpu_peaks(theoretical.read_processor(), cores=physical)
        return {"unit": "core", "units": cores, "peaks": peaks}
    module = torch.get_device_module(device)
    peaks = []
    if device.type == "cuda" and torch.version.hip is None:
        properties = module.get_device_properties(device)
        peaks = theoretical.nvidia_peaks(
            (properties.major, properties.minor),
            multiprocessors=properties.multi_processor_count,
            hertz=_highest_clock(properties, index=device.index or 0),
        )
        peaks += _memory_peak(properties)
    name = str(module.get_device_name(device))
    return {"unit": "accelerator", "units": 1, "name": name, "peaks": peaks}


def _memory_peak(properties: Any) -> list[Peak]:
    """Return bus width × clock × 2 transfers, where torch reports both."""
    kilohertz = getattr(properties, "memory_clock_rate", 0)
    bits = getattr(properties, "memory_bus_width", 0)
    if not kilohertz or not bits:
        return [Peak("memory", None, "not derivable: torch reports no clock or bus width")]
    rate = 2 * kilohertz * 1e3 * bits / 8
    return [Peak("memory", rate, f"{bits} bit × {kilohertz / 1e6:.4g} GHz × 2")]


def _highest_clock(properties: Any, *, index: int) -> float | None:
    """Return the multiprocessors' highest clock in hertz, from torch or else from the driver."""
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
        stdout = subprocess.run(
            query, capture_output=True, text=True, timeout=30, check=True
        ).stdout
        return float(stdout.strip()) * 1e6
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


if __name__ == "__main__":
    sys.exit(main())
