"""The lock of a member's worker, which keeps beating while the worker lives.

A node that loses only its management network goes on training while the scheduler starts the member
elsewhere. The new copy waits as long as the old worker beats. A lock that does not beat any more is
replaced: it belongs to a node whose file system has not released it yet.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

BEAT_SECONDS = 10.0
SILENCE_SECONDS = 150.0
"""Longer than network file systems cache a file's times (60 s), and several beats."""
WATCH_SECONDS = 1.0
TAKEN_OVER_EXIT_CODE = 1


def attempt_name() -> bytes:
    """Name this attempt of a member: the same on all its nodes, and new at every start."""
    job, attempt = os.environ.get("SLURM_JOB_ID", "local"), os.environ.get("AI500_ATTEMPT", "1")
    return f"{job} {attempt}\n".encode()


def sign(file: TextIO) -> None:
    """Write the attempt into its lock: the member's other nodes may start later."""
    with contextlib.suppress(OSError):  # a full disk: the lock itself is held
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), attempt_name())
        os.fsync(file.fileno())


def beat(file: TextIO, path: Path, *, seconds: float = BEAT_SECONDS) -> None:
    """Touch the lock in a thread; end this process when another one has replaced the lock."""
    # The thread must not keep the lock: it is released when its holder drops the file.
    threading.Thread(target=_beat, args=(weakref.ref(file), path, seconds), daemon=True).start()


def _beat(held: weakref.ref[TextIO], path: Path, seconds: float) -> None:
    while True:
        time.sleep(seconds)
        file = held()
        if file is None or file.closed:
            return
        try:
            if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                print(
                    "error: another node has taken over this member.", file=sys.stderr, flush=True
                )
                os._exit(TAKEN_OVER_EXIT_CODE)
            os.utime(path)
        except (OSError, ValueError):  # a file system that is away for a while; a lock just closed
            pass
        del file


def wait_while_beating(
    path: Path,
    *,
    is_held: Callable[[], bool],
    ended: Callable[[], bool],
    silence_seconds: float = SILENCE_SECONDS,
) -> None:
    """Wait until the lock is free or `ended`; replace a lock without a beat for so long."""
    seen, since = _time_of(path), time.monotonic()
    while not ended() and is_held():
        time.sleep(WATCH_SECONDS)
        if (now := _time_of(path)) != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since >= silence_seconds:
            with contextlib.suppress(OSError):
                path.rename(path.with_name(f"{path.name}.replaced"))
            return


def _time_of(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
