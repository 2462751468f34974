"""A site's squeue that fails, hangs or prints banners: programs on PATH, no Slurm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ai500.core.errors import EnvironmentLacksError
from ai500.jobs.schedulers import slurm_commands as commands
from ai500.jobs.schedulers.slurm_commands import SlurmUnavailableError

ROWS = "54_0|RUNNING|0|0|None\n54_1|COMPLETED|0|0|None\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that comes first in PATH; there is no accounting."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    program(tmp_path / "scontrol", "echo AccountingStorageType = accounting_storage/none")
    commands._accounting.cache_clear()
    return tmp_path


def program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    "body",
    [
        "echo 'slurm_load_jobs error: Munge decode failed: Rewound credential' >&2; exit 1",
        "echo 'error: If munged is up, restart with --num-threads=10' >&2; exit 1",
        "echo 'squeue: error: a text of the future' >&2; exit 57",
        "exit 1",
        "kill -KILL $$",
        "kill -SEGV $$",
        "exec sleep 60",
        "sleep 60; true",
        "echo 'Maintenance on Friday: see the wiki'; echo '54_0|RUNN'",
        r"printf '\377\376 54_0|RUNNING|0|0|None\n54_1|COMPLETED|0|0|None\n'",
    ],
    ids=["munge", "munge hint", "unknown text", "no text", "killed", "crashed", "hangs",
         "a child hangs", "cut off", "glued to a row"],
)  # fmt: skip
def test_any_failure_of_squeue_is_an_outage(
    install: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    # Here only: a busy machine may take as long for a program that works.
    monkeypatch.setattr(commands, "QUERY_SECONDS", 0.5)
    program(install / "squeue", body)
    with pytest.raises(SlurmUnavailableError):
        commands.job_states(["54_0", "54_1"])


def test_any_failure_of_sacct_is_an_outage(install: Path) -> None:
    program(install / "scontrol", "echo AccountingStorageType = accounting_storage/slurmdbd")
    program(install / "squeue", "true")
    program(install / "sacct", "echo 'sacct: error: a text of the future' >&2; exit 3")
    with pytest.raises(SlurmUnavailableError):
        commands.job_states(["54_0", "54_1"])


def test_banners_are_skipped_and_reported(install: Path) -> None:
    program(install / "squeue", f"echo 'Welcome | to | the | cluster | 1'; printf '{ROWS}'; echo $")
    skipped: list[str] = []
    jobs = commands.job_states(["54_0", "54_1"], on_skipped=skipped.append)
    assert [jobs[f"54_{task}"].state for task in (0, 1)] == ["running", "done"]
    assert skipped == ["Welcome | to | the | cluster | 1", "$"]


def test_a_banner_of_sacct_is_no_job(install: Path) -> None:
    program(install / "scontrol", "echo AccountingStorageType = accounting_storage/slurmdbd")
    program(install / "squeue", "true")
    program(
        install / "sacct",
        "echo 'Notice|the|wiki'; printf '54_0|COMPLETED|0:0\\n54_1|FAILED|7:0\\n'",
    )
    skipped: list[str] = []
    jobs = commands.job_states(["54_0", "54_1"], on_skipped=skipped.append)
    assert [jobs[f"54_{task}"].state for task in (0, 1)] == ["done", "failed"]
    assert skipped == ["Notice|the|wiki"]


def test_a_missing_squeue_is_no_outage(install: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(install))
    with pytest.raises(EnvironmentLacksError):
        commands.job_states(["54_0"])
