"""Whole runs with divided models: `ai500 run` with P = 2, undisturbed, killed and cancelled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from ai500.core import events
from ai500.projection import activations
from ai500.records import Plan, TrainRecord, run_folder
from ai500.records.run_folder import MemberFolder, RunFolder
from ai500.workloads.protocol import load_workload
from tests.support.commands import SOURCE, Command, Start, processes_of, wait_for

pytestmark = pytest.mark.timeout(600)

MODES = {
    "tensor": ["parallel.mode=tensor"],
    "pipeline": ["parallel.mode=pipeline"],
    "sharded": ["parallel.sharded=true", "parallel.batch_norm=synchronized"],
    "int8": ["communication.precision=int8", "communication.mode=hierarchical"],
    "everything": ["parallel.mode=pipeline", "parallel.pipeline_schedule=gpipe",
                   "parallel.microbatches=4", "train.precision=mixed-bf16", "train.optimizer=lamb",
                   "train.accumulation=2", "train.batch_size=16"],
}  # fmt: skip


def arguments(store: Path, *settings: str, degree: int = 2, epochs: int = 3) -> list[str | Path]:
    pairs = [
        f"parallel.degree={degree}", "ensemble.size=1", f"train.epochs={epochs}",
        "train.checkpoint_minutes=0.002", "scheduler.poll_seconds=0.05",
        f"system.accelerators_per_node={degree}", "system.cores_per_slot=1", *settings,
    ]  # fmt: skip
    return ["--data", store, *(part for pair in pairs for part in ("--set", pair))]


def member_of(run: Path) -> MemberFolder:
    return RunFolder(run).trial(1).member(0)


def record_of(run: Path) -> TrainRecord:
    return run_folder.read(TrainRecord, member_of(run).record)


def losses_of(run: Path) -> list[float]:
    return [e["loss"] for e in events.read(member_of(run).events) if e["event"] == "epoch"]


@pytest.fixture(scope="module")
def undisturbed(
    tiny_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Run each requested mode to its end, once."""

    @cache
    def run(mode: str) -> Path:
        folder = tmp_path_factory.mktemp(f"undisturbed {mode}")
        settings = arguments(tiny_store, *MODES[mode])
        command = Command(
            "run", "--out", folder / "run", *settings,
            cwd=folder, environment={"TMPDIR": str(folder)},
        )  # fmt: skip
        assert command.wait() == 0, command.err
        return folder / "run"

    return run


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_killed_and_resumed_it_ends_with_the_same_weights(
    mode: str, undisturbed: Callable[[str], Path], tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = start("run", "--out", run, *arguments(tiny_store, *MODES[mode]))
    log = member_of(run).events
    begun = wait_for(log, "start")
    wait_for(log, "epoch")
    os.kill(begun["pid"], signal.SIGKILL)
    assert command.wait() == 1
    assert processes_of(run) == []
    command = start("resume", run)
    assert command.wait() == 0, command.err
    assert wait_for(log, "resumed", timeout=1)["epoch"] <= 2
    record, expected = record_of(run), record_of(undisturbed(mode))
    assert record.weights_sha256 == expected.weights_sha256
    assert record.quality == expected.quality
    assert record.operations == expected.operations
    assert expected.effective["groups"][0]["parameters"] == 29  # of all ranks together


@pytest.mark.long
@pytest.mark.parametrize("mode", ["tensor", "pipeline"])
def test_cancelled_and_resumed_it_ends_with_the_same_weights(
    mode: str, undisturbed: Callable[[str], Path], tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """Rank 0 hears of it, and all ranks write one checkpoint of the same step."""
    run = tmp_path / "run"
    command = start("run", "--out", run, *arguments(tiny_store, *MODES[mode]))
    wait_for(member_of(run).events, "epoch")
    command.interrupt()
    assert command.wait() == 130
    wait_for(member_of(run).events, "interrupted", timeout=1)
    command = start("resume", run)
    assert command.wait() == 0, command.err
    assert record_of(run).weights_sha256 == record_of(undisturbed(mode)).weights_sha256


@pytest.mark.parametrize("mode", ["tensor", "sharded"])
@pytest.mark.long
def test_two_ranks_learn_what_one_does(
    mode: str, undisturbed: Callable[[str], Path], tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """Only rounding differs, because batch norm sees the same images."""
    command = start("run", "--out", tmp_path / "one", *arguments(tiny_store, degree=1))
    assert command.wait() == 0, command.err
    two, single = undisturbed(mode), tmp_path / "one"
    assert losses_of(two)[:2] == pytest.approx(losses_of(single)[:2], rel=2e-3)
    assert record_of(two).operations == record_of(single).operations
    assert (record_of(two).world_size, record_of(single).world_size) == (2, 1)
    assert record_of(two).effective["parallel"]["sharded"] == (mode == "sharded")


def test_another_number_of_processes_than_planned_is_refused(
    undisturbed: Callable[[str], Path],
) -> None:
    task = member_of(undisturbed("tensor")).path / "task.json"
    alone = subprocess.run(
        [sys.executable, "-m", "ai500.train.worker", str(task)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert alone.returncode != 0
    assert "runs as 1 processes, its plan says parallel.degree = 2" in alone.stderr


@pytest.mark.long
@pytest.mark.parametrize("mode", ["tensor", "pipeline"])
def test_its_record_has_the_activations_that_its_ranks_exchange(
    mode: str, undisturbed: Callable[[str], Path]
) -> None:
    """`ai500 project --activations` reads them."""
    run = undisturbed(mode)
    plan = run_folder.read(Plan, RunFolder(run).plan)
    record = record_of(run)
    described = record.effective["parallel"]
    known = activations.read(run, plan)
    # Steps before the timed ones are counted too, each with its images.
    assert described["activations"]["samples"] >= record.samples
    if mode == "tensor":
        assert known.tensor_bytes and known.tensor_calls >= 2 and known.cut_bytes is None
        return
    model = load_workload(plan.workload).model(plan.definition).eval()
    sizes: list[int] = []
    last_of_first_stage = model.get_submodule(described["stages"][0][-1])
    last_of_first_stage.register_forward_hook(lambda _m, _i, output: sizes.append(output.nbytes))
    inputs = torch.zeros(1, *plan.definition.input_shape)
    model(inputs)
    assert known.cut_bytes == sizes[0]
