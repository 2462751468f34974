"""The copies of a run on a node: shared by its jobs, removed by the last of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ai500.parallel.placement import USERS, shared_folder

USER = """\
import sys
from pathlib import Path
from ai500.parallel.placement import shared_folder
with shared_folder(Path(sys.argv[1]), stated=sys.argv[2]) as folder:
    (folder / "copy").mkdir(exist_ok=True)
    print(folder, flush=True)
    sys.stdin.read()
"""


def user(run: Path, scratch: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a job that uses the run's copies until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", USER, str(run), str(scratch)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_last_job_out_removes_the_copy_whichever_job_made_it(tmp_path: Path) -> None:
    first, folder = user(tmp_path / "run", tmp_path / "scratch")
    second, same = user(tmp_path / "run", tmp_path / "scratch")
    assert folder == same
    first.communicate("")
    assert (folder / "copy").exists()
    second.communicate("")
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("name", ["n" * 255, "\N{SNOWMAN}" * 85])
def test_a_run_whose_name_is_as_long_as_a_name_can_be(tmp_path: Path, name: str) -> None:
    runs = [tmp_path / name, tmp_path / "other" / name]
    for run in runs:
        run.mkdir(parents=True)
    with (
        shared_folder(runs[0], stated=str(tmp_path / "scratch")) as first,
        shared_folder(runs[1], stated=str(tmp_path / "scratch")) as second,
    ):
        assert first.is_dir()
        assert first != second


def test_what_a_killed_job_left_is_removed_by_the_next_start_of_any_run(tmp_path: Path) -> None:
    killed, folder = user(tmp_path / "run", tmp_path / "scratch")
    used, in_use = user(tmp_path / "used", tmp_path / "scratch")
    killed.kill()
    killed.communicate()
    assert (folder / "copy").exists()
    with shared_folder(tmp_path / "other", stated=str(tmp_path / "scratch")):
        assert not folder.exists()
        assert not folder.with_name(folder.name + USERS).exists()
        assert (in_use / "copy").exists()
    used.communicate("")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_folder_of_a_person_is_left_alone(tmp_path: Path) -> None:
    """Only folders that have a file of users beside them are a run's."""
    (tmp_path / "results").mkdir()
    with shared_folder(tmp_path / "run", stated=str(tmp_path)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_jobs_that_come_and_go_at_once_never_lose_a_copy_in_use(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def job(number: int) -> None:
        start.wait()
        for turn in range(25):
            with shared_folder(tmp_path / "run", stated=str(tmp_path / "scratch")) as folder:
                own = folder / f"{number}-{turn}"
                own.touch()
                assert own.exists()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(job, range(8))) == [None] * 8
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_default_scratch_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with shared_folder(tmp_path / "run", stated=None) as folder:
        assert folder.parent.name == f"ai500-{os.getuid()}"
    assert list(tmp_path.iterdir()) == []
