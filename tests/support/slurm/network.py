"""Ports, and a network of their own for virtual nodes."""

from __future__ import annotations

import random
import re
import shlex
import socket
import subprocess
from pathlib import Path

from tests.support.slurm.daemons import ClusterError


def free_ports(count: int) -> list[int]:
    """Distinct free TCP ports below the kernel's ephemeral range, which clients would take."""
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    candidates = range(10240, int(limits[0]))
    # The system's generator: tests seed the global one, and two clusters would draw the same.
    order = random.SystemRandom().sample(candidates, len(candidates))
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            attempt = socket.socket()
            try:
                attempt.bind(("", order.pop()))
            except OSError:
                attempt.close()
            else:
                held.append(attempt)
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def listening(port: int) -> bool:
    """True when something on this machine accepts connections on this port, else OSError."""
    with socket.create_connection(("127.0.0.1", port), 0.5):
        return True


def ip(*arguments: str) -> str:
    """Runs iproute2's `ip`."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(f"ip {shlex.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Bridge:
    """A bridge on this machine, the switch that the nodes' cables go to.

    A cable's far end lies in its node's network namespace and vanishes with the node.
    """

    def __init__(self) -> None:
        taken = set(re.findall(r"inet (10\.\d+)\.", ip("-4", "address")))
        # The first two bytes of a /16 that no interface of this machine is in.
        self.prefix = next(x for x in (f"10.{n}" for n in range(20, 250)) if x not in taken)
        self.address = f"{self.prefix}.255.254"
        self.name = f"slurm{self.prefix.removeprefix('10.')}"
        ip("link", "add", self.name, "type", "bridge")
        ip("address", "add", f"{self.address}/16", "dev", self.name)
        ip("link", "set", self.name, "up")

    def delete(self) -> None:
        ip("link", "delete", self.name)

    def plug_in(self, node: str, pid: int) -> None:
        """Gives the network namespace of this process its eth0."""
        peer = ["peer", "name", "eth0", "netns", str(pid)]
        ip("link", "add", f"{self.name}-{node}", "type", "veth", *peer)
        ip("link", "set", f"{self.name}-{node}", "master", self.name, "up")

    def cut(self, node: str) -> None:
        ip("link", "set", f"{self.name}-{node}", "down")

    def restore(self, node: str) -> None:
        ip("link", "set", f"{self.name}-{node}", "up")
