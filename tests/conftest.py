"""Real parts that several tests share: a tiny store, and `ai500` as a process of its own."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from ai500.core import events
from ai500.data.image_store_writer import generate
from ai500.workloads.learnable_images import SMOKE

# The machine is shared: how long a case takes says nothing about the code.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: commands of the tests would not hear their Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
SOURCE = Path(__file__).parents[1] / "src"
TINY = {"train": 512, "validation": 128}


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learnable images like `smoke`'s, but few."""
    path = tmp_path_factory.mktemp("data") / "tiny store"
    classes = [f"class {number}" for number in range(SMOKE.classes)]
    generate(path, replace(SMOKE, seed=7), name="tiny", classes=classes, splits=TINY, workers=1)
    return path


class Command:
    """`python -m ai500 …` in the background, from the source tree."""

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
        """The exit code; what was printed is in `out` and `err`."""
        self.out, self.err = self.process.communicate(timeout=timeout)
        assert "Traceback" not in self.err.split("the end of")[0], self.err
        return self.process.returncode

    def kill(self) -> None:
        """SIGKILL: no chance to clean up."""
        self.process.kill()
        self.process.communicate()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)


Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts `ai500` commands; none outlives the test."""
    commands: list[Command] = []
    environment = {
        "AI500_CACHE": str(tmp_path_factory.getbasetemp() / "cache"),
        "TMPDIR": str(tmp_path),
        "NO_COLOR": "1",
        "COLUMNS": "80",
    }

    def begin(
        *arguments: str | Path, largest_file_bytes: int = resource.RLIM_INFINITY, **extra: str
    ) -> Command:
        command = Command(
            *arguments,
            cwd=tmp_path,
            environment=environment | extra,
            largest_file_bytes=largest_file_bytes,
        )
        commands.append(command)
        return command

    yield begin
    for command in commands:
        command.kill()


def wait_for(
    log: Path, event: str, *, timeout: float = 120, where: Callable[[Any], bool] = lambda _: True
) -> events.Event:
    """The first such event of a log, as soon as it is there."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for found in events.read(log):
            if found["event"] == event and where(found):
                return found
        time.sleep(0.02)
    raise AssertionError(f"no {event!r} in {log} within {timeout} s")


def processes_of(folder: Path) -> list[int]:
    """Workers and launchers whose command line names this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(folder).encode() in command and b"worker" in command and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="session")
def finished_run(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run to its end: two members in two trials, on the tiny store.

    What it printed, not to a terminal, is in `printed.txt` beside it."""
    folder = tmp_path_factory.mktemp("finished")
    command = Command(
        "run", "--out", folder / "run", "--runs", "2", "--data", tiny_store,
        "--set", "train.epochs=2", "--set", "ensemble.size=2", "--set", "parallel.degree=1",
        "--set", "system.accelerators_per_node=2", "--set", "system.cores_per_slot=1",
        cwd=folder, environment={"TMPDIR": str(folder), "COLUMNS": "80"},
    )  # fmt: skip
    assert command.wait() == 0, command.err
    (folder / "printed.txt").write_text(command.out)
    return folder / "run"
