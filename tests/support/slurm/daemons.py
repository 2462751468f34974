"""Daemons as child processes: in the foreground, logged, and ended with this process."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class ClusterError(Exception):
    """The cluster, or a command run on it, failed."""


class Daemons:
    """Named daemons that log to one folder.

    Start them from a thread that outlives them: the kernel ends them with that thread.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._processes

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        dies_by: str = "TERM",
    ) -> int:
        """Start a daemon that gets this signal when this process dies; return its process id."""
        with (self.logs / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", dies_by, *command],
                env=environment,
                cwd=self.logs,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C goes to the supervisor only
            )
        self._processes[name] = process
        return process.pid

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def terminate(self, name: str, *, timeout: float = 30) -> None:
        """End a daemon, if it runs, by SIGTERM, then by SIGKILL."""
        if name not in self:
            return
        self._processes[name].terminate()
        try:
            self._processes[name].wait(timeout)
        except subprocess.TimeoutExpired:
            self._processes[name].kill()
        self._processes.pop(name).wait()

    def until(self, condition: str, test: Callable[[], bool], *, timeout: float = 60) -> None:
        """Wait for a condition; raise at once if a daemon has died."""
        deadline = time.monotonic() + timeout
        reason = ""
        while time.monotonic() < deadline:
            self._check_alive(condition)
            try:
                if test():
                    return
            except (OSError, ClusterError, subprocess.TimeoutExpired) as error:
                reason = f" ({error})"
            time.sleep(0.05)
        raise ClusterError(f"no {condition} after {timeout:.0f} s{reason}; see {self.logs}")

    def _check_alive(self, waiting_for: str) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                output = (self.logs / f"{name}.out").read_text(errors="replace")[-800:]
                raise ClusterError(f"{name} died while waiting for {waiting_for}: {output}")
