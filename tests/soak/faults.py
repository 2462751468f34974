"""Faults: signals to a run's processes, a full disk, flipped bytes, commands at the same time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.commands import processes_of

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
FULL_DISK = "full disk"
FLIPPED_BYTE = "flipped byte"
CONCURRENT_COMMAND = "concurrent command"
KINDS = (*(each.name for each in SIGNALS), FULL_DISK, FLIPPED_BYTE, CONCURRENT_COMMAND)
COMMANDS = ("status", "report", "score", "check", "resume", "cancel")
FILES = {
    "checkpoint": ("trials/*/members/*/checkpoint*",),
    "predictions": ("trials/*/members/*/*.npy",),
    "bootstrap": ("trials/*/bootstraps/*",),
    "record": ("*.json", "trials/*/*.json", "trials/*/members/*/record.json"),
    "events": ("events.jsonl", "trials/*/members/*/events.jsonl",
               "trials/*/members/*/history.jsonl"),
}  # fmt: skip
"""Files of a run folder by what they hold."""


@dataclass(frozen=True)
class Fault:
    """A fault that was injected."""

    kind: str
    target: str
    """The process, the file or the command."""

    def __str__(self) -> str:
        return f"{self.kind} ({self.target})"


def processes_by_role(run: Path, controller: int) -> dict[str, list[int]]:
    """List a run's processes by role: controller, worker, torchrun's agent, or one of its ranks."""
    processes = {"controller": [controller]}
    for process in processes_of(run):
        if process != controller:
            processes.setdefault(_role(process), []).append(process)
    return processes


def send_signal(process: int, role: str, which: signal.Signals) -> Fault:
    """Send a signal to one of a run's processes; ProcessLookupError if it is gone."""
    os.kill(process, which)
    return Fault(which.name, role)


def _role(process: int) -> str:
    try:
        words = Path("/proc", str(process), "cmdline").read_bytes().split(b"\0")
        environment = Path("/proc", str(process), "environ").read_bytes().split(b"\0")
    except OSError as error:
        raise LookupError(process) from error
    if any(b"torch.distributed" in word or b"torchrun" in word for word in words):
        return "agent"
    return "rank" if any(each.startswith(b"TORCHELASTIC_") for each in environment) else "worker"


class Disk:
    """The file system of the runs; a file of its size fills it."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self, chance: random.Random) -> Fault:
        """Leave no space, or a few kilobytes."""
        left = chance.choice((0, 0, 1 << 12, 1 << 16))
        with self._ballast.open("ab", buffering=0) as file:
            for block in (1 << 20, 1 << 12):
                try:
                    while file.write(bytes(block)) == block:
                        pass
                except OSError:
                    pass
            file.truncate(max(0, file.tell() - left))
        return Fault(FULL_DISK, f"{left} bytes free")

    def empty(self) -> None:
        """Make space again."""
        self._ballast.unlink(missing_ok=True)


@dataclass(frozen=True)
class Flip:
    """A byte of a file that was changed, and the file before."""

    fault: Fault
    path: Path
    content: bytes

    def undo(self) -> None:
        """Restore the file."""
        self.path.write_bytes(self.content)


def flip_byte(run: Path, store: Path, chance: random.Random) -> Flip:
    """Flip one bit of a file of the run or its store; LookupError if there is none."""
    groups = {
        name: [p for each in patterns for p in run.glob(each)] for name, patterns in FILES.items()
    }
    groups["store"] = [path for path in store.rglob("*") if path.is_file()]
    groups = {
        name: [p for p in sorted(paths) if p.stat().st_size] for name, paths in groups.items()
    }
    name = chance.choice(sorted(name for name, paths in groups.items() if paths))
    path = chance.choice(groups[name])
    content = path.read_bytes()
    changed = bytearray(content)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    path.write_bytes(changed)
    return Flip(Fault(FLIPPED_BYTE, name), path, content)


def wait_for_worker(run: Path, controller: subprocess.Popen[str], *, seconds: float) -> None:
    """Wait until a member of the run has a process, or the command has ended."""
    deadline = time.monotonic() + seconds
    while not processes_of(run) and controller.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def waits_for_a_core(folder: Path, controller: int, *, seconds: float = 10) -> bool:
    """Return True if a process of these runs could have run for half of the time, but had no core.

    A process that hangs sleeps; on a machine with other work one of low priority waits.
    """
    processes = [controller, *processes_of(folder)]
    before = {process: _seconds_without_core(process) for process in processes}
    time.sleep(seconds)
    return any(
        _seconds_without_core(process) - waited > seconds / 2 for process, waited in before.items()
    )


def _seconds_without_core(process: int) -> float:
    """Return how long all threads of a process were ready to run, but had no core."""
    total = 0
    for file in Path("/proc", str(process), "task").glob("*/schedstat"):
        try:
            total += int(file.read_text().split()[1])
        except OSError:
            continue  # the thread has ended
    return total / 1e9


def wait_until_gone(run: Path, *, seconds: float = 30) -> bool:
    """Wait until a run has no process any more; return False if one stays."""
    deadline = time.monotonic() + seconds
    while processes_of(run):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
