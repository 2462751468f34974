"""The barrier server: a reference clock, a start barrier, and the ends of a gang's members.

The timed window of an ensemble crosses nodes [D6], so each worker measures the offset of its wall
clock from the server's, with its uncertainty. The members of a gang also wait here for each other,
since start skew counts. Its agents report the ends of their processes here: one process writes the
gang's exit codes, and the other nodes of a member learn that one has failed.

A gang's server runs beside its first member (`python -m ai500.jobs.barrier TRIAL_FOLDER …`), an
array's in the job controller. Requests and replies are lines of JSON. The server's address is in
the trial's folder.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

from ai500.core.barrier import LONGEST_LINE, Address
from ai500.jobs.gang import members_of
from ai500.records import run_folder
from ai500.records.run_folder import TrialFolder
from ai500.records.worker_exit import CHECKPOINTED_EXIT_CODE

BACKLOG = 4096  # all members of a gang connect at once
WATCH_SECONDS = 0.2
CLOSE_SECONDS = 5.0


class Barrier:
    """Opens once `count` members are waiting or have left, or after `seconds`; then stays open.

    Any members count: in a gang with several waves, those that started first.
    """

    def __init__(self, count: int, *, seconds: float) -> None:
        self._missing = count
        self._seconds = seconds
        self._open = asyncio.Event()
        self._is_timed = False

    async def wait(self) -> int:
        """Wait until the barrier opens; return the number of members still missing."""
        if not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_later(self._seconds, self.open)
        self.leave()
        await self._open.wait()
        return max(0, self._missing)

    def leave(self) -> None:
        """Count a member that will not wait."""
        self._missing -= 1
        if self._missing <= 0:
            self.open()

    def open(self) -> None:
        """Release all that wait, whichever members are missing."""
        self._open.set()


class Ends:
    """Ends of a gang's members, each on all of its nodes; written to one file as they come."""

    def __init__(self, exits: Path | None) -> None:
        self._exits = exits
        self._codes: dict[int, dict[int, int]] = {}
        self._agents: set[asyncio.StreamWriter] = set()

    @property
    def agents(self) -> int:
        """Number of agents that are connected."""
        return len(self._agents)

    def join(self, agent: asyncio.StreamWriter) -> None:
        """Tell this agent about members that fail on other nodes."""
        self._agents.add(agent)

    def leave(self, agent: asyncio.StreamWriter) -> None:
        """Forget an agent that has ended."""
        self._agents.discard(agent)

    def report(self, member: int, *, node: int, nodes: int, code: int) -> None:
        """Record how a member ended on one of its nodes."""
        codes = self._codes.setdefault(member, {})
        if code not in (0, CHECKPOINTED_EXIT_CODE) and len(codes) < nodes - 1:
            for agent in self._agents:
                agent.write(json.dumps({"failed": member}).encode() + b"\n")
        codes[node] = code
        if len(codes) == nodes and self._exits is not None:
            with self._exits.open("a", encoding="ascii") as file:
                file.write(f"{member} {_exit_code([*codes.values()])}\n")


def _exit_code(codes: list[int]) -> int:
    """Return a member's exit code: a checkpoint counts, else the first failure."""
    if CHECKPOINTED_EXIT_CODE in codes:
        return CHECKPOINTED_EXIT_CODE
    return next((code for code in codes if code), 0)


class BarrierServer:
    """Serves in a thread of its own and writes its address to the trial's folder."""

    def __init__(
        self,
        trial: TrialFolder,
        *,
        name: str,
        expected: int = 0,
        seconds: float = 0.0,
        exits: Path | None = None,
    ) -> None:
        self._token = secrets.token_hex(16)
        self._loop = asyncio.new_event_loop()
        self._barrier = Barrier(expected, seconds=seconds)
        self._ends = Ends(exits)
        self._connections: set[asyncio.StreamWriter] = set()
        serving = asyncio.start_server(
            self._serve, "0.0.0.0", 0, backlog=BACKLOG, limit=LONGEST_LINE
        )
        self._server = self._loop.run_until_complete(serving)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        port = self._server.sockets[0].getsockname()[1]
        run_folder.write(trial.barrier, Address(name, _own_names(), port, self._token))
        trial.barrier.chmod(0o600)

    @property
    def agents(self) -> int:
        """Number of a gang's agents that are connected."""
        return self._ends.agents

    def close(self) -> None:
        """Stop serving."""
        asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _disconnect(self) -> None:
        for listening in self._server.sockets:
            self._loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)  # a closed server fails on a connection that it has just accepted
        await asyncio.sleep(0)
        self._server.close()
        self._barrier.open()
        # Not cancelled: streams of Python 3.11 log the exception of a cancelled connection.
        for connection in self._connections:
            connection.transport.abort()
        if serving := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(serving, timeout=CLOSE_SECONDS)
        await asyncio.sleep(0)  # a transport closes its socket in the loop's next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if message["token"] != self._token:
                    return
                reply = await self._reply(message, writer)
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, KeyError, TypeError):
            return  # not a member of this run; the token is checked before any action
        finally:
            self._connections.discard(writer)
            self._ends.leave(writer)
            writer.close()

    async def _reply(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        match message["request"]:
            case "clock":
                return {"wall": time.time(), "host": socket.gethostname()}
            case "wait":
                return {"missing": await self._barrier.wait()}
            case "leave":
                self._barrier.leave()
            case "join":
                self._ends.join(writer)
            case "end":
                self._ends.report(
                    int(message["member"]),
                    node=int(message["node"]),
                    nodes=int(message["nodes"]),
                    code=int(message["code"]),
                )
        return {}


def _own_names() -> tuple[str, ...]:
    """List names and addresses under which other nodes may reach this host."""
    name = socket.gethostname()
    names = [name, socket.getfqdn()]
    with contextlib.suppress(OSError):  # the name may not resolve
        names += [str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)]
    return tuple(dict.fromkeys(names))


def main() -> None:
    """Serve a gang until its batch script asks for the end and no agent is connected."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("trial", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--gang", type=Path, required=True, help="file of the gang's members")
    parser.add_argument("--exits", type=Path, required=True, help="file for their exit codes")
    parser.add_argument("--at-once", type=int, required=True, help="members that start together")
    parser.add_argument("--seconds", type=float, required=True, help="longest wait, in seconds")
    arguments = parser.parse_args()
    end = threading.Event()
    # Slurm signals all steps before the time limit: the agents still report their members' ends.
    signal.signal(signal.SIGTERM, lambda number, frame: end.set())
    trial = TrialFolder(arguments.trial)
    members = members_of(arguments.gang)
    unfinished = [member for member in members if not trial.member(member).record.exists()]
    server = BarrierServer(
        trial,
        name=arguments.name,
        expected=min(arguments.at_once, len(unfinished)),
        seconds=arguments.seconds,
        exits=arguments.exits,
    )
    end.wait()
    while server.agents:
        time.sleep(WATCH_SECONDS)


if __name__ == "__main__":
    main()
