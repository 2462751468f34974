"""A terminal that fails ends no run; names that a file system refuses are one error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ai500.core.errors import RunFolderError
from ai500.records.run_folder import RunFolder
from tests.support.commands import SOURCE

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1", "COLUMNS": "80"}


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """A finished run, in a folder whose name looks like markup."""
    path = tmp_path / "[bold]run[/]"
    shutil.copytree(finished_run, path)
    return path


def resume(run: Path, redirection: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`ai500 resume` of a finished run: it scores and reports again."""
    return subprocess.run(
        ["sh", "-c", f'"$0" -m ai500 resume "$1" {redirection}', sys.executable, run],
        env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=200,
    )  # fmt: skip


def test_a_full_disk_under_the_log_ends_no_run(run: Path) -> None:
    (run / "report.html").unlink()
    done = resume(run, "> /dev/full")
    assert (done.returncode, done.stderr.count("no more output")) == (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert (run / "report.html").exists()


def test_a_full_disk_under_both_logs_ends_no_run(run: Path) -> None:
    assert resume(run, "> /dev/full 2>&1").returncode == 0


def test_a_closed_pipe_is_reported_on_stderr_and_ends_no_run(run: Path) -> None:
    (run / "report.html").unlink()
    done = resume(run, "| true")
    assert "no more output: Broken pipe; the run goes on" in done.stderr
    assert "Traceback" not in done.stderr
    assert (run / "report.html").exists()


def test_an_ascii_terminal_shows_other_characters_as_question_marks(run: Path) -> None:
    done = resume(run, "", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "?" in done.stdout
    assert "run folder" in done.stdout
    assert "[bold]run[/]" in done.stdout


NOHUP = """
import signal, sys
from pathlib import Path
from ai500.cli.run import resume

signal.signal(signal.SIGHUP, getattr(signal, sys.argv[2]))
resume(Path(sys.argv[1]))
print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, file=sys.stderr)
"""


@pytest.mark.parametrize(("before", "ignored"), [("SIG_IGN", "True"), ("SIG_DFL", "False")])
def test_a_signal_that_nohup_ignores_stays_ignored(run: Path, before: str, ignored: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOHUP, run, before],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == ignored


def ai500(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    words = [os.fsencode(str(word)) for word in arguments]
    return subprocess.run(
        [sys.executable, "-m", "ai500", *words], env=ENVIRONMENT, capture_output=True, timeout=200
    )


@pytest.mark.slow
def test_a_name_past_the_limits_of_the_file_system_is_one_error(tmp_path: Path) -> None:
    for command in (["status"], ["run", "--class", "smoke", "--out"]):
        done = ai500(*command, tmp_path / ("n" * 300))
        assert done.returncode == 3, done.stderr
        assert b"ENAMETOOLONG" in done.stderr
        assert b"Traceback" not in done.stderr


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"run-\xff")
    with pytest.raises(RunFolderError) as caught, RunFolder.creating(path, version="0"):
        pass
    assert caught.value.path == path
    assert list(tmp_path.iterdir()) == []


def test_local_jobs_do_not_go_on_without_their_controller(run: Path) -> None:
    """A controller killed before it wrote its jobs down leaves members that look pending."""
    trial = RunFolder(run).trial(2)
    trial.score.unlink()
    trial.jobs.unlink()
    for member in (0, 1):
        trial.member(member).record.unlink()
    done = ai500("status", run)
    assert done.returncode == 0, done.stderr
    assert b": stopped" in done.stdout
    assert b"still running" not in done.stdout
