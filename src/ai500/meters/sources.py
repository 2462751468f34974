"""Sources that meters read: small files of the kernel, and programs that must not be waited for."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.meters import Part, Reading

MAX_FAILURES = 3  # in a row, before a program is not started again


def text(path: Path) -> str | None:
    """Read a small file; None if it is missing or unreadable."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> float | None:
    """Read the first word of a small file as a number (a unit may follow); None if it is none."""
    words = (text(path) or "").split()
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None


def _nothing_to_close() -> None:
    """Do nothing: files of the kernel do not stay open."""


@dataclass(frozen=True)
class FunctionMeter:
    """A meter made of functions."""

    covers: tuple[Part, ...]
    read: Callable[[], list[Reading]]
    close: Callable[[], None] = _nothing_to_close


class ProgramFailedError(Exception):
    """A program failed MAX_FAILURES times in a row."""


class Program:
    """A program that is started every `period_seconds`; a later poll collects its output."""

    def __init__(
        self, command: Sequence[str], *, period_seconds: float, timeout_seconds: float = 10.0
    ) -> None:
        self._command = command
        self._period = period_seconds
        self._timeout = timeout_seconds
        self._process: subprocess.Popen[str] | None = None
        self._started = -period_seconds
        self._failures = 0

    def poll(self) -> str | None:
        """Return new output, or None; start the program if it is due."""
        output = self._collect()
        now = time.monotonic()
        if self._process is None and now - self._started >= self._period:
            self._started = now
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        return output

    def close(self) -> None:
        """Kill the program if it is running."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _collect(self) -> str | None:
        if self._process is None:
            return None
        code = self._process.poll()
        if code is not None:
            output, _ = self._process.communicate()
            self._process = None
            if code == 0:
                self._failures = 0
                return output
            self._fail(f"exit code {code}: {output.strip()[:200]}")
        elif time.monotonic() - self._started > self._timeout:
            self.close()
            self._fail(f"no answer within {self._timeout:g} s")
        return None

    def _fail(self, reason: str) -> None:
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            raise ProgramFailedError(f"{' '.join(self._command)}: {reason}")
