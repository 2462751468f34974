"""The aim of a search: its best model beats the initial one, trained for as long."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ai500.automl.history import HISTORY_FILE, History, Model
from ai500.automl.morphism import Weights
from ai500.automl.training import model_task
from ai500.automl.worker import network
from ai500.core.randomness import Stream, derive
from ai500.parallel.engines.mesh import make_mesh
from ai500.records import Task, run_folder
from ai500.records.run_folder import RunFolder
from ai500.train.loop import train
from ai500.train.member import build_member
from ai500.train.task_files import open_data
from ai500.workloads.automl import CLASSES
from tests.support.commands import Start, wait_for

CPU = torch.device("cpu")
LAST = "000-0005-2"
"""Sixth model of a search: four of the warm-up, then two trials of one architecture by TPE."""


class Qualities:
    """Observer of the loop that keeps the qualities."""

    def __init__(self) -> None:
        self.errors: list[float] = []

    def emit(self, event: str, **fields: object) -> None:
        if event == "quality":
            self.errors.append(float(str(fields["quality"])))


def lineage(history: History, model: Model) -> list[Model]:
    """From the initial model to this one."""
    line = [model]
    while (parent := line[0].candidate.parent) is not None:
        line.insert(0, history.models[parent])
    return line


def initial_trained_like(line: list[Model], run: Path, folder: Path) -> float:
    """The error of the initial architecture after the same rounds: epochs, batches, rates, seeds.

    Each round goes on with the weights of the round before, as a child does with its parent's.
    """
    torch.set_num_threads(1)  # as a worker of the class has
    weights: Weights | None = None
    start, best = line[0].candidate, 1.0
    for number, model in enumerate(line):
        worker = RunFolder(run).trial(1).member(model.worker)
        task = run_folder.read(Task, worker.task)
        number_and_trial = (model.candidate.round, model.candidate.trial)
        keys = number_and_trial[: min(2, model.candidate.trial)]
        seed = derive(task.seed, Stream.SEARCH, model.worker, *keys)
        if weights is None:
            torch.manual_seed(derive(seed, Stream.INITIAL_WEIGHTS, model.worker))
        training = model_task(
            task, model.candidate, batch_size=model.candidate.batch_size, seed=seed
        )
        qualities = Qualities()
        member = build_member(
            training,
            model=network(line[0].architecture, weights),
            mesh=make_mesh(training.parallel, device=CPU),
            device=CPU,
            splits=open_data(run_folder.read(Task, worker.task)).splits,
            log=qualities,
            stop=lambda: False,
        )
        member.folder.checkpoint = folder / f"{start.model}-{number}.pt"
        member.folder.progress = folder / "progress.json"
        member.on_epoch = len(model.epochs).__eq__
        train(member)
        weights = {name: value.clone() for name, value in member.engine.module.state_dict().items()}
        best = min(best, *qualities.errors)
    return best


def searched(run: Path, start: Start, *, seed: int) -> None:
    """A worker's first models, however long they take; stopped as by Ctrl-C."""
    command = start(
        "run", "--workload", "automl", "--out", run, "--set", f"run.seed={seed}",
        "--set", "data.stage=false", "--set", "automl.minutes=60",
    )  # fmt: skip
    history = RunFolder(run).trial(1).member(0).path / HISTORY_FILE
    wait_for(history, "ended", timeout=500, where=lambda e: e["entry"]["model"] == LAST)
    command.interrupt()
    assert command.wait() == 130, command.err


@pytest.mark.long
@pytest.mark.serial
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_best_model_beats_the_initial_one_at_equal_epochs(
    seed: int, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    searched(run, start, seed=seed)
    history = History(RunFolder(run).trial(1).path / "members")
    history.refresh()
    whole = [model for model in history.models.values() if model.ended is not None]
    best = max(whole, key=lambda model: (model.accuracy or 0.0, model.id))
    line = lineage(history, best)
    assert len(line) > 1, "the initial model is the best one"
    alike = initial_trained_like(line, run, tmp_path)
    assert 1 - (best.accuracy or 0.0) < alike
    # A search that works meets the class's largest error; one that finds nothing is far from it.
    first = [1 - (m.accuracy or 0.0) for m in whole if m.candidate.parent is None]
    assert 1 - (best.accuracy or 0.0) <= CLASSES["smoke"].target_quality < 0.75 * min(first)
