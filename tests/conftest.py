"""Fixtures that several tests share: a tiny store, a finished run, and `ai500` as a process."""

from __future__ import annotations

import random
import resource
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy
import pytest

from ai500.data.generated import generate
from ai500.workloads.learnable_images import SMOKE
from tests.support.commands import TINY, Command, Start

# The machine is shared: how long a case takes says nothing about the code.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: commands of the tests would not hear their Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

BUDGET_SECONDS = {
    "unit": 330, "paper": 10, "train": 320, "jobs": 260, "browser": 160, "docs": 60, "gpu": 10,
    "frameworks": 100, "mutation": 5,
}  # fmt: skip
"""Seconds of one worker that each folder may take in `make test` on two idle cores: 12 minutes of
two workers. A folder over its budget is marked in the summary; move its slowest test to `long`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start `ai500` as a process as slow: `make test-fast` leaves them out."""
    for item in items:
        if {"start", "finished_run"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")


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
