"""A damaged checkpoint of a framework other than PyTorch is not resumed: JAX, end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.records import TrainRecord, run_folder
from ai500.records.run_folder import MemberFolder, RunFolder
from tests.support.commands import Start, wait_for
from tests.support.framework_checks import LIMIT
from tests.support.interpreters import interpreter

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(3600)]


def settings(store: Path) -> list[str | Path]:
    values = {
        "framework.kind": "jax",
        "framework.python": interpreter("jax"),
        "ensemble.size": 1,
        "train.epochs": 4,
        "train.checkpoint_minutes": 0.002,
        "scheduler.poll_seconds": 0.05,
        "system.device": "cpu",
        "system.accelerators_per_node": 1,
        "system.cores_per_slot": 1,
    }
    pairs = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    return ["--data", store, *pairs]


def member(run: Path) -> MemberFolder:
    return RunFolder(run).trial(1).member(0)


def test_a_damaged_checkpoint_ends_with_the_same_weights(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    command = start("run", "--out", whole, *settings(tiny_store))
    assert command.wait(timeout=LIMIT) == 0, command.err
    assert [f.name for f in member(whole).path.glob("checkpoint*")] == ["checkpoint.npz"]

    command = start("run", "--out", halves, *settings(tiny_store))
    folder = member(halves)
    wait_for(folder.events, "epoch", timeout=LIMIT)
    command.interrupt()
    assert command.wait() == 130, command.err
    data = bytearray(folder.array_checkpoint.read_bytes())
    data[len(data) // 2] ^= 1
    folder.array_checkpoint.write_bytes(data)

    command = start("resume", halves)
    assert command.wait(timeout=LIMIT) == 0, command.err
    resumed = wait_for(folder.events, "resumed", timeout=1)
    assert (resumed["epoch"], resumed["step"]) > (0, 0)  # the one before was good
    interrupted, straight = (
        run_folder.read(TrainRecord, member(run).record) for run in (halves, whole)
    )
    assert interrupted.weights_sha256 == straight.weights_sha256
    findings = run_folder.read_json(RunFolder(halves).findings)
    damaged = [each["run"] for each in findings if each["rule"] == "intact checkpoints"]
    assert damaged == ["checkpoint.npz"]
    assert "is damaged" in folder.log.read_text()
