"""The disk that `plan` states, beside the files of a finished run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ai500 import config as configuration
from ai500.pipeline import disk_use as disk
from ai500.pipeline.stages import survey_and_plan
from ai500.records import Plan, run_folder
from ai500.records.run_folder import RunFolder
from ai500.workloads.detection.faster_rcnn import Design
from ai500.workloads.extreme_weather import DETECTIONS

HEADERS_BYTES = 40_000  # of the files: names of tensors, seals, settings


def planned(**overrides: object) -> tuple[configuration.Config, Plan]:
    config = configuration.load(None, overrides=overrides)
    return config, survey_and_plan(config)[1]


def by_content(config: configuration.Config, plan: Plan, run: Path) -> dict[str, disk.DiskUse]:
    return {use.content: use for use in disk.disk_use(config, plan, run)}


def test_a_finished_run_has_the_stated_size(finished_run: Path) -> None:
    run = RunFolder(finished_run)
    uses = by_content(configuration.load(run.config), run_folder.read(Plan, run.plan), finished_run)
    members = [run.trial(trial).member(member) for trial in (1, 2) for member in (0, 1)]
    written = sum(member.checkpoint.stat().st_size for member in members)
    stated = uses["checkpoints"].bytes
    assert stated is not None
    # While the last two train, each of them has the checkpoint before besides.
    assert stated * 4 / 6 <= written <= stated * 4 / 6 + 4 * HEADERS_BYTES
    written = sum(
        file.stat().st_size for member in members for file in (member.validation, member.out_of_bag)
    )
    stated = uses["predictions"].bytes
    assert stated is not None
    assert 0.4 * stated <= written <= stated + 8 * 128  # 37 % of the samples are out of bag


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [("sgd", 1), ("lars", 1), ("adam", 2), ("adamw", 2), ("lamb", 2), ("adagrad", 1)],
)
def test_checkpoints_have_the_optimizer_s_state(
    tmp_path: Path, optimizer: str, states: int
) -> None:
    config, plan = planned(**{"parallel.degree": 1, "system.scale": 4, "system.nodes": 4})
    plan = replace(plan, hyperparameters=replace(plan.hyperparameters, optimizer=optimizer))
    assert plan.operations is not None
    weights = 4 * plan.operations.parameters
    one_wave = replace(plan, waves=1, trials=3)
    stated = by_content(config, one_wave, tmp_path)["checkpoints"].bytes
    assert stated == weights * (1 + states) * (3 * plan.ensemble_size + plan.ensemble_size)
    by_turns = replace(plan, waves=plan.ensemble_size, trials=3)
    stated = by_content(config, by_turns, tmp_path)["checkpoints"].bytes
    assert stated == weights * (1 + states) * (3 * plan.ensemble_size + 1)


def test_no_number_is_invented(tmp_path: Path) -> None:
    config, plan = planned()
    hyper = replace(plan.hyperparameters, optimizer="a plugin's")
    for other, word in [
        (replace(plan, operations=None), "traces"),
        (replace(plan, hyperparameters=hyper), "plugin"),
        (replace(plan, framework=replace(plan.framework, kind="script")), "script"),
    ]:
        use = by_content(config, other, tmp_path)["checkpoints"]
        assert use.bytes is None
        assert word in use.reason
    config, plan = planned(workload="automl")
    assert by_content(config, plan, tmp_path)["checkpoints"].bytes is None


def test_generated_data_are_stated_until_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI500_CACHE", str(tmp_path / "cache"))
    config, plan = planned(workload="cosmology")
    use = by_content(config, plan, tmp_path)["generated data"]
    assert use.folder == str(tmp_path / "cache")
    assert use.bytes is not None
    assert use.bytes > 0
    folder = disk.cached_store("cosmology", plan.problem_class)
    assert folder is not None
    folder.mkdir(parents=True)
    assert "generated data" not in by_content(config, plan, tmp_path)


@pytest.mark.parametrize(
    ("workload", "row"),
    [
        ("image_classification", 4 * 12),
        ("cosmology", 4 * 4),
        ("climate_segmentation", 2 * 64 * 96),
        ("language_model", 4 * 128),
        ("extreme_weather", 4 * 6 * Design().detections),
    ],
)
def test_predictions_of_every_workload(tmp_path: Path, workload: str, row: int) -> None:
    config, plan = planned(workload=workload)
    definition = plan.definition
    assert definition.out_of_bag_samples <= definition.train_samples
    rows = definition.validation_samples + definition.out_of_bag_samples
    stated = by_content(config, plan, tmp_path)["predictions"].bytes
    assert stated == row * rows * plan.trials * plan.ensemble_size
    assert Design().detections == DETECTIONS


def test_a_file_system_with_too_little_space_is_named(tmp_path: Path) -> None:
    config, plan = planned()
    uses = disk.disk_use(config, plan, tmp_path / "not" / "there" / "yet")
    assert disk.lacking(uses) == []
    need = sum(use.bytes or 0 for use in uses)
    same = [replace(use, file_system="/disk", free_bytes=need) for use in uses]
    assert disk.lacking(same) == []
    [sentence] = disk.lacking([replace(use, free_bytes=need - 1) for use in same])
    assert "/disk" in sentence
    assert str(need) in sentence


def test_the_scratch_of_a_cluster_is_seen_by_its_nodes_only(tmp_path: Path) -> None:
    config, plan = planned()
    config = replace(config, data=replace(config.data, scratch="/scratch/$SLURM_JOB_ID"))
    use = by_content(config, plan, tmp_path)["staged data, per node"]
    assert use.folder == "/scratch/$SLURM_JOB_ID"
