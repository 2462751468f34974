"""The example packages, installed as anybody's would be, and run."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ai500.records import run_folder
from tests.support.commands import SOURCE, Start
from tests.support.docs_examples import ROOT

EXAMPLES = ROOT / "docs" / "examples"
PACKAGES = ("outside-workload", "outside-plugins")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
         "--no-build-isolation", "--disable-pip-version-check", "--root-user-action=ignore",
         "--target", folder, *(EXAMPLES / name for name in PACKAGES)],
        check=True,
    )  # fmt: skip
    return folder


def test_a_workload_is_one_file_of_under_150_lines() -> None:
    lines = (EXAMPLES / "outside-workload" / "ising_phases.py").read_text().splitlines()
    assert len(lines) < 150


def test_a_battery_is_read_where_there_is_one(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(installed)
    (point,) = entry_points(group="ai500.meter", name="battery")
    open_meter = point.load()
    assert "no battery" in open_meter(tmp_path).reason
    battery = tmp_path / "sys/class/power_supply/BAT0"
    battery.mkdir(parents=True)
    (battery / "power_now").write_text("12500000\n")
    (battery / "status").write_text("Discharging\n")
    (reading,) = open_meter(tmp_path).read()
    assert (reading.device, reading.quantity, reading.value) == ("BAT0", "watts", 12.5)
    (battery / "status").write_text("Charging\n")
    assert open_meter(tmp_path).read() == []


@pytest.mark.serial
def test_a_run_of_an_outside_workload_with_outside_plugins(
    installed: Path, start: Start, tmp_path: Path
) -> None:
    """Workload, scheduler, launcher, meter, sampler, optimizer, policy and collective at once."""
    chosen = {
        "scheduler.kind": "one_by_one",
        "scheduler.launcher": "gently",
        "ensemble.sampler": "halves",
        "train.optimizer": "nadam",
        "train.schedule": "linear",
        "train.base_learning_rate": "0.005",
        "communication.mode": "through_one",
        "parallel.degree": "2",
        "system.accelerators_per_node": "2",
        "system.cores_per_slot": "1",
    }
    settings = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    path = f"{SOURCE}:{installed}"
    command = start("run", "--workload", "ising_phases", "--out", "run", *settings, PYTHONPATH=path)
    assert command.wait() == 0, command.out + command.err
    run = tmp_path / "run"
    score = json.loads((run / "score.json").read_text())
    assert score["complete"]
    assert score["ensemble_quality"] > 0.5, "five temperatures: guessing gives 0.2"
    assert (run / "report.html").stat().st_size > 10_000
    member = json.loads((run / "trials/01/members/000/record.json").read_text())
    communication = member["effective"]["parallel"]["communication"]
    assert (communication["mode"], communication["synchronous"]) == ("through_one", True)
    assert "class ThroughOne" in member["effective"]["communication"]["source"]
    assert member["effective"]["learning_rate"]["policy"] == "site_plugins.training.linear"
    assert member["effective"]["optimizer"] == "NAdam"
    jobs = run_folder.read_json(run / "trials/01/jobs.json")
    assert all(job["id"].startswith("one-") for job in jobs)
    (meters, *_) = (run / "trials/01/meters").glob("*.jsonl")
    opened = json.loads(meters.read_text().partition("\n")[0])
    assert "battery" in opened["absent"] | opened["covers"]
    drawn = run_folder.read_json(run / "trials/01/bootstraps.json")
    assert [record["drawn"] for record in drawn] == [1000, 1000]
