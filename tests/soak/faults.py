"""Faults: signals to a run's processes, a full disk, flipped bytes, commands at the same time."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path

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


def send_signal(process: int, role: str, which: signal.Signals) -> Fault:
    """Send a signal to one of a run's processes; ProcessLookupError if it is gone."""
    os.kill(process, which)
    return Fault(which.name, role)


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
    """A bit of a file that was changed, and the file before and after."""

    fault: Fault
    path: Path
    content: bytes
    changed: bytes

    def undo(self) -> bool:
        """Restore the file; return False if it was written or removed since."""
        if not self.stands():
            return False
        self.path.write_bytes(self.content)
        return True

    def stands(self) -> bool:
        """Return True if the file is as it was left."""
        return self.path.exists() and self.path.read_bytes() == self.changed


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
    return Flip(Fault(FLIPPED_BYTE, name), path, content, bytes(changed))
