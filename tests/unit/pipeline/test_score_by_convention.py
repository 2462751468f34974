"""A score in each of the three conventions [D20]; the official one is unchanged."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ai500.core import events
from ai500.core.errors import InputError, JobError
from ai500.operations.shipped import shipped_model, shipped_operations
from ai500.pipeline.scoring import score_by_convention, score_run
from ai500.records import Operations, Plan, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.synthetic_run import Shape, write_synthetic_run

V3 = Operations("v3", forward_per_sample=1000, backward_per_sample=2000, update_per_step=0,
                parameters=7)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_synthetic_run(tmp_path / "run", Shape(members=2, slots=2))


def change_records(run: RunFolder, **changes: object) -> None:
    for trial in run.path.glob("trials/*"):
        for member in (0, 1):
            path = trial / "members" / f"{member:03d}" / "record.json"
            record = run_folder.read(TrainRecord, path)
            run_folder.write(path, dataclasses.replace(record, **changes))  # type: ignore[arg-type]


def test_a_recorded_count_gives_the_score_and_nothing_is_written(run: RunFolder) -> None:
    change_records(run, other_conventions=(V3,))
    official = score_run(run)
    before = {path: path.read_bytes() for path in run.path.rglob("*.json*")}
    shown = score_by_convention(run, "v3")
    assert (official.convention, shown.convention) == ("aiperf", "v3")
    record = run_folder.read(TrainRecord, run.trial(1).member(0).record)
    operations = 2 * (record.samples * 3000)
    assert shown.trials[0].operations == operations
    assert shown.trials[0].flops == pytest.approx(operations / shown.trials[0].seconds)
    assert shown.penalty_coefficient == official.penalty_coefficient
    assert shown.seconds == official.seconds
    assert {path: path.read_bytes() for path in run.path.rglob("*.json*")} == before
    assert score_by_convention(run, "aiperf") == official


def test_an_older_record_of_the_shipped_model_is_counted_by_the_shipped_table(
    run: RunFolder,
) -> None:
    plan = run_folder.read(Plan, run.plan)
    table = shipped_operations(plan.workload, plan.problem_class, "matmul")
    assert table is not None
    identity = shipped_model(plan.workload, plan.problem_class)
    assert identity is not None
    change_records(run, effective={"model": {"graph_sha256": identity.graph_sha256}})
    shown = score_by_convention(run, "matmul")
    record = run_folder.read(TrainRecord, run.trial(1).member(0).record)
    expected = 2 * table.training(samples=record.samples, steps=record.steps)
    assert shown.trials[0].operations == expected


def test_a_model_that_was_not_counted_so_is_refused(run: RunFolder) -> None:
    change_records(run, effective={"model": {"graph_sha256": "f" * 64}})
    with pytest.raises(JobError) as refused:
        score_by_convention(run, "v3")
    assert (refused.value.key, refused.value.value) == ("convention", "v3")
    assert list(events.read(run.events))


def test_an_unknown_convention_is_named(run: RunFolder) -> None:
    from ai500.cli import app

    with pytest.raises(InputError) as refused:
        app(["score", str(run.path), "--convention", "aiperv"], standalone_mode=False)
    assert (refused.value.key, refused.value.value) == ("convention", "aiperv")


def test_a_run_without_a_finished_trial_has_no_score_in_any_convention(run: RunFolder) -> None:
    lines = run.events.read_text().splitlines(keepends=True)
    run.events.write_text("".join(line for line in lines if '"aggregate"' not in line))
    with pytest.raises(JobError) as caught:
        score_by_convention(run, "aiperf")
    assert f"ai500 resume {run.path}" in caught.value.remedy
