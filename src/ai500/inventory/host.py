"""Processors, memory, disks and network of a Linux host, from /proc and /sys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ai500.inventory.description import Disk, Interface, NumaNode, Processors

SECTOR_BYTES = 512  # the unit of /sys, whatever the device's sector size
_ARITHMETIC = re.compile(
    r"fma|avx.*|amx.*|f16c|sse4_2|asimd.*|sve.*|sme2?|sme_.*|i8mm|bf16|vsx|altivec"
)
_UNIT = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_KINDS = {1: "ethernet", 32: "infiniband", 772: "loopback"}  # ARPHRD_… of if_arp.h
_NOT_DISKS = re.compile(r"loop|ram|zram|dm-|md|sr|fd|nbd")


def text(path: Path) -> str | None:
    """Read a small file; None if it is missing, unreadable or empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().strip("\0") or None
    except OSError:
        return None


def number(path: Path) -> int | None:
    """Read a small file as a whole number; None if it is missing or holds something else."""
    try:
        return int(text(path) or "")
    except ValueError:
        return None


def machine(root: Path) -> str | None:
    """Read manufacturer and model from the firmware."""
    folder = root / "sys/class/dmi/id"
    words = [text(folder / name) for name in ("sys_vendor", "product_name")]
    name = " ".join(word for word in words if word)
    return name or text(root / "sys/firmware/devicetree/base/model")


def hypervisor(root: Path) -> str | None:
    """Detect the hypervisor of a virtual machine; None on bare metal."""
    name = text(root / "sys/hypervisor/type")
    flags = _cpuinfo(root).get("flags", "").split()
    return name or ("unnamed" if "hypervisor" in flags else None)


def processors(root: Path) -> Processors:
    """Describe the CPUs that are online."""
    cpuinfo = _cpuinfo(root)
    folders = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*"))
    places = {
        (number(folder / "topology/physical_package_id"), number(folder / "topology/core_id"))
        for folder in folders
        if (folder / "topology").exists()
    }
    kilohertz = [number(folder / "cpufreq/cpuinfo_max_freq") for folder in folders]
    known = [value for value in kilohertz if value is not None]
    flags = cpuinfo.get("flags", cpuinfo.get("Features", "")).split()
    return Processors(
        model=cpuinfo.get("model name") or cpuinfo.get("cpu") or cpuinfo.get("Processor"),
        vendor=cpuinfo.get("vendor_id") or cpuinfo.get("CPU implementer"),
        sockets=len({socket for socket, _ in places}) or None,
        cores=len(places) or None,
        threads=int(cpuinfo["processors"]) if "processors" in cpuinfo else None,
        highest_hertz=max(known) * 1e3 if known else None,
        caches=_caches(folders),
        numa=tuple(_numa(root)),
        instructions=tuple(sorted(flag for flag in flags if _ARITHMETIC.fullmatch(flag))),
    )


def _cpuinfo(root: Path) -> dict[str, str]:
    """Parse the first processor's entries of cpuinfo; `processors` is their number."""
    lines = (text(root / "proc/cpuinfo") or "").splitlines()
    entries: dict[str, str] = {}
    for key, _, value in (line.partition(":") for line in lines):
        entries.setdefault(key.strip(), value.strip())
    count = sum(line.split(":")[0].strip() == "processor" for line in lines)
    return entries | ({"processors": str(count)} if count else {})


def _caches(folders: list[Path]) -> dict[str, int]:
    """Sum the bytes of each cache level; count a shared cache once."""
    sizes: dict[str, dict[tuple[str, str], int]] = {}
    for folder in folders:
        for cache in sorted(folder.glob("cache/index[0-9]*")):
            size = re.fullmatch(r"(\d+)([KMG])", text(cache / "size") or "")
            level, kind = text(cache / "level"), text(cache / "type") or ""
            if size is None or level is None:
                continue
            name = f"L{level}" + {"Data": "d", "Instruction": "i"}.get(kind, "")
            shared = (text(cache / "shared_cpu_list") or folder.name, kind)
            sizes.setdefault(name, {})[shared] = int(size[1]) * _UNIT[size[2]]
    return {name: sum(instances.values()) for name, instances in sorted(sizes.items())}


def _numa(root: Path) -> Iterator[NumaNode]:
    folders = root.glob("sys/devices/system/node/node[0-9]*")
    for folder in sorted(folders, key=lambda folder: int(folder.name[4:])):
        total = re.search(r"MemTotal:\s*(\d+) kB", text(folder / "meminfo") or "")
        yield NumaNode(
            number=int(folder.name[4:]),
            processors=text(folder / "cpulist") or "",
            memory_bytes=int(total[1]) << 10 if total else None,
        )


def memory_bytes(root: Path) -> int | None:
    """Read the memory that is available to the kernel, in bytes."""
    total = re.search(r"^MemTotal:\s*(\d+) kB", text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(total[1]) << 10 if total else None


def disks(root: Path) -> tuple[Disk, ...]:
    """List whole block devices, without those made of memory, files or other devices."""
    devices = []
    for folder in sorted(root.glob("sys/block/*")):
        sectors = number(folder / "size")
        if _NOT_DISKS.match(folder.name) or not sectors:
            continue
        rotational = number(folder / "queue/rotational")
        devices.append(
            Disk(
                name=folder.name,
                model=text(folder / "device/model"),
                bytes=sectors * SECTOR_BYTES,
                rotational=None if rotational is None else bool(rotational),
            )
        )
    return tuple(devices)


def interfaces(root: Path) -> tuple[Interface, ...]:
    """List network interfaces with hardware behind them, and InfiniBand's ports."""
    network = [
        Interface(
            name=folder.name,
            kind=_KINDS.get(number(folder / "type") or 0, "other"),
            state=text(folder / "operstate"),
            bits_per_second=_megabits(number(folder / "speed")),
            driver=_link_name(folder / "device/driver"),
        )
        for folder in sorted(root.glob("sys/class/net/*"))
        if (folder / "device").exists()
    ]
    for port in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        rate = re.match(r"([\d.]+) Gb/sec", text(port / "rate") or "")
        network.append(
            Interface(
                name=f"{port.parts[-3]} port {port.name}",
                kind=(text(port / "link_layer") or "infiniband").lower(),
                state=(text(port / "state") or "").rpartition(": ")[2].lower() or None,
                bits_per_second=float(rate[1]) * 1e9 if rate else None,
                driver=_link_name(port.parents[1] / "device/driver"),
            )
        )
    return tuple(network)


def _megabits(speed: int | None) -> float | None:
    return speed * 1e6 if speed is not None and speed > 0 else None  # −1: unknown to the driver


def _link_name(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None
