"""Containers for real: Podman's launcher with an image made on the spot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ai500.jobs.launchers import Container, podman
from ai500.records import Score, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import Start, wait_for
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.image import Image, image
from tests.support.slurm.running import Results, Submit, arguments, results
from tests.support.slurm.scripted import written

__all__ = ["image"]

HOSTILE = "a \"b\" 'c'; $HOME `d` \\ e=f,g^ ü–雪 \n&*"
READY = "print('ready', flush=True)\n"


@pytest.fixture
def container(image: Image, tmp_path: Path) -> Container:
    """A container in which a folder with a hostile name is mounted and stood in."""
    folder = tmp_path / HOSTILE
    folder.mkdir()
    return Container(
        image=image.name,
        mounts=(str(folder), *image.mounts),
        accelerators=False,
        environment=("GREETING", "PYTHONPATH"),
        working_directory=str(folder),
        flags=image.flags,
        runtime=image.runtime,
    )


def run(
    container: Container, *command: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command in the container, to its end."""
    return subprocess.run(
        podman(container)(command),
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


Begin = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def begin(container: Container, image: Image) -> Iterator[Begin]:
    """Starts Python code in a container and comes back once it says that it is ready."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            podman(container)(["python3", "-c", code]), stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # A signal before podman has recorded the start got lost in one run of three.
        _until(image.running)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_what_a_container_sees(container: Container, tmp_path: Path) -> None:
    code = (
        "import json, os, socket, sys\n"
        "open('written', 'w').write(sys.argv[1])\n"
        "seen = {name: os.environ.get(name) for name in ('GREETING', 'SECRET')}\n"
        "seen |= {'cwd': os.getcwd(), 'host': socket.gethostname(), 'prefix': sys.prefix}\n"
        "print(json.dumps(seen))"
    )
    ended = run(container, "python3", "-c", code, HOSTILE, GREETING=HOSTILE, SECRET="not handed on")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "GREETING": HOSTILE,
        "SECRET": None,
        "cwd": container.working_directory,
        "host": os.uname().nodename,
        "prefix": sys.base_prefix,
    }
    written = tmp_path / HOSTILE / "written"
    assert written.read_text(encoding="utf-8") == HOSTILE
    assert (written.stat().st_uid, written.stat().st_gid) == (os.geteuid(), os.getegid())


def test_a_read_only_mount(container: Container, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    mount = f"{tmp_path / 'site'}:/from the site:ro"
    closed = replace(container, mounts=(*container.mounts, mount))
    code = "open('/from the site/new', 'w')"
    assert "Read-only file system" in run(closed, "python3", "-c", code).stderr
    assert not list((tmp_path / "site").iterdir())


def test_torch_from_the_mounted_environment(container: Container) -> None:
    ended = run(container, sys.executable, "-c", "import torch; print(torch.ones(3).sum().item())")
    assert ended.stdout == "3.0\n", ended.stderr


def test_the_exit_code_passes_through(container: Container, image: Image) -> None:
    assert run(container, "python3", "-c", "raise SystemExit(42)").returncode == 42
    assert run(container, "no-such-program").returncode == 127
    _until(lambda: not image.containers())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_the_process(begin: Begin, number: signal.Signals) -> None:
    process = begin(
        "import signal, sys, time\n"
        f"signal.signal({number}, lambda *_: sys.exit(7))\n{READY}"
        # Not signal.pause(): it would wait for another signal if this one came just before it.
        "while True: time.sleep(0.05)"
    )
    process.send_signal(number)
    assert process.wait(60) == 7


def test_a_process_that_knows_no_signals_ends_too(begin: Begin) -> None:
    process = begin(f"import time\n{READY}time.sleep(300)")
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM


def test_a_container_dies_with_its_launcher(begin: Begin, image: Image, tmp_path: Path) -> None:
    pulse = tmp_path / HOSTILE / "pulse"
    process = begin(
        "import subprocess, sys, time\n"
        # A child of the command dies with it, as a worker with its agent.
        'code = \'import time\\nwhile open("pulse", "a").write("x"): time.sleep(0.05)\'\n'
        f"subprocess.Popen([sys.executable, '-c', code])\n{READY}time.sleep(300)"
    )
    _until(pulse.exists)
    process.kill()
    _until(lambda: not image.containers())
    beats = pulse.stat().st_size
    time.sleep(0.3)
    assert pulse.stat().st_size == beats


def _until(true: Callable[[], object], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def in_containers(image: Image) -> dict[str, object]:
    """The settings that make jobs run in the image."""
    return {
        "scheduler.launcher": "podman",
        "container.image": image.name,
        "container.python": image.python,
        "container.runtime": image.runtime,
        "container.flags": image.flags,
        "container.mounts": image.mounts,
        "container.environment": ["PYTHONPATH"],
    }


@pytest.mark.long
def test_slurm_schedules_containers(
    image: Image, cluster: Cluster, run_ensemble: Submit, undisturbed: Results, shared_folder: Path
) -> None:
    run = shared_folder / "run; in 'containers'"
    scratch = {"data.scratch": "/tmp"}  # each node's own
    command = run_ensemble(cluster, run, in_containers(image) | scratch)
    assert command.wait(500) == 0, command.err
    assert results(run) == undisturbed
    assert "podman" in (run / "trials/01/slurm/001.sh").read_text()
    _until(lambda: not image.containers())


@pytest.mark.long
def test_two_ranks_of_a_member_meet_in_containers_of_two_nodes(
    image: Image, cluster: Cluster, submit: Submit, shared_folder: Path
) -> None:
    """The ranks are scripts that connect to each other by the addresses in their tasks."""
    run, config = shared_folder / "run", written(shared_folder)
    settings = in_containers(image) | {
        "data.scratch": "/tmp", "system.nodes": 4, "ensemble.size": 2, "parallel.degree": 2,
    }  # fmt: skip
    words = [w for key, v in settings.items() for w in ("--set", f"{key}={json.dumps(v)}")]
    command = submit(cluster, "run", "--config", config, "--out", run, *words)
    assert command.wait(590) == 0, command.err
    trial = RunFolder(run).trial(1)
    assert run_folder.read(Score, RunFolder(run).score).complete
    assert [len(nodes) for nodes in trial.hosts_of_members().values()] == [2, 2]
    for member in (0, 1):
        assert run_folder.read(TrainRecord, trial.member(member).record).world_size == 2
    assert "podman" in (trial.path / "slurm" / "001.sh").read_text()
    _until(lambda: not image.containers())


@pytest.mark.long
def test_an_ensemble_trains_in_containers(
    image: Image, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "a run; in 'containers'"
    settings: dict[str, object] = {
        "train.epochs": 3,
        "ensemble.size": 2,
        "parallel.degree": 1,
        "system.accelerators_per_node": 2,
        "system.cores_per_slot": 1,
        **in_containers(image),
    }
    command = start("run", "--out", folder, *arguments(tiny_store, settings))
    log = RunFolder(folder).trial(1).member(0).events
    wait_for(log, "first_batch", timeout=240)
    command.interrupt()
    assert command.wait() == 130, command.err
    # The worker was asked inside its container, and wrote a checkpoint.
    stopped = wait_for(log, "interrupted", timeout=1)
    _until(lambda: not image.containers())
    command = start("resume", folder)
    assert command.wait(400) == 0, command.err
    went_on = wait_for(log, "resumed", timeout=1)
    assert (went_on["epoch"], went_on["step"]) == (stopped["epoch"], stopped["step"])
    _until(lambda: not image.containers())
