"""Bytes over the node's network interfaces: `lo` stays inside the node, all others leave it.

Interfaces made of others (bonds, bridges) would count twice, and so would IP over InfiniBand
beside its port's own counters.
"""

from __future__ import annotations

from pathlib import Path

from ai500.meters import Absent, Part, Reading
from ai500.meters.files import number, text

INSIDE = "lo"
WORD_BYTES = 4
"""InfiniBand counts words of four bytes."""
ARPHRD_INFINIBAND = 32


class Network:
    """/proc/net/dev, and the port counters of InfiniBand and RoCE."""

    covers: tuple[Part, ...] = ()

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ports = sorted((root / "sys/class/infiniband").glob("*/ports/*/counters"))
        self._interfaces = {INSIDE} | self._leaving()

    def _leaving(self) -> set[str]:
        names = {name for name, _, _ in self._lines()} - {INSIDE}
        folder = self._root / "sys/class/net"
        if self._ports:
            names = {n for n in names if number(folder / n / "type") != ARPHRD_INFINIBAND}
        # In a container no interface has hardware behind it: there, all are taken.
        hardware = {name for name in names if (folder / name / "device").exists()}
        return hardware or names

    def _lines(self) -> list[tuple[str, int, int]]:
        """Interface, bytes received, bytes sent."""
        found = []
        for line in (text(self._root / "proc/net/dev") or "").splitlines():
            name, colon, rest = line.partition(":")
            words = rest.split()
            if colon and len(words) >= 9:
                found.append((name.strip(), int(words[0]), int(words[8])))
        return found

    def read(self) -> list[Reading]:
        """Both counters of every interface and port."""
        found = []
        for name, received, sent in self._lines():
            if name in self._interfaces:
                found.append(Reading(name, "network_received_bytes", received))
                found.append(Reading(name, "network_sent_bytes", sent))
        for port in self._ports:
            device = f"{port.parents[2].name}:{port.parent.name}"
            for quantity, file in (
                ("network_received_bytes", "port_rcv_data"),
                ("network_sent_bytes", "port_xmit_data"),
            ):
                if (words := number(port / file)) is not None:
                    found.append(Reading(device, quantity, words * WORD_BYTES))
        return found

    def close(self) -> None:
        """Nothing is held."""


def open_meter(root: Path) -> Network | Absent:
    """Where the kernel shows interfaces."""
    meter = Network(root)
    return meter if meter.read() else Absent("no /proc/net/dev: not Linux")
