"""`ai500` on a real Slurm: commands on its login node, and the results of an undisturbed run.

On CPU the weights of every run are compared bit by bit with those of a local one.
"""

from __future__ import annotations

import json
import os
import re
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
from ai500.data.generated import generate
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
    # A node for each member, so that a fault of a node affects one member.
    "slurm.exclusive": True,
}


def arguments(store: Path, settings: dict[str, object]) -> list[str | Path]:
    """Format the training settings with overrides as a command line; None removes a key."""
    pairs = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in (TRAINING | settings).items()
        if value is not None
    ]
    return ["--data", store, *(word for pair in pairs for word in ("--set", pair))]


def results(run: Path) -> Results:
    """Read the results that must not depend on nodes and faults."""
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
    """Make a tiny store that all nodes see."""
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
    """Compute the results of three members without a cluster."""
    return _local(shared_store, tmp_path_factory.mktemp("undisturbed"), {})


@pytest.fixture(scope="session")
def undisturbed_pairs(shared_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Compute the results of two members of two processes each, without a cluster."""
    pairs: dict[str, object] = {"ensemble.size": 2, "parallel.degree": 2}
    return _local(shared_store, tmp_path_factory.mktemp("undisturbed"), pairs)


@pytest.fixture
def submit(shared_folder: Path) -> Iterator[Submit]:
    """Start `ai500` commands on a cluster's login node; kill them after the test."""
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
    """Start `ai500 run` with three members, in this folder and with these settings."""

    def begin(
        cluster: Cluster, run: Path, settings: dict[str, object] | None = None, *flags: str
    ) -> Command:
        chosen = arguments(shared_store, ON_SLURM | (settings or {}))
        return submit(cluster, "run", "--out", run, *chosen, *flags)

    return begin


def wait_for_event(
    command: Command, log: Path, event: str, *, timeout: float = 240, **fields: object
) -> events.Event:
    """Wait for the first such event of a log; fail if the command ends without it."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        ended = command.process.poll() is not None
        if matching := _events(log, event, fields):
            return matching[0]
        if ended:
            command.wait()
            raise AssertionError(f"it ended without {event!r}: {command.err}")
        time.sleep(0.02)
    raise AssertionError(f"no {event!r} in {log} within {timeout:.0f} s")


def run_events(run: Path, event: str, **fields: object) -> list[events.Event]:
    """List the events of this name and with these fields in the run's log."""
    return _events(run / "events.jsonl", event, fields)


def _events(log: Path, event: str, fields: dict[str, object]) -> list[events.Event]:
    return [
        record
        for record in events.read(log)
        if record["event"] == event
        and all(record.get(key) == value for key, value in fields.items())
    ]


def starts(run: Path) -> Counter[int]:
    """Count the starts of each member's worker."""
    return Counter(event["member"] for event in run_events(run, "start"))


def member_log(run: Path, member: int) -> Path:
    """Return the path of the member's own event log."""
    return RunFolder(run).trial(1).member(member).events


def jobs(run: Path) -> dict[int, dict[str, Any]]:
    """Read the members' jobs as the controller recorded them."""
    records = run_folder.read_json(RunFolder(run).trial(1).jobs)
    return {record["member"]: record for record in records}


def queue(cluster: Cluster) -> list[str]:
    """List the ids of all pending and running jobs, one per task."""
    return cluster.run("squeue", "--noheader", "--array", "--format=%i").split()


def workers(run: Path, member: int) -> list[int]:
    """List the process ids, on this machine, of the member's ranks on all nodes."""
    task = RunFolder(run.resolve()).trial(1).member(member).task
    return [
        pid
        for pid in processes_of(task)
        if b"torch.distributed.run" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@contextmanager
def halted(run: Path, *members: int) -> Iterator[list[int]]:
    """Stop the members' ranks for the duration of the context."""
    pids = [pid for member in members for pid in workers(run, member)]
    assert pids, "no worker to halt"
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield pids
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue


def was_sent(pid: int, number: signal.Signals) -> bool:
    """Return True if this signal is pending for a stopped process, or the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return True
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask & (1 << (number - 1)) for mask in masks)


def requests(cluster: Cluster) -> dict[str, int]:
    """Count slurmctld's requests by message type since the last reset."""
    text = cluster.run("sdiag").partition("by message type")[2].partition("by user")[0]
    return {name: int(count) for name, count in re.findall(r"(\w+) +\( *\d+\) count:(\d+)", text)}


def until(condition: str, test: Callable[[], object], *, timeout: float = 120) -> None:
    """Wait until the test returns a true value."""
    deadline = time.monotonic() + timeout
    while not test():
        assert time.monotonic() < deadline, f"no {condition} after {timeout:.0f} s"
        time.sleep(0.05)
