"""Processes of a disturbed run: their roles, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.support.own_time import OwnTime, processes_of

WATCH_SECONDS = 2.0
CONTROLLER, AGENT, TORCHRUN = "controller", "node agent", "torchrun"
RANK, WORKER = "rank", "worker"
TRAINING = (RANK, WORKER)


def roles(run: Path, controller: int) -> dict[str, list[int]]:
    """List a run's processes by role."""
    processes = {CONTROLLER: [controller]}
    for process in processes_of(run):
        if process != controller and (role := _role(process)) is not None:
            processes.setdefault(role, []).append(process)
    return processes


def _role(process: int) -> str | None:
    """Return the role of one of a job's processes; None for other commands, and once it ended."""
    folder = Path("/proc", str(process))
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
        environment = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    if b"ai500.jobs.node_agent" in words:
        return AGENT
    if any(b"torch.distributed" in word for word in words):
        return TORCHRUN
    if not any(word.endswith(b"worker") for word in words):
        return None
    return RANK if any(each.startswith(b"TORCHELASTIC_") for each in environment) else WORKER


def wait_until_gone(run: Path, *, seconds: float) -> list[int]:
    """Wait until a run has no process; return those that stay for so long, without other work."""
    processes = processes_of(run)
    own_time = OwnTime(processes[0] if processes else 0, run)
    while processes and own_time.update() < seconds:
        time.sleep(0.4)
        processes = processes_of(run)
    return processes


def kill_all(run: Path) -> None:
    """Kill every process of a run."""
    for process in processes_of(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_for_training(run: Path, controller: subprocess.Popen[str]) -> None:
    """Wait until a rank or a worker of the run has begun, or the command has ended."""
    while controller.poll() is None and not set(roles(run, controller.pid)) & set(TRAINING):
        time.sleep(0.4)
