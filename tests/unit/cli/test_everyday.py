"""`runs`, `doctor`, `export`, the newest run by default, -q and -v, NO_COLOR."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
import webbrowser
from pathlib import Path

import pytest
from pyarrow import parquet
from rich.console import Console

from ai500.bagging.member_views import MemberView, trial_progress
from ai500.cli import doctor as doctor_command
from ai500.cli import terminal
from ai500.cli.score_view import show_score
from ai500.core import events
from ai500.core.units import human_seconds, human_si, whole_seconds
from ai500.projection.simulator import simgrid_python
from ai500.records import Plan, Score, run_folder
from ai500.records.run_folder import RunFolder
from tests.support import synthetic_roofline
from tests.support.commands import SOURCE, Run
from tests.support.submitted import small_run, submittable_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with a valid run, and a newer one that is not."""
    folder = tmp_path / "runs"
    submittable_run(folder / "valid")
    small_run(folder / "small")
    os.utime(folder / "valid" / "run.json", (1e9, 1e9))
    return folder


def test_runs_are_listed_newest_first_with_verdict_and_score(ai500: Run, runs: Path) -> None:
    code, out, _ = ai500("runs")
    lines = out.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 80
    assert [line.split()[2] for line in lines[1:]] == ["small", "valid"]
    assert "not valid (" in lines[1]
    assert " valid " in lines[2]
    listed = json.loads(ai500("runs", "--json")[1])
    score = run_folder.read(Score, RunFolder(runs / "valid").score)
    assert listed[1]["vflops"] == score.vflops
    assert listed[1]["verdict"] == "valid"


def test_what_other_commands_leave_is_listed(ai500: Run, runs: Path) -> None:
    run_folder.write(runs / "rooflines" / "host-1.json", synthetic_roofline.synthetic_roofline())
    (runs / "profiles" / "a").mkdir(parents=True)
    (runs / "profiles" / "a" / "profile.json").write_text("{}")
    (runs / "projections" / "b").mkdir(parents=True)
    (runs / "projections" / "b" / "projection.json").write_text("{}")
    (runs / "study-x").mkdir()
    (runs / "study-x" / "study.json").write_text("{}")
    kinds = {entry["kind"]: entry["state"] for entry in json.loads(ai500("runs", "--json")[1])}
    assert kinds == {
        "run": "finished", "roofline": "stopped", "profile": "finished", "study": "stopped",
        "projection": "finished",
    }  # fmt: skip


def test_a_damaged_run_is_listed_as_damaged(ai500: Run, runs: Path) -> None:
    (runs / "small" / "score.json").write_text('{"flops": "many"}')
    code, out, _ = ai500("runs")
    assert code == 0
    assert "damaged" in out.splitlines()[1]


def test_no_run_is_no_error_but_a_missing_folder_is(ai500: Run) -> None:
    code, out, _ = ai500("runs")
    assert (code, out) == (0, "no run in runs/; `ai500 run` makes one\n")
    code, _, err = ai500("runs", "nowhere")
    assert (code, "nowhere: no such folder" in err) == (2, True)


@pytest.mark.parametrize("command", [["status"], ["score"], ["report"], ["check"]])
def test_the_newest_run_is_read_if_none_is_named(
    ai500: Run, runs: Path, command: list[str]
) -> None:
    assert runs.is_dir()
    code, _, err = ai500(*command)
    assert "newest run: runs/small" in err
    assert code == (1 if command == ["check"] else 0)


def test_without_a_run_there_is_no_newest_one(ai500: Run) -> None:
    code, _, err = ai500("status")
    assert (code, "there is no run in runs/" in err) == (2, True)


@pytest.mark.parametrize("command", ["cancel", "resume", "finish"])
def test_a_command_that_acts_needs_the_name_of_a_run(ai500: Run, runs: Path, command: str) -> None:
    assert runs.is_dir()
    assert ai500(command)[0] == 2


