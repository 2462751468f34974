"""Processors, memory, disks and network of a Linux host, from /proc and /sys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ai500.inventory.description import Disk, Interface, NumaNode, Processors

SECTOR_BYTES = 512  # /sys counts in these, whatever the device's own sectors are
_ARITHMETIC = re.compile(
    r"fma|avx.*|amx.*|f16c|sse4_2|asimd.*|sve.*|sme2?|sme_.*|i8mm|bf16|vsx|altivec"
)
_UNIT = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_KINDS = {1: "ethernet", 32: "infiniband", 772: "loopback"}
"""ARPHRD_… of the kernel's if_arp.h."""
_NOT_DISKS = re.compile(r"loop|ram|zram|dm-|md|sr|fd|nbd")


def text(path: Path) -> str | None:
    """A small file's contents; None where it is missing, unreadable or empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().strip("\0") or None
    except OSError:
        return None


def number(path: Path) -> int | None:
    """A small file's whole number."""
    try:
        return int(text(path) or "")
    except ValueError:
        return None


def machine(root: Path) -> str | None:
    """Maker and model, by the firmware."""
    folder = root / "sys/class/dmi/id"
    words = [text(folder / name) for name in ("sys_vendor", "product_name")]
    told = " ".join(word for word in words if word)
    return told or text(root / "sys/firmware/devicetree/base/model")


def hypervisor(root: Path) -> str | None:
    """What the machine runs on where it is a virtual one."""
    told = text(root / "sys/hypervisor/type")
    flags = _cpuinfo(root).get("flags", "").split()
    return told or ("unnamed" if "hypervisor" in flags else None)


def processors(root: Path) -> Processors:
    """The CPUs that are online."""
    told = _cpuinfo(root)
    folders = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*"))
    places = {
        (number(one / "topology/physical_package_id"), number(one / "topology/core_id"))
        for one in folders
        if (one / "topology").exists()
    }
    highest = [number(one / "cpufreq/cpuinfo_max_freq") for one in folders]
    known = [value for value in highest if value is not None]
    flags = told.get("flags", told.get("Features", "")).split()
    return Processors(
        model=told.get("model name") or told.get("cpu") or told.get("Processor"),
        vendor=told.get("vendor_id") or told.get("CPU implementer"),
        sockets=len({socket for socket, _ in places}) or None,
        cores=len(places) or None,
        threads=int(told["processors"]) if "processors" in told else None,
        highest_hertz=max(known) * 1e3 if known else None,
        caches=_caches(folders),
        numa=tuple(_numa(root)),
        instructions=tuple(sorted(flag for flag in flags if _ARITHMETIC.fullmatch(flag))),
    )


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's lines, and how many there are."""
    lines = (text(root / "proc/cpuinfo") or "").splitlines()
    told: dict[str, str] = {}
    for key, _, value in (line.partition(":") for line in lines):
        told.setdefault(key.strip(), value.strip())
    count = sum(line.split(":")[0].strip() == "processor" for line in lines)
    return told | ({"processors": str(count)} if count else {})


def _caches(folders: list[Path]) -> dict[str, int]:
    """Bytes of each level; a cache that several processors share counts once."""
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
    return {name: sum(each.values()) for name, each in sorted(sizes.items())}


def _numa(root: Path) -> Iterator[NumaNode]:
    folders = root.glob("sys/devices/system/node/node[0-9]*")
    for folder in sorted(folders, key=lambda one: int(one.name[4:])):
        total = re.search(r"MemTotal:\s*(\d+) kB", text(folder / "meminfo") or "")
        yield NumaNode(
            number=int(folder.name[4:]),
            processors=text(folder / "cpulist") or "",
            memory_bytes=int(total[1]) << 10 if total else None,
        )


def memory_bytes(root: Path) -> int | None:
    """What the kernel can use."""
    total = re.search(r"^MemTotal:\s*(\d+) kB", text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(total[1]) << 10 if total else None


def disks(root: Path) -> tuple[Disk, ...]:
    """Whole block devices, without those made of memory, files or other devices."""
    found = []
    for folder in sorted(root.glob("sys/block/*")):
        sectors = number(folder / "size")
        if _NOT_DISKS.match(folder.name) or not sectors:
            continue
        turns = number(folder / "queue/rotational")
        found.append(
            Disk(
                name=folder.name,
                model=text(folder / "device/model"),
                bytes=sectors * SECTOR_BYTES,
                rotational=None if turns is None else bool(turns),
            )
        )
    return tuple(found)


def interfaces(root: Path) -> tuple[Interface, ...]:
    """Network interfaces with hardware behind them, and InfiniBand's ports."""
    found = [
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
        found.append(
            Interface(
                name=f"{port.parts[-3]} port {port.name}",
                kind=(text(port / "link_layer") or "infiniband").lower(),
                state=(text(port / "state") or "").rpartition(": ")[2].lower() or None,
                bits_per_second=float(rate[1]) * 1e9 if rate else None,
                driver=_link_name(port.parents[1] / "device/driver"),
            )
        )
    return tuple(found)


def _megabits(speed: int | None) -> float | None:
    return speed * 1e6 if speed is not None and speed > 0 else None  # −1: the driver doesn't know


def _link_name(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None
