"""Trials that are killed and resumed one by one, and what their workers record, for real."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from ai500.core import events
from ai500.core.schema import decode
from ai500.operations.shipped import shipped_model
from ai500.projection import quality_curve
from ai500.records import Plan, Score, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.records.step_times import StepTimes
from tests.support.commands import SOURCE, Start, wait_for

pytestmark = pytest.mark.timeout(400)
TRICK = '''
"""V2 §5.4: SGD whose batch norm parameters have no weight decay."""
import torch

def make(parameters, hyperparameters):
    parameters = list(parameters)
    vectors = [p for p in parameters if p.dim() == 1]
    others = [p for p in parameters if p.dim() > 1]
    groups = [{"params": others}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=0.1, momentum=hyperparameters.momentum,
                           weight_decay=hyperparameters.weight_decay)

def policy(step, **rest):
    return 0.05
'''
BRANCHING = '''
from ai500.workloads.image_classification import ImageClassification

class Branching(ImageClassification):
    """Its graph depends on values, so its operations can't be counted."""

    name = "branching"

    def model(self, problem_class):
        from torch import nn

        class Doubtful(nn.Sequential):
            def forward(self, inputs):
                return super().forward(inputs if inputs.mean() > 0 else -inputs)

        return Doubtful(super().model(problem_class))

WORKLOAD = Branching()
'''
UNCOUNTED = '''
from ai500.workloads.image_classification import ImageClassification

class Uncounted(ImageClassification):
    """Its model has an operator that no rule counts."""

    name = "uncounted"

    def model(self, problem_class):
        from torch import nn, sinc

        class Damped(nn.Sequential):
            def forward(self, inputs):
                outputs = super().forward(inputs)
                return outputs * sinc(0.001 * outputs)

        return Damped(super().model(problem_class))

