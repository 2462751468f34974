"""The barrier server: a reference clock and a start barrier for members on different nodes.

The timed window of an ensemble crosses nodes [D6], so each worker measures the offset of its wall
clock from the server's, with its uncertainty. The members of a gang also wait here for each other,
since start skew counts. A gang's server runs beside its first member
(`python -m ai500.jobs.barrier TRIAL_FOLDER …`), an array's in the job controller.

Requests and replies are lines of JSON. The server's address is in the trial's folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import socket
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

from ai500.core.barrier import LONGEST_LINE, Address
from ai500.records import run_folder
from ai500.records.run_folder import TrialFolder


class Barrier:
    """Opens once `count` members are waiting or have left, or after `seconds`; then stays open.

    Any members count: in a gang with several waves, those that started first.
    """

    def __init__(self, count: int, *, seconds: float) -> None:
        self._missing = count
        self._seconds = seconds
        self._change = threading.Condition()
        self._deadline: float | None = None

    def wait(self) -> int:
        """Block until the barrier opens; return the number of members still missing."""
        with self._change:
            if self._deadline is None:
                self._deadline = time.monotonic() + self._seconds
            self.leave()
            self._change.wait_for(
                lambda: self._missing <= 0, timeout=max(0.0, self._deadline - time.monotonic())
            )
            return max(0, self._missing)

    def leave(self) -> None:
        """Count a member that will not wait."""
        with self._change:
            self._missing -= 1
            self._change.notify_all()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024  # all members of a gang connect at once

    def __init__(self, token: str, barrier: Barrier) -> None:
        super().__init__(("", 0), _Connection)
        self.token = token
        self.barrier = barrier


class _Connection(socketserver.StreamRequestHandler):
    server: _Server
    disable_nagle_algorithm = True

    def handle(self) -> None:
        while line := self.rfile.readline(LONGEST_LINE):
            try:
                message = json.loads(line)
                if message["token"] != self.server.token:
                    return
                reply = self._reply(message)
            except (ValueError, KeyError, TypeError):
                return  # not a member of this run; the token is checked before any action
            self.wfile.write(json.dumps(reply).encode() + b"\n")

    def _reply(self, message: dict[str, Any]) -> dict[str, Any]:
        match message["request"]:
            case "clock":
                return {"wall": time.time(), "host": socket.gethostname()}
            case "wait":
                return {"missing": self.server.barrier.wait()}
            case "leave":
                self.server.barrier.leave()
        return {}


class BarrierServer:
    """Serves in a thread of its own and writes its address to the trial's folder."""

    def __init__(
        self, trial: TrialFolder, *, name: str, expected: int = 0, seconds: float = 0.0
    ) -> None:
        self._file = trial.barrier
        self._token = secrets.token_hex(16)
        self._server = _Server(self._token, Barrier(expected, seconds=seconds))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        address = Address(name, _own_names(), self._server.server_address[1], self._token)
        run_folder.write(self._file, address)
        self._file.chmod(0o600)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _own_names() -> tuple[str, ...]:
    """List names and addresses under which other nodes may reach this host."""
    name = socket.gethostname()
    names = [name, socket.getfqdn()]
    with contextlib.suppress(OSError):  # the name may not resolve
        names += [str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)]
    return tuple(dict.fromkeys(names))


def main() -> None:
    """Serve the barrier of a gang until its batch script ends this process."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("trial", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--members", required=True, help="members of the gang, e.g. 0,1,2")
    parser.add_argument("--at-once", type=int, required=True, help="members that start together")
    parser.add_argument("--seconds", type=float, required=True, help="longest wait, in seconds")
    arguments = parser.parse_args()
    trial = TrialFolder(arguments.trial)
    members = [int(member) for member in arguments.members.split(",")]
    unfinished = [member for member in members if not trial.member(member).record.exists()]
    expected = min(arguments.at_once, len(unfinished))
    BarrierServer(trial, name=arguments.name, expected=expected, seconds=arguments.seconds)
    threading.Event().wait()


if __name__ == "__main__":
    main()
