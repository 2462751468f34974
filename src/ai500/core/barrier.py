"""The client of a trial's barrier: compare clocks with its server, wait there for other members.

The server is `jobs/barrier.py`. One question a line, one answer a line, both JSON; the server's
address lies in the trial's folder.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai500.core import schema

CLOCK_ROUNDS = 25


CONNECT_SECONDS = 3.0


LONGEST_LINE = 4096


@dataclass(frozen=True, slots=True)
class Address:
    """How to reach a barrier server; `hosts` are tried in order."""

    name: str
    hosts: tuple[str, ...]
    port: int
    token: str


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """This host's wall clock less the barrier server's, and how far that may be off."""

    offset_seconds: float
    uncertainty_seconds: float
    reference: str


class BarrierClient:
    """A member's connection to the barrier server; a question nobody answers is None."""

    def __init__(self, connection: socket.socket, token: str) -> None:
        self._connection = connection
        self._stream = connection.makefile("rwb")
        self._token = token

    def clock(self) -> ClockOffset | None:
        """By the exchange that took least time: the answer was given somewhere within it."""
        best: ClockOffset | None = None
        for _ in range(CLOCK_ROUNDS):
            asked, told, answered = time.time(), self._ask("clock"), time.time()
            if told is None:
                return best
            half = (answered - asked) / 2
            if best is None or half < best.uncertainty_seconds:
                best = ClockOffset(asked + half - told["wall"], half, told["host"])
        return best

    def meet(self) -> int | None:
        """Wait for the other members; how many were still missing when the wait ended."""
        self._connection.settimeout(None)
        told = self._ask("meet")
        return None if told is None else int(told["missing"])

    def leave(self) -> None:
        """Say that nobody needs to wait for this member."""
        self._ask("leave")

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._connection.close()

    def _ask(self, what: str) -> dict[str, Any] | None:
        question = {"token": self._token, "ask": what}
        try:
            self._stream.write(json.dumps(question).encode() + b"\n")
            self._stream.flush()
            answer = json.loads(self._stream.readline(LONGEST_LINE))
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None


def connect(
    address_file: Path, *, name: str | None, patience_seconds: float
) -> BarrierClient | None:
    """Connect to the trial's barrier server, of this name where one is given.

    An older one's address may still be there, or the new one not yet visible on this node.
    """
    deadline = time.monotonic() + patience_seconds
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
        time.sleep(0.2)


def _read(path: Path) -> Address | None:
    try:
        return schema.decode(Address, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, schema.SchemaError):
        return None
