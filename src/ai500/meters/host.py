"""Load, traffic and faults of the node, from /proc and /sys: processors, memory, disks, network."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ai500.meters import LOOPBACK, Absent, Reading
from ai500.meters.sources import FunctionMeter, number, text

SECTOR_BYTES = 512  # the kernel's unit in diskstats, whatever the disk's sector size
WORD_BYTES = 4  # InfiniBand's counters count words
ARPHRD_INFINIBAND = 32
PORT_ERRORS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors")
"""InfiniBand's counters of a bad cable or port."""
ECC_COUNTERS = {
    "memory_corrected_errors": "ce_count", "memory_uncorrected_errors": "ue_count",
}  # fmt: skip
"""Quantity → file of a memory controller of the kernel's EDAC."""


def open_host(root: Path) -> FunctionMeter | Absent:
    """Meter processor time and memory, throttling and ECC errors: /proc and /sys/devices/system."""
    system = root / "sys/devices/system"
    controllers = sorted((system / "edac/mc").glob("mc[0-9]*"))
    read = partial(_read_host, root / "proc", _throttle_files(system / "cpu"), controllers)
    return FunctionMeter((), read) if read() else Absent("no /proc/stat: not Linux")


def open_disks(root: Path) -> FunctionMeter | Absent:
    """Meter bytes read from and written to whole disks, and their busy time: /proc/diskstats.

    Partitions, and volumes made of disks, would count twice.
    """
    read = partial(_read_disks, root)
    return (
        FunctionMeter((), read) if read() else Absent("/proc/diskstats shows no disk of this node")
    )


def open_network(root: Path) -> FunctionMeter | Absent:
    """Meter bytes over network interfaces and ports: /proc/net/dev, InfiniBand's and RoCE's ports.

    Interfaces made of others (bonds, bridges) would count twice, and so would IP over InfiniBand
    beside its port's counters. All interfaces but the loopback leave the node.
    """
    ports = sorted((root / "sys/class/infiniband").glob("*/ports/*/counters"))
    names = {name for name, _, _ in _interfaces(root)} - {LOOPBACK}
    folder = root / "sys/class/net"
    if ports:
        names = {name for name in names if number(folder / name / "type") != ARPHRD_INFINIBAND}
    # In a container no interface has hardware behind it: there, all are metered.
    hardware = {name for name in names if (folder / name / "device").exists()}
    read = partial(_read_network, root, {LOOPBACK} | (hardware or names), ports)
    return FunctionMeter((), read) if read() else Absent("no /proc/net/dev: not Linux")


def _throttle_files(cpus: Path) -> dict[str, Path]:
    """Return a file for each processor package (Intel): its time throttled by heat, in ms."""
    files: dict[str, Path] = {}
    for file in sorted(cpus.glob("cpu[0-9]*/thermal_throttle/package_throttle_total_time_ms")):
        package = number(file.parents[1] / "topology/physical_package_id")
        files.setdefault(f"package {package or 0:.0f}", file)
    return files


def _read_host(
    proc: Path, throttle_files: Mapping[str, Path], controllers: Sequence[Path]
) -> list[Reading]:
    readings = [
        Reading(package, "throttled_seconds", milliseconds / 1000)
        for package, file in throttle_files.items()
        if (milliseconds := number(file)) is not None
    ]
    readings += [
        Reading(controller.name, quantity, count)
        for controller in controllers
        for quantity, file in ECC_COUNTERS.items()
        if (count := number(controller / file)) is not None
    ]
    line = (text(proc / "stat") or "").partition("\n")[0].split()
    if line[:1] == ["cpu"]:
        # user nice system idle iowait irq softirq steal; guests are in user and nice.
        times = [int(word) / os.sysconf("SC_CLK_TCK") for word in line[1:9]]
        total = sum(times)
        readings.append(Reading("host", "cpu_busy_seconds", total - times[3] - times[4]))
        readings.append(Reading("host", "cpu_total_seconds", total))
    rows = [row.split() for row in (text(proc / "meminfo") or "").splitlines()]
    memory = {row[0]: float(row[1]) * 1024 for row in rows if len(row) == 3}
    if "MemTotal:" in memory and "MemAvailable:" in memory:
        used = memory["MemTotal:"] - memory["MemAvailable:"]
        readings.append(Reading("host", "memory_bytes", used))
        readings.append(Reading("host", "memory_utilization", used / memory["MemTotal:"]))
    return readings


def _read_disks(root: Path) -> list[Reading]:
    readings = []
    for line in (text(root / "proc/diskstats") or "").splitlines():
        words = line.split()
        if len(words) > 9 and (root / "sys/block" / words[2] / "device").exists():
            for quantity, column in (("disk_read_bytes", 5), ("disk_written_bytes", 9)):
                readings.append(Reading(words[2], quantity, int(words[column]) * SECTOR_BYTES))
            if len(words) > 12:
                readings.append(Reading(words[2], "disk_busy_seconds", int(words[12]) / 1000))
    return readings


def _read_network(root: Path, interfaces: set[str], ports: Sequence[Path]) -> list[Reading]:
    readings = []
    for name, received, sent in _interfaces(root):
        if name in interfaces:
            readings.append(Reading(name, "network_received_bytes", received))
            readings.append(Reading(name, "network_sent_bytes", sent))
            if name != LOOPBACK:
                readings += _interface_state(root / "sys/class/net" / name, name)
    for port in ports:
        device = f"{port.parents[2].name}:{port.parent.name}"
        for quantity, file in (
            ("network_received_bytes", "port_rcv_data"),
            ("network_sent_bytes", "port_xmit_data"),
        ):
            if (words := number(port / file)) is not None:
                readings.append(Reading(device, quantity, words * WORD_BYTES))
        errors = [number(port / file) for file in PORT_ERRORS]
        if known := [count for count in errors if count is not None]:
            readings.append(Reading(device, "link_errors", sum(known)))
        if gigabits := number(port.parent / "rate"):  # "400 Gb/sec (4X NDR)"
            readings.append(Reading(device, "link_bits_per_second", 1e9 * gigabits))
    return readings


def _interface_state(folder: Path, name: str) -> list[Reading]:
    """Read the negotiated speed and the frames lost to a bad link; virtual ones have none."""
    readings = []
    megabits = number(folder / "speed")
    if megabits is not None and megabits > 0 and (folder / "device").exists():
        readings.append(Reading(name, "link_bits_per_second", 1e6 * megabits))
    errors = [number(folder / "statistics" / file) for file in ("rx_crc_errors", "rx_frame_errors")]
    if known := [count for count in errors if count is not None]:
        readings.append(Reading(name, "link_errors", sum(known)))
    return readings


def _interfaces(root: Path) -> list[tuple[str, int, int]]:
    """Return (interface, bytes received, bytes sent) of each interface."""
    rows = []
    for line in (text(root / "proc/net/dev") or "").splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and len(words) >= 9:
            rows.append((name.strip(), int(words[0]), int(words[8])))
    return rows
