"""Fixtures that several tests share: a tiny store, a finished run, and `ai500` as a process."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy
import pytest

from ai500.data.generated import generate
from ai500.workloads.learnable_images import SMOKE
from tests.support.commands import REPOSITORY, TINY, Command, Start

# The machine is shared: how long a case takes says nothing about the code.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: commands of the tests would not hear their Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

BUDGET_SECONDS = {
    "unit": 360, "paper": 10, "train": 280, "jobs": 270, "browser": 90, "docs": 60, "gpu": 10,
    "frameworks": 100, "mutation": 5,
}  # fmt: skip
"""Seconds of one worker that each folder may take in `make test` on two idle cores.

Their sum is 12 minutes of two workers, less the serial tests and the start of the workers. A folder
over its budget is marked in the summary: make its slowest test quicker, or move it to `long`."""


ONE_WORKER = ("tests/browser", "tests/jobs")
"""Folders whose tests share a browser, a Slurm cluster: one worker of xdist runs them all."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker takes a file's tests, which share fixtures, with `--dist loadfile`; else one test.

    `xdist_group` is no help: pytest 9.2 ignores the names of nodes that xdist 3.8 changes."""
    from xdist.scheduler import LoadScopeScheduling

    whole_files = config.getvalue("dist") == "loadfile"

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            for folder in ONE_WORKER:
                if nodeid.startswith(f"{folder}/"):
                    return folder
            return nodeid.partition("::")[0] if whole_files else nodeid

    # The real parts come first: short tests at the end keep both workers busy.
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start `ai500` as a process as slow: `make test-fast` leaves them out."""
    for item in items:
        if {"start", "finished_run"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")


@pytest.fixture(scope="session", autouse=True)
def without_waiting_for_disks() -> None:
    """Writes are not flushed to disk: tests read them back from memory, and none cuts the power."""
    os.fsync = lambda descriptor: None


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Global generators start alike in each test, whatever ran before it in the same worker."""
    random.seed(0)
    numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time of each folder beside its budget."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[Path(report.nodeid).parts[1]] += report.duration
    if sum(seconds.values()) < 60:
        return  # a part of the tests
    terminalreporter.section("seconds per folder, summed over workers")
    for folder, taken in sorted(seconds.items()):
        budget = BUDGET_SECONDS.get(folder, 0)
        mark = "  OVER BUDGET" if taken > budget else ""
        terminalreporter.write_line(f"tests/{folder:10} {taken:7.0f} of {budget}{mark}")


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learnable images like `smoke`'s, but few."""
    path = tmp_path_factory.mktemp("data") / "tiny store"
    classes = [f"class {number}" for number in range(SMOKE.classes)]
    generate(path, replace(SMOKE, seed=7), name="tiny", classes=classes, splits=TINY, workers=1)
    return path


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


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the workers of xdist share; the first one that needs it makes it."""
    session = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent
    folder, made = session / name, session / f"{name}.made"
    with (session / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            made.touch()
    return folder


@pytest.fixture(scope="session")
def finished_run(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run to its end, this worker's copy: two members in two trials, on the tiny store.

    What it printed, not to a terminal, is in `printed.txt` beside it."""

    def train(folder: Path) -> None:
        command = Command(
            "run", "--out", folder / "run", "--runs", "2", "--data", tiny_store,
            "--set", "train.epochs=2", "--set", "ensemble.size=2", "--set", "parallel.degree=1",
            "--set", "system.accelerators_per_node=2", "--set", "system.cores_per_slot=1",
            "--set", "scheduler.poll_seconds=0.05",
            cwd=folder, environment={"TMPDIR": str(folder), "COLUMNS": "80"},
        )  # fmt: skip
        assert command.wait() == 0, command.err
        assert [path.name for path in folder.iterdir()] == ["run"], "temporary files are left"
        (folder / "printed.txt").write_text(command.out)

    trained = made_once(tmp_path_factory, "finished", train)
    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree(trained, folder, dirs_exist_ok=True)
    printed = (trained / "printed.txt").read_text()
    (folder / "printed.txt").write_text(printed.replace(str(trained), str(folder)))
    return folder / "run"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the documentation, built without a warning."""

    def build(folder: Path) -> None:
        built = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
            cwd=REPOSITORY,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # Material's advertisement
            capture_output=True,
            text=True,
        )
        assert built.returncode == 0, built.stderr
        assert "WARNING" not in built.stdout + built.stderr

    return made_once(tmp_path_factory, "site", build)