def test_export_writes_every_table(ai500: Run, runs: Path) -> None:
    code, out, _ = ai500("export", "runs/valid", "--csv")
    assert code == 0
    assert len(out.splitlines()) == 4
    run = RunFolder(runs / "valid")
    plan, score = run_folder.read(Plan, run.plan), run_folder.read(Score, run.score)
    tables = {}
    for name in ("members", "trials", "events", "meters"):
        with (run.path / "export" / f"{name}.csv").open(newline="") as file:
            tables[name] = list(csv.DictReader(file))
    assert len(tables["members"]) == plan.ensemble_size * plan.trials
    assert [float(row["vflops"]) for row in tables["trials"]] == pytest.approx(
        [trial.vflops for trial in score.trials]
    )
    recorded = list(events.read(run.events))
    assert [row["event"] for row in tables["events"]] == [event["event"] for event in recorded]
    assert json.loads(tables["events"][-1]["values"])["sequence"] == recorded[-1]["sequence"]
    code, _, _ = ai500("export", "runs/valid", "--parquet", "--out", "tables")
    assert code == 0
    members = parquet.read_table("tables/members.parquet")
    assert members.num_rows == len(tables["members"])
    assert members.column("quality").to_pylist() == [
        float(row["quality"]) for row in tables["members"]
    ]


@pytest.mark.parametrize("formats", [[], ["--csv", "--parquet"]])
def test_one_format_is_exported_at_a_time(ai500: Run, runs: Path, formats: list[str]) -> None:
    code, _, err = ai500("export", runs / "valid", *formats)
    assert (code, "Add --csv, --parquet or --mllog." in err) == (2, True)


