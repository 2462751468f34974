"""`ai500` as a process of its own, and waiting for what it records."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ai500.core import events

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src"
TINY = {"train": 512, "validation": 128}
NOBODY = 65534
# A limit on processes never binds the superuser: nobody, with the right to read and write every
# file, which access(2) respects by the secure bit only.
AS_NOBODY = [
    "setpriv", f"--reuid={NOBODY}", "--clear-groups", "--securebits=+no_setuid_fixup",
    "--inh-caps=+dac_read_search,+dac_override",
    "--ambient-caps=+dac_read_search,+dac_override",
]  # fmt: skip


class Command:
    """Run `python -m ai500 …` in the background, from the source tree."""

    def __init__(
        self,
        *arguments: str | Path,
        cwd: Path,
        environment: dict[str, str],
        largest_file_bytes: int = resource.RLIM_INFINITY,
    ) -> None:
        limit = f"--fsize={largest_file_bytes if largest_file_bytes > 0 else 'unlimited'}"
        self.process = subprocess.Popen(
            ["prlimit", limit, sys.executable, "-m", "ai500", *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out = ""
        self.err = ""

    def wait(self, timeout: float = 240) -> int:
        """Return the exit code; the output is in `out` and `err`."""
        self.out, self.err = self.process.communicate(timeout=timeout)
        assert "Traceback" not in self.err.split("the end of")[0], self.err
        return self.process.returncode

    def kill(self) -> None:
        """Send SIGKILL: no chance to clean up."""
        self.process.kill()
        self.process.communicate()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)


Start = Callable[..., Command]
Run = Callable[..., tuple[int, str, str]]
"""Function that calls the command line in this process; it returns exit code, output and errors."""


def wait_for(
    log: Path, event: str, *, timeout: float = 120, where: Callable[[Any], bool] = lambda _: True
) -> events.Event:
    """Return the first such event of a log as soon as it is recorded."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for recorded in events.read(log):
            if recorded["event"] == event and where(recorded):
                return recorded
        time.sleep(0.02)
    raise AssertionError(f"no {event!r} in {log} within {timeout} s")


def processes_of(folder: Path) -> list[int]:
    """List the workers and launchers whose command line names this folder."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(folder).encode() in command and b"worker" in command and state != "Z":
                pids.append(int(entry.name))
    return pids
