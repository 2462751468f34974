"""Client of a trial's barrier server: measure the clock offset, wait for the other members.

An agent of a gang also reports the ends of its members, and learns of failures on other nodes.

The server is `jobs/barrier.py`. Requests and replies are one line of JSON each; the server writes
its address into the trial's folder.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ai500.core import schema, sealed_json

CLOCK_ROUNDS = 25  # the fastest exchange of so many bounds the offset best
CONNECT_SECONDS = 3.0
RETRY_SECONDS = 0.2
LONGEST_LINE = 4096  # bytes


@dataclass(frozen=True, slots=True)
class Address:
    """Network address of a barrier server; `hosts` are tried in order."""

    name: str
    hosts: tuple[str, ...]
    port: int
    token: str


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """This host's wall clock minus the barrier server's, with its uncertainty."""

    offset_seconds: float
    uncertainty_seconds: float
    reference: str


class BarrierClient:
    """A member's connection to the barrier server; a request without a reply returns None."""

    def __init__(self, connection: socket.socket, token: str) -> None:
        self._connection = connection
        self._stream = connection.makefile("rwb")
        self._token = token
        self._rest = b""

    def clock(self) -> ClockOffset | None:
        """Measure the clock offset by the exchange with the shortest round trip."""
        best: ClockOffset | None = None
        for _ in range(CLOCK_ROUNDS):
            sent, reply, received = time.time(), self._request("clock"), time.time()
            if reply is None:
                return best
            # The server read its clock somewhere within the exchange: half of it either way.
            half = (received - sent) / 2
            if best is None or half < best.uncertainty_seconds:
                best = ClockOffset(sent + half - reply["wall"], half, reply["host"])
        return best

    def wait(self) -> int | None:
        """Wait at the barrier. Return how many members were missing when it opened."""
        self._connection.settimeout(None)
        reply = self._request("wait")
        return None if reply is None else int(reply["missing"])

    def leave(self) -> None:
        """Tell the server not to wait for this member."""
        self._request("leave")

    def join(self) -> None:
        """Ask to learn of members that fail on other nodes; `failed_members` returns them."""
        self._connection.setblocking(False)
        self._send("join")

    def fileno(self) -> int:
        """Return the connection's descriptor, to wait for failed members."""
        return self._connection.fileno()

    def failed_members(self) -> list[int] | None:
        """Return the members that failed since the last call; None: the server has ended."""
        try:
            received = self._connection.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self._rest = (self._rest + received).split(b"\n")
        messages = [json.loads(line) for line in lines]
        return [int(m["failed"]) for m in messages if "failed" in m] if received else None

    def report_end(self, member: int, *, node: int, nodes: int, code: int) -> None:
        """Report how a member ended on one of its nodes."""
        self._send("end", member=member, node=node, nodes=nodes, code=code)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._connection.close()

    def _send(self, request: Literal["join", "end"], **fields: int) -> None:
        """Send a request whose reply says nothing; without a server members' records decide."""
        message = {"token": self._token, "request": request, **fields}
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def _request(self, request: Literal["clock", "wait", "leave"]) -> dict[str, Any] | None:
        message = {"token": self._token, "request": request}
        try:
            self._stream.write(json.dumps(message).encode() + b"\n")
            self._stream.flush()
            reply = json.loads(self._stream.readline(LONGEST_LINE))
        except (OSError, ValueError):
            return None
        return reply if isinstance(reply, dict) else None


def connect(
    address_file: Path, *, name: str | None, timeout_seconds: float
) -> BarrierClient | None:
    """Connect to the trial's barrier server called `name`; None accepts any name.

    Retry until the timeout: the file may hold the address of an earlier server, or the new one may
    not be visible on this node yet.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        address = _read(address_file)
        if address is not None and name in (None, address.name):
            for host in address.hosts:
                try:
                    connection = socket.create_connection((host, address.port), CONNECT_SECONDS)
                except OSError:
                    continue
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return BarrierClient(connection, address.token)
        if time.monotonic() >= deadline:
            return None
        time.sleep(RETRY_SECONDS)


def _read(path: Path) -> Address | None:
    try:
        body, intact = sealed_json.unseal(json.loads(path.read_text(encoding="utf-8")))
        return schema.decode(Address, body) if intact else None
    except (OSError, ValueError, schema.SchemaError):
        return None
