"""The lock of a member's worker, which keeps beating while the worker lives.

A node that loses only its management network goes on training while the scheduler starts the member
elsewhere. The new copy waits as long as the old worker beats. A lock that does not beat any more is
replaced: it belongs to a node whose file system has not released it yet. Of several copies that
wait, one claims the lock for its worker, which takes a moment to start; the others wait for that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TextIO

BEAT_SECONDS = 10.0
SILENCE_SECONDS = 150.0
"""Longer than network file systems cache a file's times (60 s), and several beats."""
WATCH_SECONDS = 1.0
TAKEN_OVER_EXIT_CODE = 1
CLAIM = b"claimed by "
"""First bytes of a lock that an attempt has claimed for a worker that has not started yet."""

_State = tuple[int, int] | None
"""Inode and time of a lock; None: there is none."""


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
    path: Path, *, ended: Callable[[], bool], silence_seconds: float = SILENCE_SECONDS
) -> None:
    """Wait until the lock is free and claim it, or until `ended`.

    A lock without a beat for so long is replaced by one that this attempt has claimed.
    """
    seen, since = _state_of(path), time.monotonic()
    while not ended() and not claim(path):
        time.sleep(WATCH_SECONDS)
        if (now := _state_of(path)) != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since >= silence_seconds and _take_over(path, silent=seen):
            return


def is_held(path: Path) -> bool:
    """Return True while the worker of another attempt holds the lock, or is about to."""
    try:
        with path.open("r+b") as file:
            return _holder(file, path) is not None
    except OSError:  # no worker has started yet
        return False


def claim(path: Path) -> bool:
    """Claim a free lock for this attempt's worker, which starts later; False: it is held.

    The first of several copies that wait has it; the others wait for its worker.
    """
    try:
        # A copy that saw silence may replace the lock at the moment in which it is released.
        with path.open("r+b") as file, turn_of(path).open("ab") as turn:
            if not _locked(turn):
                return False
            holder = _holder(file, path)
            if holder is None and path.read_bytes() != attempt_name():
                file.truncate(0)
                file.write(CLAIM + attempt_name())
    except OSError:
        return True  # no lock, or a file system that refuses: the worker reports it
    return holder is None


def _holder(file: BinaryIO, path: Path) -> bytes | None:
    """Lock the file; return the other attempt that holds or has claimed it, None: no other."""
    is_free = _locked(file)
    text = path.read_bytes()
    # Rank 0 of this attempt may be ahead of this node, and waits for it.
    if text.removeprefix(CLAIM) == attempt_name():
        return None
    return None if is_free and not text.startswith(CLAIM) else text


def _locked(file: BinaryIO) -> bool:
    """Lock the file; return False if another process has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def turn_of(path: Path) -> Path:
    """Return the file whose lock lets one copy at a time claim or replace a member's lock.

    It exists once a copy has waited, and so another worker may live.
    """
    return path.with_name(f"{path.name}.turn")


def replaced_by(path: Path) -> Path:
    """Return the name that a member's replaced lock keeps."""
    return path.with_name(f"{path.name}.replaced")


def _take_over(path: Path, *, silent: _State) -> bool:
    """Replace a silent lock by one that this attempt has claimed; False: another copy did.

    Copies take turns, and replace the lock only if it is still the silent one. On a full disk no
    copy can replace it; the worker then stops waiting and reports the error.
    """
    claimed = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}")
    try:
        with turn_of(path).open("ab") as turn:
            if not _locked(turn) or _state_of(path) != silent:
                return False
            claimed.write_bytes(CLAIM + attempt_name())
            # The old worker's file keeps a name: without one a network file system would only say
            # that it is stale, and the worker would not learn that it was replaced.
            with contextlib.suppress(OSError):  # some file systems have no hard links
                replaced_by(path).unlink(missing_ok=True)
                replaced_by(path).hardlink_to(path)
            claimed.replace(path)
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return True


def _state_of(path: Path) -> _State:
    """Return inode and time of the lock; opening it asks the server of a network file system."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
        return status.st_ino, status.st_mtime_ns
    except OSError:
        return None
