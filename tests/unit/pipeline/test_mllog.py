"""A run's trials as MLPerf logs: accepted by mlperf-logging's own checker, read back by a script's
parser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from ai500.cli import app
from ai500.core import events
from ai500.core.errors import InputError, JobError
from ai500.frameworks.script_events import ScriptEvent, parse_stdout
from ai500.pipeline.mllog import RULE_SETS, mllog_lines
from ai500.records import Plan, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import REPOSITORY
from tests.support.submitted import submittable_run
from tests.support.synthetic_search import SearchShape, write_synthetic_search

H200 = REPOSITORY / "docs" / "examples" / "h200"


def checked(log: Path, workload: str, folder: Path) -> tuple[int, str]:
    """Run the checker of the workload's rule set; return its exit code and output."""
    usage, ruleset = RULE_SETS[workload][0].split()
    done = subprocess.run(
        [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", usage,
         "--ruleset", ruleset, str(log)],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def lines_of(path: Path, trial: int = 1) -> list[str]:
    run = RunFolder.open(path)
    return mllog_lines(run, run_folder.read(Plan, run.plan), trial)


def test_the_checker_accepts_a_shipped_run(tmp_path: Path) -> None:
    app(["export", str(H200), "--mllog", "--out", str(tmp_path)], standalone_mode=False)
    logs = sorted(tmp_path.glob("trial-*.log"))
    assert len(logs) == 5
    code, out = checked(logs[0], "image_classification", tmp_path)
    assert (code, "SUCCESS" in out) == (0, True), out


@pytest.mark.parametrize("key", ["cache_clear", "run_stop", "eval_accuracy"])
def test_the_checker_rejects_a_log_that_lacks_a_line(tmp_path: Path, key: str) -> None:
    log = tmp_path / "trial.log"
    log.write_text("\n".join(line for line in lines_of(H200) if f'"{key}"' not in line))
    assert checked(log, "image_classification", tmp_path)[0] != 0


def test_the_lines_are_read_back_as_a_script_s_events() -> None:
    read_back = [event for line in lines_of(H200) if (event := parse_stdout(line))]
    recorded = [event for event in events.read(H200 / "events.jsonl") if event.get("trial") == 1]
    epochs = 8
    assert read_back[0] == ScriptEvent("first_batch")
    assert read_back[-1] == ScriptEvent("end")
    assert [event.epoch for event in read_back if event.event == "epoch"] == [*range(1, epochs + 1)]
    for epoch, event in enumerate((e for e in read_back if e.event == "quality"), start=1):
        qualities = [
            entry["quality"]
            for entry in recorded
            if entry["event"] == "quality" and entry["epoch"] == epoch
        ]
        assert (event.epoch, event.quality) == (epoch, pytest.approx(fmean(qualities)))


def test_a_missed_target_is_no_success(tmp_path: Path) -> None:
    run = submittable_run(tmp_path / "run")
    plan = run_folder.read(Plan, run.plan)
    mean = max(
        event.quality or 0.0
        for line in mllog_lines(run, plan, 1)
        if '"run_stop"' not in line and (event := parse_stdout(line)) is not None
    )
    assert mean < plan.definition.target_quality
    assert '"status": "aborted"' in mllog_lines(run, plan, 1)[-1]


def test_a_trial_without_a_result_has_no_log(tmp_path: Path) -> None:
    run = submittable_run(tmp_path / "run")
    with pytest.raises(JobError):
        mllog_lines(run, run_folder.read(Plan, run.plan), 99)


def test_a_search_has_no_log(tmp_path: Path) -> None:
    run = write_synthetic_search(tmp_path / "search", SearchShape(workers=2))
    with pytest.raises(InputError) as caught:
        mllog_lines(run, run_folder.read(Plan, run.plan), 1)
    assert caught.value.key == "--mllog"
