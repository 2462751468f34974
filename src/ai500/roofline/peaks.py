"""Theoretical peaks from the hardware's own numbers, or the reason why there is none. No torch.

Dense products, 2 operations per multiply-add, at the highest clock the hardware reports. No chip
sustains that clock under full load, so these are called theoretical.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ai500.core.units import human_bytes
from ai500.roofline.records import KERNEL_PRECISIONS, Peak

# Operations per clock and multiprocessor by compute capability.
# Sources: NVIDIA's architecture whitepapers of V100, Turing, A100 and H100 (tables of peak rates),
# and the CUDA C++ Programming Guide's throughput of native arithmetic for FP32. Capabilities whose
# rate differs between products (8.6, 8.9) are left out.
NVIDIA_PER_CLOCK: Mapping[tuple[int, int], Mapping[str, int]] = {
    (7, 0): {"fp32": 128, "fp16": 1024},
    (7, 5): {"fp32": 128, "fp16": 1024, "int8": 2048},
    (8, 0): {"fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    (9, 0): {"fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
}
# The same of one core with Intel's matrix unit.
AMX_PER_CLOCK = {"bf16": 1024, "int8": 2048}


@dataclass(frozen=True, slots=True)
class Processor:
    """A CPU's features from /proc and /sys."""

    vendor: str
    family: int
    flags: frozenset[str]
    hertz: float | None
    """Highest clock; None: not reported, as in most virtual machines."""


def nvidia_peaks(
    capability: tuple[int, int], *, multiprocessors: int, hertz: float | None
) -> list[Peak]:
    """Return the peaks of one GPU."""
    rates = NVIDIA_PER_CLOCK.get(capability)
    known = f"compute capability {capability[0]}.{capability[1]}"
    if rates is None:
        return [_underivable(name, f"no rates on record for {known}") for name in KERNEL_PRECISIONS]
    if hertz is None:
        return [_underivable(name, "the driver reports no clock") for name in rates]
    return [
        Peak(
            name,
            multiprocessors * hertz * rate,
            f"{multiprocessors} multiprocessors × {hertz / 1e9:.3g} GHz × {rate} per clock",
        )
        for name, rate in rates.items()
    ]


def cpu_peaks(processor: Processor, *, cores: int) -> list[Peak]:
    """Return the peaks of physical cores; hardware threads of a core share its units."""
    peaks = []
    for name in ("fp32", "bf16", "int8"):
        rate, source = _per_clock(processor, name)
        if rate is None:
            peaks.append(_underivable(name, source))
        elif processor.hertz is None:
            peaks.append(_underivable(name, "the machine reports no clock"))
        else:
            text = f"{cores} cores × {processor.hertz / 1e9:.3g} GHz × {rate} per clock ({source})"
            peaks.append(Peak(name, cores * processor.hertz * rate, text))
    return peaks


def _per_clock(processor: Processor, precision: str) -> tuple[int | None, str]:
    """Return operations per clock of one core with its vector unit; or None with the reason."""
    if precision in AMX_PER_CLOCK:
        if f"amx_{precision}" in processor.flags:
            return AMX_PER_CLOCK[precision], "AMX"
        return None, f"no {precision.upper()} unit whose rate is on record"
    units = _fma_units(processor)
    if units is None:
        return None, "the processor's model does not tell its number of FMA units"
    count, lanes = units
    return count * lanes * 2, f"{count} FMA × {lanes} lanes"


def _fma_units(processor: Processor) -> tuple[int, int] | None:
    """Return the number of fused multiply-add units, and FP32 lanes of each.

    Intel's and AMD's software optimization guides: Xeons with AMX have two units of 512 bits; some
    earlier Xeons have one. Zen 4 (family 25 with AVX-512) executes 512 bits in two halves.
    """
    flags, wide = processor.flags, "avx512f" in processor.flags
    if processor.vendor == "GenuineIntel" and processor.family == 6:
        if wide:
            return (2, 16) if "amx_tile" in flags else None
        return (2, 8) if {"avx2", "fma"} <= flags else None
    if processor.vendor == "AuthenticAMD" and {"avx2", "fma"} <= flags:
        return {23: (2, 8), 25: (2, 8), 26: (2, 16)}.get(processor.family)
    return None


def read_processor() -> Processor:
    """Read this machine's processor."""
    lines = _text("/proc/cpuinfo").splitlines()
    fields = {
        name.strip(): value.strip()
        for name, separator, value in (line.partition(":") for line in reversed(lines))
        if separator
    }
    kilohertz = _text("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    return Processor(
        vendor=fields.get("vendor_id", ""),
        family=int(fields.get("cpu family", "0")),
        flags=frozenset(fields.get("flags", "").split()),
        hertz=float(kilohertz) * 1e3 if kilohertz.isdigit() else None,
    )


def physical_cores(cpus: Iterable[int], *, root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Count the cores of these hardware threads; without topology in /sys each is a core."""
    siblings = {
        _text(str(root / f"cpu{cpu}/topology/thread_siblings_list")).strip() or f"cpu {cpu}"
        for cpu in cpus
    }
    return len(siblings)


def last_level_cache_bytes(root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Return the size of all caches of the highest level together; None: /sys has no data."""
    sizes: dict[tuple[int, str], int] = {}
    for index in root.glob("cpu[0-9]*/cache/index*"):
        level, size, shared = (
            _text(str(index / name)).strip() for name in ("level", "size", "shared_cpu_list")
        )
        if level.isdigit() and size.endswith("K") and size[:-1].isdigit():
            sizes[int(level), shared] = int(size[:-1]) * 1024
    highest = max((level for level, _ in sizes), default=0)
    return sum(size for (level, _), size in sizes.items() if level == highest) or None


def available_memory_bytes() -> int:
    """Return the memory available without swapping, by the kernel's estimate."""
    for line in _text("/proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def memory_sizes(device: str, *, memory: int, cache: int) -> list[int]:
    """Return array sizes in bytes, smallest first; memory has room for three arrays and more."""
    largest, least = memory // 5, 2 * cache
    if largest < least:
        raise MemoryError(
            f"free memory ({human_bytes(memory)}) is too small for three arrays of twice the "
            f"cache ({human_bytes(cache)})"
        )
    sizes = [least] if device == "cpu" else [2**32, 2**30]
    return sorted({max(least, min(size, largest)) // 1024 * 1024 for size in sizes})


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _underivable(name: str, reason: str) -> Peak:
    return Peak(name, None, f"not derivable: {reason}")