WORKLOAD = Uncounted()
'''


def settings(store: Path, **more: object) -> list[str | Path]:
    values: dict[str, object] = {
        "ensemble.size": 1,
        "parallel.degree": 1,
        "train.epochs": 2,
        "scheduler.poll_seconds": 0.05,
        "system.accelerators_per_node": 1,
        "system.cores_per_slot": 1,
    }
    pairs = [(key.replace("__", "."), value) for key, value in more.items()]
    chosen = [
        part for key, value in (*values.items(), *pairs) for part in ("--set", f"{key}={value}")
    ]
    return ["--data", store, *chosen]


def record_of(run: Path, trial: int = 1) -> TrainRecord:
    return run_folder.read(TrainRecord, RunFolder(run).trial(trial).member(0).record)


def judged(start: Start, run: Path, *arguments: str) -> dict[str, Any]:
    command = start("check", run, "--json", *arguments)
    command.wait()
    printed: dict[str, Any] = json.loads(command.out)
    return printed


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed package with an optimizer, a learning-rate policy and a workload of its own."""
    site = tmp_path_factory.mktemp("site")
    (site / "trick.py").write_text(TRICK)
    (site / "branching.py").write_text(BRANCHING)
    (site / "uncounted.py").write_text(UNCOUNTED)
    info = site / "trick-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trick\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ai500.optimizer]\ntrick = trick:make\n[ai500.learning_rate]\nmine = trick:policy\n"
        "[ai500.workload]\nbranching = branching:WORKLOAD\nuncounted = uncounted:WORKLOAD\n"
    )
    return site


@pytest.mark.long
def test_a_killed_run_of_three_trials_repeats_only_what_is_missing(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = start("run", "--runs", "valid", "--out", run, *settings(tiny_store))
    wait_for(RunFolder(run).trial(2).member(0).events, "first_batch")
    command.kill()
    first = RunFolder(run).trial(1).member(0).record
    before = first.read_bytes(), first.stat().st_mtime_ns
    command = start("resume", run)
    assert command.wait() == 0, command.err
    assert (first.read_bytes(), first.stat().st_mtime_ns) == before
    logged = list(events.read(run / "events.jsonl"))
    trials = Counter(e["trial"] for e in logged if e["event"] == "trial_start")
    assert trials == {1: 1, 2: 1, 3: 1}
    starts = Counter(e["trial"] for e in logged if e["event"] == "start")
    assert starts[1] == 1
    assert starts[3] == 1
    score = run_folder.read(Score, run / "score.json")
    assert len(score.trials) == 3
    assert len(score.kept_trials) == 1
    kept = score.trials[score.kept_trials[0] - 1]
    assert (
        sorted(trial_score.vflops for trial_score in score.trials)[1] == kept.vflops == score.vflops
    )
    assert len({trial_score.seed for trial_score in score.trials}) == 3
    assert [record_of(run, n).effective["seeds"]["seed"] for n in (1, 2, 3)] == [
        trial_score.seed for trial_score in score.trials
    ]
    broken = {
        finding["rule"]
        for finding in judged(start, run)["findings"]
        if finding["severity"] == "violation"
    }
    assert broken == {
        "minimum ensemble size", "same data", "same epochs", "same evaluations", "whole epochs",
    }  # fmt: skip


def test_the_worker_records_what_ran(finished_run: Path) -> None:
    """From the live objects, with the identity of the traced graph."""
    record = record_of(finished_run)
    ran, model = record.effective, shipped_model("image_classification", "smoke")
    assert model is not None
    assert ran["model"]["graph_sha256"] == model.graph_sha256
    assert ran["model"]["parameters"] == model.parameters == record.parameters
    [group] = ran["groups"]
    assert group["elements"] == model.parameters
    assert group["kinds"]["batch norm weight"] == group["kinds"]["batch norm bias"] == 9
    assert ran["optimizer_class"] == "torch.optim.sgd.SGD"
    assert ran["hyperparameters"]["momentum"] == group["momentum"] == 0.9
    assert ran["framework"]["name"] == "pytorch"
    assert ran["evaluation_epochs"] == ran["epochs"] == list(range(1, record.epochs + 1))
    assert ran["learning_rate"]["policy"] == "ai500.train.learning_rate.cosine"
    assert len(ran["learning_rate"]["at_end_of_epochs"]) == record.epochs
    assert len(record.versions["source"]) == 64


def test_every_epoch_has_the_times_of_its_steps(finished_run: Path) -> None:
    """All steps but the first; together they take no longer than the epoch."""
    begin = None
    for event in events.read(RunFolder(finished_run).trial(1).member(0).events):
        if event["event"] == "epoch":
            assert begin is not None
            times = decode(StepTimes, event["step_times"])
            assert times.count == event["steps"] - 1
            assert list(times.quantiles) == sorted(times.quantiles)
            assert 0 < times.minimum * times.count <= event["monotonic"] - begin
        begin = event["monotonic"]


def test_averages_of_subsets_of_members_are_points_of_the_m_curve(
    finished_run: Path, tiny_store: Path, tmp_path: Path
) -> None:
    """The two trials' members as four members of one trial: 1, 2, 3 and 4 of them."""
    run = RunFolder(shutil.copytree(finished_run, tmp_path / "run"))
    for member in (0, 1):
        shutil.copytree(run.trial(2).member(member).path, run.trial(1).member(2 + member).path)
    plan = run_folder.read(Plan, run.plan)
    places = tuple(replace(plan.mapping[0], member=member) for member in range(4))
    plan = replace(plan, ensemble_size=4, mapping=places)
    trial = run_folder.read(Score, run.score).trials[0]
    labels = np.load(tiny_store / "validation.labels.npy")
    predicted = [np.load(run.trial(1).member(member).validation) for member in range(4)]

    def accuracy(members: tuple[int, ...]) -> float:
        mean = np.mean([predicted[member] for member in members], axis=0, dtype=np.float64)
        return float((mean.argmax(axis=1) == labels).mean())

    curve = quality_curve.read_curve(run, plan, [trial])
    assert (curve.reason, curve.sizes) == ("", (1, 2, 3, 4))
    assert curve.quality(1) == trial.members_mean_quality
    for size in (2, 3):  # of four, all six and all four
        expected = fmean(map(accuracy, combinations(range(4), size)))
        assert curve.quality(size) == pytest.approx(expected)
    assert curve.quality(1000) is not None and curve.largest_residual() is not None
    assert curve.uncertainty(2) is None  # one trial
    with run.trial(1).member(3).validation.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    damaged = quality_curve.read_curve(run, plan, [trial])
    assert damaged.sizes == (1, 4) and "SHA-256" in damaged.reason


def test_v2_section_5_4_is_caught_from_what_ran(
    tiny_store: Path, package: Path, start: Start, tmp_path: Path
) -> None:
    """An optimizer from outside takes weight decay off batch norm; the configuration is silent."""
    run = tmp_path / "run"
    both = settings(
        tiny_store, train__optimizer="trick", train__schedule="mine", train__epochs=1,
        train__warmup_epochs=0,
    )  # fmt: skip
    environment = {"PYTHONPATH": f"{SOURCE}:{package}"}
    command = start("run", "--out", run, *both, **environment)
    assert command.wait() == 0, command.err
    judgement = judged(start, run)
    by_rule = {finding["rule"]: finding for finding in judgement["findings"]}
    assert by_rule["weight decay on everything"]["severity"] == "violation"
    assert (
        "9 × batch norm bias, 9 × batch norm weight"
        in (by_rule["weight decay on everything"]["message"])
    )
    assert by_rule["fixed hyperparameters"]["run"] == "trick"
    # The policy is open: its source is in the record.
    assert "return 0.05" in record_of(run).effective["learning_rate"]["source"]
    assert "open learning rate" not in by_rule
    assert by_rule["changed learning rate"]["severity"] == "note"


def test_a_model_that_cannot_be_counted_is_refused_before_it_trains(
    tiny_store: Path, package: Path, start: Start, tmp_path: Path
) -> None:
    command = start(
        "run", "--workload", "branching", "--out", "run", *settings(tiny_store),
        PYTHONPATH=f"{SOURCE}:{package}",
    )  # fmt: skip
    assert command.wait() == 1
    assert "control flow depends on values" in command.err
    names = {event["event"] for event in events.read(tmp_path / "run" / "events.jsonl")}
    assert "start" in names
    assert not names & {"first_batch", "epoch"}


def test_an_uncounted_operator_is_named_in_log_score_and_findings(
    tiny_store: Path, package: Path, start: Start, tmp_path: Path
) -> None:
    """[D23], from the model that ran to the verdict."""
    run = tmp_path / "run"
    chosen = settings(tiny_store, train__epochs=1)
    environment = {"PYTHONPATH": f"{SOURCE}:{package}"}
    command = start("run", "--workload", "uncounted", "--out", run, *chosen, **environment)
    assert command.wait() == 0, command.err
    missing = {"aten::sinc": 1}
    assert run_folder.read(Score, RunFolder(run).score).uncounted == missing
    counted = record_of(run).operations
    assert counted is not None and counted.uncounted == missing
    log = RunFolder(run).trial(1).member(0).log
    assert "aten::sinc ×1" in log.read_text(encoding="utf-8")
    check = start("check", run, "--json", **environment)
    check.wait()
    [finding] = [
        finding
        for finding in json.loads(check.out)["findings"]
        if finding["rule"] == "every operator counted"
    ]
    assert (finding["severity"], finding["run"]) == ("violation", "aten::sinc ×1")
