"""The recipe of docs/slurm.md: an installation in one squashfs file on the shared file system."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ai500.core.source import PACKAGE
from ai500.records import Score, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import Submit, member_log, wait_for_event
from tests.support.slurm.scripted import written

RECIPE = Path(__file__).parents[2] / "packaging" / "squashfs" / "python"
INTERPRETER = """#!/bin/sh
# In place of a virtual environment of 2 GB: the tests' own, with ai500 from the image.
grep " {install} fuse.squashfuse " /proc/self/mounts >>{seen} || exit 9
PYTHONPATH={install}/src exec {python} "$@"
"""


def packed(folder: Path) -> Path:
    """Pack a small installation; return the interpreter for slurm.python."""
    install = folder / "install"
    (install / "bin").mkdir(parents=True)
    shutil.copytree(PACKAGE, install / "src" / "ai500", ignore=shutil.ignore_patterns("*.pyc"))
    python = install / "bin" / "python"
    python.write_text(
        INTERPRETER.format(
            install=install, seen=folder / "seen", python=shlex.quote(sys.executable)
        )
    )
    python.chmod(0o755)
    image = folder / "ai500.squashfs"
    subprocess.run(["mksquashfs", install, image, "-quiet", "-no-progress"], check=True)
    shutil.rmtree(install)
    install.mkdir()
    return Path(shutil.copy(RECIPE, folder / "python"))


def daemons(folder: Path) -> list[str]:
    """List the processes that hold the image."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "squashfuse" in words[0] and str(folder) in " ".join(words):
            found.append(entry.parent.name)
    return found


def test_the_image_is_seen_by_its_process_only_and_ends_with_it(slurm_folder: Path) -> None:
    folder = slurm_folder / "image"
    folder.mkdir()
    python = packed(folder)
    code = "import ai500, sys; print(ai500.__file__); sys.exit(7)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.strip() == f"{folder}/install/src/ai500/__init__.py"
    assert list((folder / "install").iterdir()) == []
    deadline = time.monotonic() + 10
    while daemons(folder):
        assert time.monotonic() < deadline, "squashfuse outlives its interpreter"
        time.sleep(0.05)


@pytest.mark.long
def test_members_start_from_the_image_and_survive_the_signals_of_a_cancel(
    cluster: Cluster, submit: Submit, slurm_folder: Path, shared_folder: Path
) -> None:
    folder = slurm_folder / "packed"
    folder.mkdir()
    settings = ["system.nodes=2", "ensemble.size=2", "parallel.degree=1",
                f'slurm.python="{packed(folder)}"']  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    run, config = shared_folder / "run", written(shared_folder)
    command = submit(cluster, "run", "--config", config, "--out", run, *words, EPOCH_SECONDS="90")
    for member in (0, 1):
        wait_for_event(command, member_log(run, member), "first_batch")
    assert len(daemons(folder)) == 2, "one for each member"
    cancel = submit(cluster, "cancel", run)
    assert cancel.wait(300) == 0, cancel.err
    assert command.wait(300) == 130
    wait_for_event(cancel, member_log(run, 0), "interrupted", timeout=5)
    again = submit(cluster, "resume", run, EPOCH_SECONDS="0.1")
    assert again.wait(600) == 0, again.err
    assert run_folder.read(Score, RunFolder(run).score).complete
    assert len((folder / "seen").read_text().splitlines()) >= 4
    assert daemons(folder) == []