def test_doctor_says_what_is_missing_and_how_to_get_it(
    ai500: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = ai500("doctor")
    assert max(map(len, out.splitlines())) <= 80
    assert code == 0
    assert "ready: `ai500 run` can start" in out
    packages = (
        ("no-such-package", "required", "everything", "pip install it"),
        ("no-other-package", "optional", "some things", "pip install the other"),
    )
    monkeypatch.setattr(doctor_command, "PACKAGES", packages)
    code, out, _ = ai500("doctor")
    missing, _, rest = out.partition("Here\n")
    assert code == 3
    assert "no-such-package  for everything: pip install it" in missing
    assert "no-other-package  " in rest
    assert "ready" not in out


def test_doctor_finds_packages_that_other_interpreters_have(
    ai500: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv-jax" / "bin").mkdir(parents=True)
    (tmp_path / ".venv-jax" / "bin" / "python").touch()
    monkeypatch.chdir(tmp_path)
    checks = {check["name"]: check for check in json.loads(ai500("doctor", "--json")[1])}
    assert checks["jax"]["text"] == f"in {tmp_path}/.venv-jax/bin/python"
    assert checks["simgrid"]["present"] == (simgrid_python() is not None)


def test_report_opens_in_the_browser(
    ai500: Run, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: not opened.append(url))
    assert ai500("report", runs / "small", "--open")[0] == 0
    assert opened == [(runs / "small" / "report.html").resolve().as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    code, _, err = ai500("report", runs / "small", "--open")
    assert (code, "there is no browser here" in err) == (3, True)


def test_follow_ends_with_the_run(ai500: Run, runs: Path) -> None:
    code, out, _ = ai500("status", runs / "small", "--follow")
    assert code == 0
    assert "small: finished" in out
    assert ai500("status", runs / "small", "--follow", "--json")[0] == 2


def test_quiet_and_verbose(ai500: Run, runs: Path) -> None:
    normal, verbose = ai500("score", runs / "valid")[1], ai500("score", runs / "valid", "-v")[1]
    assert normal.startswith("VALID RESULT: complete, and no rule is broken\nScore: ")
    assert "Eq. 7" not in normal
    assert "[V3 Eq. 7]" in verbose
    assert ai500("score", runs / "valid")[1] == normal, "-v of another call has no effect"
    quiet = ai500("resume", runs / "valid", "-q")[1]
    assert "·" not in quiet
    assert quiet.startswith("VALID RESULT")


def test_an_incomplete_score_is_never_valid(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import dataclasses

    score = run_folder.read(Score, RunFolder(runs / "valid").score)
    show_score(dataclasses.replace(score, complete=False), [])
    assert capsys.readouterr().out.startswith("NOT A VALID RESULT")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}], ids=str
)
def test_a_terminal_without_color_or_unicode(
    runs: Path, columns: int, environment: dict[str, str]
) -> None:
    for words in (["runs"], ["score", "runs/small"], ["status", "runs/small"]):
        command = " ".join([sys.executable, "-m", "ai500", *words])
        done = subprocess.run(
            ["script", "-qec", f"stty cols {columns}; {command}", "/dev/null"],
            cwd=runs.parent, capture_output=True, stdin=subprocess.DEVNULL, timeout=120,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm", **environment},
        )  # fmt: skip
        out = done.stdout.decode(errors="strict")
        assert done.returncode == 0, out
        if "NO_COLOR" in environment:
            assert "\x1b[3" not in out
        else:
            assert out.isascii()


@pytest.mark.parametrize(
    ("seconds", "text", "whole"),
    [
        (0.5, "500 ms", "0 s"), (3.26, "3.3 s", "3 s"), (99.96, "1 min 40 s", "1 min 40 s"),
        (125.4, "2 min 05 s", "2 min 05 s"), (7260, "2 h 01 min", "2 h 01 min"),
    ],
)  # fmt: skip
def test_one_rule_for_durations(seconds: float, text: str, whole: str) -> None:
    assert (human_seconds(seconds), whole_seconds(seconds)) == (text, whole)


def test_progress_of_a_trial_is_one_estimate() -> None:
    began = time.time() - 60
    running = [
        MemberView(member, state="running", epoch=3, epochs=10, started=began, started_attempt=0)
        for member in range(2)
    ]
    waiting = [MemberView(member) for member in (2, 3)]
    progress = trial_progress([*running, *waiting], epochs=10)
    assert progress.fraction == pytest.approx(6 / 40)
    assert progress.elapsed_seconds == pytest.approx(60, abs=5)
    assert progress.seconds_left == pytest.approx(60 * 34 / 6, rel=0.1)
    done = [MemberView(member, state="done", epochs=10, epoch=10) for member in range(4)]
    assert trial_progress(done, epochs=10).fraction == 1.0
    assert trial_progress(waiting, epochs=10) == type(progress)(0.0, None, None)
    assert shutil.which("script"), "the tests above need util-linux"


def drawn(renderable: object, **options: object) -> str:
    out = io.StringIO()
    Console(file=out, width=80, highlight=False, **options).print(renderable)  # type: ignore[arg-type]
    return out.getvalue()


def test_the_live_view_shows_the_whole_run(runs: Path) -> None:
    plan = run_folder.read(Plan, RunFolder(runs / "valid").plan)
    epochs, began = plan.hyperparameters.epochs, time.time() - 3601
    views = [
        MemberView(
            member, state="running", epoch=epochs // 2, epochs=epochs, quality=0.5, loss=1.25,
            samples_per_second=1000.0, sample_noun="image", started=began,
        )
        for member in range(plan.ensemble_size)
    ]  # fmt: skip
    views[0].state, views[0].epoch = "done", epochs
    text = drawn(terminal.run_bar(views, plan, trial=2)) + drawn(
        terminal.members_table(views, plan)
    )
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    share = (1 + (epochs + 3 * (epochs // 2)) / (4 * epochs)) / plan.trials
    left = (epochs - epochs // 2) / (epochs // 2) * 3601
    whole = left + (plan.trials - 2) * (3601 + left)
    assert lines[0].startswith(f"trial 2 of {plan.trials} ")
    assert f" {100 * share:.0f}%  60 min 01 s elapsed, {whole_seconds(whole)} left" in lines[0]
    assert f"target {plan.definition.target_quality:g}" in text
    assert plan.operations is not None
    rate = human_si(3000 * plan.operations.per_sample)
    assert f"1 of 4 members done; {rate}FLOPS" in text
    assert " left" not in lines[-1], "the bar alone shows the time left"
    colored = drawn(
        terminal.members_table(views, plan), force_terminal=True, color_system="standard"
    )
    assert "\x1b[32mdone" in colored
    assert "\x1b[36mrunning" in colored
