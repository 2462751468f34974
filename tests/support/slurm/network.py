"""Free ports, and a separate network for virtual nodes."""

from __future__ import annotations

import random
import re
import shlex
import socket
import subprocess
from pathlib import Path

from tests.support.slurm.daemons import ClusterError


def free_ports(count: int) -> list[int]:
    """Choose distinct free TCP ports below the kernel's ephemeral range, which clients use."""
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    candidates = range(10240, int(limits[0]))
    # The system's generator: tests seed the global one, and two clusters would draw the same ports.
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
        return [bound.getsockname()[1] for bound in held]
    finally:
        for bound in held:
            bound.close()


def listening(port: int) -> bool:
    """Return True if a process accepts connections on this port, else raise OSError."""
    with socket.create_connection(("127.0.0.1", port), 0.5):
        return True


def ip(*arguments: str) -> str:
    """Run iproute2's `ip`."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(f"ip {shlex.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Bridge:
    """A bridge on this machine that connects the nodes.

    The far end of each veth pair is in the node's network namespace and vanishes with the node.
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
        """Delete the ports, too: a process that outlives its node keeps its namespace, and eth0."""
        for line in ip("-oneline", "link", "show", "master", self.name).splitlines():
            ip("link", "delete", line.split()[1].split("@")[0].rstrip(":"))
        ip("link", "delete", self.name)

    def plug_in(self, node: str, pid: int) -> None:
        """Connect eth0 of this process's network namespace to the bridge."""
        peer = ["peer", "name", "eth0", "netns", str(pid)]
        ip("link", "add", f"{self.name}-{node}", "type", "veth", *peer)
        ip("link", "set", f"{self.name}-{node}", "master", self.name, "up")

    def cut(self, node: str) -> None:
        ip("link", "set", f"{self.name}-{node}", "down")

    def restore(self, node: str) -> None:
        ip("link", "set", f"{self.name}-{node}", "up")
