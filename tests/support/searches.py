"""Real searches: their settings, events and what must hold for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ai500.automl.history import (
    Candidate,
    History,
    Line,
    Work,
)
from ai500.records import Score, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder


def settings(store: Path, *, seconds: float, workers: int = 2, degree: int = 1) -> list[str | Path]:
    values: dict[str, Any] = {
        "workload": "automl",
        "automl.minutes": seconds / 60,
        "automl.batch_sizes": [32, 64],
        "ensemble.size": workers,
        "parallel.degree": degree,
        "train.epochs": 2,
        "train.checkpoint_minutes": 0.005,
        "scheduler.poll_seconds": 0.05,
        "system.accelerators_per_node": workers * degree,
        "system.cores_per_slot": 1,
    }
    pairs = [p for key, value in values.items() for p in ("--set", f"{key}={json.dumps(value)}")]
    return ["--data", store, *pairs]


def read_history(run: Path) -> tuple[History, list[Line]]:
    history = History(RunFolder(run).trial(1).path / "members")
    return history, history.refresh()


def operations_once(lines: list[Line]) -> int:
    """Sum the operations of all recorded steps and validated images, each once."""
    candidates: dict[str, Candidate] = {}
    done: set[tuple[str, str, int, int]] = set()
    for line in lines:
        entry = line.entry
        if isinstance(entry, Candidate):
            candidates[entry.model] = entry
        elif isinstance(entry, Work):
            units = range(entry.first, entry.first + entry.count)
            done |= {(entry.model, entry.phase, entry.epoch, unit) for unit in units}
    total = 0
    for model, phase, _, _ in done:
        count, batch = candidates[model].operations, candidates[model].batch_size
        total += count.forward_per_sample if phase == "validate" else (
            batch * (count.forward_per_sample + count.backward_per_sample) + count.update_per_step
        )  # fmt: skip
    return total


def check(run: Path, *, workers: int) -> Score:
    """Check everything that holds for an ended search, however often it was resumed."""
    history, lines = read_history(run)
    assert not history.unreadable
    score = run_folder.read(Score, RunFolder(run).score)
    assert score.complete and score.search is not None
    assert score.operations + score.validation_operations == operations_once(lines)
    judged = [model for model in history.models.values() if model.epochs]
    assert score.ensemble_quality == pytest.approx(1 - max(m.accuracy or 0 for m in judged))
    for model in history.models.values():
        assert model.ended is not None, f"{model.id} never ended"
        steps = model.candidate.steps_per_epoch
        for line in lines:
            if isinstance(line.entry, Work) and line.entry.model == model.id:
                assert line.entry.phase == "validate" or (
                    line.entry.first + line.entry.count <= steps
                )
    for worker in range(workers):
        folder = RunFolder(run).trial(1).member(worker)
        record = run_folder.read(TrainRecord, folder.record)
        own = [model for model in judged if model.worker == worker]
        assert record.quality == pytest.approx(1 - max(m.accuracy or 0 for m in own))
        assert record.weights_sha256
        assert [m.candidate.round for m in own] == sorted(m.candidate.round for m in own)
        assert not list(folder.path.glob("checkpoint*"))
    return score
