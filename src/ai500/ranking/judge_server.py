"""Judge files one after another, each in a child process of its own with limits.

    python -P -m ai500.ranking.judge_server

Reads a request per line of JSON from standard input and answers with a line. The packages are
imported once; a child is a fork of this process, which has one thread. The child closes every
connection to the parent and leaves its judgement in a file, so that a file that is judged can
neither answer for others nor write to the terminal. The end of standard input ends everything.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ai500.core import schema

# Seconds between the signal at the soft limit of processor time and the kill at the hard one.
CPU_GRACE_SECONDS = 5
# Bytes of one file that a child may write: an archive of the largest size, unpacked.
MAX_FILE_BYTES = 4 << 30
OUT_OF_MEMORY = 77
"""Exit code of a child that reached its limit of memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the process that judges one file."""

    cpu_seconds: int = 120
    wall_seconds: float = 600.0
    memory_bytes: int = 2 << 30
    """Address space in addition to that of the server's packages."""


@dataclass(frozen=True, slots=True)
class Request:
    """File to judge."""

    path: str
    name: str
    """Name that its findings show."""
    trusted_keys: str | None
    result: str
    """File for the judgement."""
    scratch: str
    """Folder for everything else that the child writes; the parent removes it."""
    limits: Limits


@dataclass(frozen=True, slots=True)
class Answer:
    """End of the process that judged a file."""

    status: int
    """Wait status (`os.WIFSIGNALED` …)."""
    timed_out: bool
    cpu_seconds: float
    peak_bytes: int


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and closes our input
    from ai500.ranking import read as read  # the children's imports, before the first fork

    gc.freeze()  # a child does not copy the server's objects to look for cycles among them
    # Unbuffered: `attend` watches the input itself.
    with os.fdopen(0, "rb", buffering=0, closefd=False) as requests:
        while line := requests.readline():
            answer = attend(schema.decode(Request, json.loads(line)))
            with contextlib.suppress(BrokenPipeError):
                os.write(1, json.dumps(schema.encode(answer)).encode() + b"\n")


def attend(request: Request) -> Answer:
    """Fork a child that judges the file; wait for it, and kill it at its limit of time."""
    ended, held_by_child = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ended)
        _become_judge(request)
    os.close(held_by_child)
    # Nothing is sent before the answer: input that is readable has ended.
    ready, _, _ = select.select([ended, 0], [], [], request.limits.wall_seconds)
    if ended not in ready:
        os.kill(child, signal.SIGKILL)
    os.close(ended)
    _, status, usage = os.wait4(child, 0)
    scale = 1 if sys.platform == "darwin" else 1024  # macOS reports bytes
    return Answer(status, not ready, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * scale)


def _become_judge(request: Request) -> None:
    """Judge the file, write the judgement, and exit; never return."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        _limit(request.limits)
        tempfile.tempdir = request.scratch
        from ai500.ranking.read import judge_file

        judged = judge_file(
            Path(request.path),
            name=request.name,
            trusted_keys=None if request.trusted_keys is None else Path(request.trusted_keys),
        )
        text = json.dumps(schema.encode(judged), allow_nan=False)
        Path(request.result).write_text(text, encoding="utf-8", errors="replace")
        code = 0
    except MemoryError:
        code = OUT_OF_MEMORY
    finally:
        os._exit(code)


def _limit(limits: Limits) -> None:
    """Set the limits of this process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.alarm(int(limits.wall_seconds) + CPU_GRACE_SECONDS)  # if the server is killed
    cpu = limits.cpu_seconds
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + CPU_GRACE_SECONDS))
    space = address_space_bytes() + limits.memory_bytes
    for name, value in (("RLIMIT_AS", space), ("RLIMIT_FSIZE", MAX_FILE_BYTES)):
        # Not every system has each limit, and a lower one of the user's stays.
        with contextlib.suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (value, value))


def address_space_bytes() -> int:
    """Return the size of this process's address space; 0 where the kernel does not say it."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return pages * resource.getpagesize()
    return 0


if __name__ == "__main__":
    main()
