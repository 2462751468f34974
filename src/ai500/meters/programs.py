"""Asking a program now and then, without ever waiting for its answer."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

MOST_FAILURES = 3


class ProgramFailedError(Exception):
    """The program failed again and again."""


class Program:
    """Started every `every_seconds`; its answer is taken at a later look."""

    def __init__(
        self, command: Sequence[str], *, every_seconds: float, timeout_seconds: float = 10.0
    ) -> None:
        self._command = command
        self._every = every_seconds
        self._timeout = timeout_seconds
        self._running: subprocess.Popen[str] | None = None
        self._started = -every_seconds
        self._failures = 0

    def answer(self) -> str | None:
        """What it printed, once; None: nothing new."""
        told = self._finished() if self._running is not None else None
        now = time.monotonic()
        if self._running is None and now - self._started >= self._every:
            self._started = now
            self._running = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        return told

    def close(self) -> None:
        """End it if it runs."""
        if self._running is not None:
            self._running.kill()
            self._running.communicate()
            self._running = None

    def _finished(self) -> str | None:
        assert self._running is not None
        code = self._running.poll()
        if code is not None:
            told, _ = self._running.communicate()
            self._running = None
            if code == 0:
                self._failures = 0
                return told
            self._fail(f"exit code {code}: {told.strip()[:200]}")
        elif time.monotonic() - self._started > self._timeout:
            self.close()
            self._fail(f"no answer within {self._timeout:g} s")
        return None

    def _fail(self, reason: str) -> None:
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            raise ProgramFailedError(f"{' '.join(self._command)}: {reason}")
