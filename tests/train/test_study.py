"""A study carried out for real: planned, stopped, gone on with, used again by another one."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path

import pytest

from ai500.records.run_folder import RunFolder
from tests.support.commands import Command, Start, processes_of, wait_for

TINY_TRAINING = (
    "--set", "train.epochs=2", "--set", "system.accelerators_per_node=2",
    "--set", "system.cores_per_slot=1",
)  # fmt: skip


def printed(command: Command) -> dict[str, object]:
    assert command.wait() == 0, command.err
    result: dict[str, object] = json.loads(command.out)
    return result


@pytest.mark.serial
def test_a_study_goes_on_where_it_was_stopped(
    start: Start, tiny_store: Path, tmp_path: Path
) -> None:
    # enough epochs that the first member is still training when it is stopped after one of them
    settings = (*TINY_TRAINING, "--set", "train.epochs=12")
    words = ("study", "scaling", "--max-members", "2", "--data", tiny_store, *settings)
    plan = printed(start(*words, "--dry-run", "--json"))
    assert plan["runs"] == 2
    assert not (tmp_path / "runs").exists()  # a dry run leaves nothing behind

    folder = tmp_path / "runs" / "study-scaling-image_classification-smoke"
    points = plan["points"]
    assert isinstance(points, list)
    runs = [folder / point["run"] for point in points]
    runs[0].mkdir(parents=True)
    (runs[0] / "config.toml").touch()  # as a power cut leaves it while a run is prepared
    known = {"study": "scaling", "workload": "image_classification", "problem_class": "smoke"}
    (folder / "study.json").write_text(json.dumps(known))
    stopped = start(*words)
    wait_for(runs[0] / "events.jsonl", "epoch")
    stopped.interrupt()
    assert stopped.wait() == 130
    assert "The same command continues" in stopped.err
    assert not (runs[1] / "run.json").exists()

    again = start(*words)
    assert again.wait() == 0, again.err
    assert "point 1 of 2: M = 1" in again.out
    assert "point 2 of 2: M = 2; about" in again.out
    assert max(map(len, again.out.splitlines())) <= 80 + len(str(folder))
    with (folder / "points.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["ensemble_size"], row["system_scale"]) for row in rows] == [("1", "1"), ("2", "2")]
    scores = [json.loads((run / "score.json").read_text()) for run in runs]
    assert [float(row["flops"]) for row in rows] == [
        pytest.approx(score["flops"]) for score in scores
    ]
    result = json.loads((folder / "result.json").read_text())
    assert any("interrupted" in issue for issue in result["points"][0]["timing_issues"])
    assert "it was interrupted and resumed" in (folder / "report.html").read_text()

    # Another study finds a point done here; nothing is left to do, and nothing is touched.
    other = printed(
        start("study", "tradeoff", "--data", tiny_store, *settings, "--dry-run", "--json")
    )
    assert other["runs"] == 1
    before = RunFolder(runs[1]).events.read_text()
    last = start(*words)
    assert last.wait() == 0
    assert "0 of 2 points" in last.out
    assert RunFolder(runs[1]).events.read_text() == before


@pytest.mark.long
def test_a_point_that_fails_does_not_end_the_study(
    start: Start, tiny_store: Path, tmp_path: Path
) -> None:
    words = ("study", "tradeoff", "--data", tiny_store, *TINY_TRAINING, "--out", tmp_path / "s")
    points = printed(start(*words, "--dry-run", "--json"))["points"]
    assert isinstance(points, list)
    first = tmp_path / "s" / points[0]["run"]
    command = start(*words)
    wait_for(first / "events.jsonl", "epoch")
    for process in processes_of(first / "trials/01/members/001"):
        os.kill(process, signal.SIGKILL)
    assert command.wait() == 1
    assert "point m2-p1: member 1 of trial 1 failed" in command.err
    result = json.loads((tmp_path / "s" / "result.json").read_text())
    assert [point["name"] for point in result["points"]] == ["m1-p2"]
    assert [(point["name"], point["failed"]) for point in result["missing"]] == [("m2-p1", True)]

    again = start(*words)
    assert again.wait() == 0, again.err
    assert "point 1 of 1: M = 2, P = 1" in again.out
    assert not json.loads((tmp_path / "s" / "result.json").read_text())["missing"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("study", "names"),
    [
        ("data-parallel", ["ensemble-1", "ensemble-2", "single-2"]),
        ("optimizations", ["fp32", "mixed-bf16", "compression", "both", "large-batch-neither"]),
        ("repeatability", ["seed-1", "seed-2"]),
    ],
)
def test_the_other_studies_end_in_a_report(
    start: Start, tiny_store: Path, tmp_path: Path, study: str, names: list[str]
) -> None:
    # A small batch, so that an epoch of the tiny store has steps enough for a large one.
    words = ("study", study, "--data", tiny_store, *TINY_TRAINING, "--set", "train.batch_size=4")
    seeds = ("--seeds", "2") if study == "repeatability" else ()
    command = start(*words, *seeds, "--points", ",".join(names), "--out", tmp_path / "study")
    assert command.wait(timeout=580) == 0, command.err
    result = json.loads((tmp_path / "study" / "result.json").read_text())
    assert [point["name"] for point in result["points"]] == names
    assert not result["missing"]
    page = (tmp_path / "study" / "report.html").read_text()
    assert all(point["label"] in page for point in result["points"])
    assert page.count("<figure>") >= 2


@pytest.mark.long
def test_scaling_at_smoke(start: Start, tmp_path: Path) -> None:
    command = start("study", "scaling", "--max-members", "2", "--out", tmp_path / "study")
    assert command.wait(timeout=580) == 0, command.err
    result = json.loads((tmp_path / "study" / "result.json").read_text())
    first, second = (point["score"] for point in result["points"])
    assert second["operations"] == 2 * first["operations"]
    assert second["ensemble_quality"] > first["ensemble_quality"]
    assert not result["missing"]
