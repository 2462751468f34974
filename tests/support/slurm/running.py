"""`ai500` on a real Slurm: commands on its login node, and what an undisturbed run gives.

On CPU the weights of every run are compared bit by bit with those of a local one.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai500.core import events
from ai500.data.image_store_writer import generate
from ai500.records import TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.workloads.learnable_images import SMOKE
from tests.support.commands import TINY, Command, processes_of
from tests.support.slurm.cluster import Cluster

MEMBERS = 3

Submit = Callable[..., Command]
Results = dict[str, Any]

TRAINING: dict[str, object] = {
    "ensemble.size": MEMBERS,
    "parallel.degree": 1,
    "train.epochs": 5,
    # A checkpoint every few steps, so that a fault finds training between two epochs' ends.
    "train.checkpoint_minutes": 0.002,
    "scheduler.poll_seconds": 0.2,
    "system.accelerators_per_node": 1,
    "system.cores_per_slot": 1,
}
ON_SLURM: dict[str, object] = {
    "scheduler.kind": "slurm",
    "system.nodes": MEMBERS,
    # A node for each, so that a fault of one node is one member's.
    "slurm.exclusive": True,
}


def arguments(store: Path, settings: dict[str, object]) -> list[str | Path]:
    """The training's settings with these over them, as a command line; None leaves one out."""
    pairs = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in (TRAINING | settings).items()
        if value is not None
    ]
    return ["--data", store, *(word for pair in pairs for word in ("--set", pair))]


def results(run: Path) -> Results:
    """What must not depend on where the run ran and what happened to it."""
    score = json.loads((run / "score.json").read_text())
    assert score["complete"] is True
    keys = ["operations", "ensemble_quality", "members_mean_quality", "out_of_bag_quality"]
    trial = RunFolder(run).trial(1)
    members = range(score["ensemble_size"])
    records = [run_folder.read(TrainRecord, trial.member(member).record) for member in members]
    return {
        **{key: score[key] for key in keys},
        "weights": [record.weights_sha256 for record in records],
        "qualities": [record.quality for record in records],
    }


@pytest.fixture(scope="session")
def shared_store(slurm_folder: Path) -> Path:
    """A tiny store where all nodes see it."""
    path = slurm_folder / "tiny store"
    classes = [f"class {number}" for number in range(SMOKE.classes)]
    generate(path, replace(SMOKE, seed=7), name="tiny", classes=classes, splits=TINY, workers=1)
    return path


def _local(store: Path, folder: Path, settings: dict[str, object]) -> Results:
    chosen = arguments(store, {"system.accelerators_per_node": 2, **settings})
    command = Command(
        "run", "--out", folder / "run", *chosen, cwd=folder, environment={"TMPDIR": str(folder)}
    )
    assert command.wait(600) == 0, command.err
    return results(folder / "run")


@pytest.fixture(scope="session")
def undisturbed(shared_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results of the three members without any cluster."""
    return _local(shared_store, tmp_path_factory.mktemp("undisturbed"), {})


@pytest.fixture(scope="session")
def undisturbed_pairs(shared_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results of two members of two processes each, without any cluster."""
    pairs: dict[str, object] = {"ensemble.size": 2, "parallel.degree": 2}
    return _local(shared_store, tmp_path_factory.mktemp("undisturbed"), pairs)


@pytest.fixture
def submit(shared_folder: Path) -> Iterator[Submit]:
    """Starts `ai500` commands on a cluster's login node; none outlives the test."""
    commands: list[Command] = []

    def begin(cluster: Cluster, *words: str | Path, **environment: str) -> Command:
        plain = {"NO_COLOR": "1", "COLUMNS": "80"}
        command = Command(
            *words, cwd=shared_folder, environment=cluster.environment | plain | environment
        )
        commands.append(command)
        return command

    yield begin
    for command in commands:
        command.kill()


@pytest.fixture
def run_ensemble(submit: Submit, shared_store: Path) -> Submit:
    """Starts `ai500 run` with three members, in this folder and with these settings."""

    def begin(
        cluster: Cluster, run: Path, settings: dict[str, object] | None = None, *flags: str
    ) -> Command:
        chosen = arguments(shared_store, ON_SLURM | (settings or {}))
        return submit(cluster, "run", "--out", run, *chosen, *flags)

    return begin


def seen(
    command: Command, log: Path, event: str, *, timeout: float = 240, **fields: object
) -> events.Event:
    """The first such event of a log; a command that ends without it says why."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        ended = command.process.poll() is not None
        if found := _events(log, event, fields):
            return found[0]
        if ended:
            command.wait()
            raise AssertionError(f"it ended without {event!r}: {command.err}")
        time.sleep(0.02)
    raise AssertionError(f"no {event!r} in {log} within {timeout:.0f} s")


def told(run: Path, event: str, **fields: object) -> list[events.Event]:
    """The events of this name and with these fields in the run's log."""
    return _events(run / "events.jsonl", event, fields)


def _events(log: Path, event: str, fields: dict[str, object]) -> list[events.Event]:
    return [
        one
        for one in events.read(log)
        if one["event"] == event and all(one.get(key) == value for key, value in fields.items())
    ]


def starts(run: Path) -> Counter[int]:
    """How often each member's worker was started."""
    return Counter(event["member"] for event in told(run, "start"))


def member_log(run: Path, member: int) -> Path:
    """What the member itself tells, as soon as it does."""
    return RunFolder(run).trial(1).member(member).events


def jobs(run: Path) -> dict[int, dict[str, Any]]:
    """The members' jobs as the controller recorded them."""
    records = json.loads(RunFolder(run).trial(1).jobs.read_text())
    return {record["member"]: record for record in records}


def queue(cluster: Cluster) -> list[str]:
    """Ids of all jobs that wait or run, one a task."""
    return cluster.run("squeue", "--noheader", "--array", "--format=%i").split()


def workers(run: Path, member: int) -> list[int]:
    """The member's ranks on all nodes, by this machine's process ids."""
    task = RunFolder(run.resolve()).trial(1).member(member).task
    return [
        pid
        for pid in processes_of(task)
        if b"torch.distributed.run" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@contextmanager
def halted(run: Path, *members: int) -> Iterator[list[int]]:
    """The members' ranks stand still meanwhile, however fast the machine is."""
    found = [pid for member in members for pid in workers(run, member)]
    assert found, "no worker to halt"
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield found
    finally:
        for pid in found:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue


def was_sent(pid: int, number: signal.Signals) -> bool:
    """Whether a process that stands still has this signal to read, or has read it and ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return True
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask & (1 << (number - 1)) for mask in masks)


def until(what: str, true: Callable[[], object], *, timeout: float = 120) -> None:
    """Returns when the condition holds."""
    deadline = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < deadline, f"no {what} after {timeout:.0f} s"
        time.sleep(0.05)
