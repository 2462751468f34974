"""The cluster of the tests is real: nodes, jobs, power cuts, a controller that comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.slurm import cluster as script
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.configuration import Settings, missing_packages
from tests.support.slurm.daemons import ClusterError

MakeCluster = Callable[..., Cluster]

IDENTITY = """\
import json, os, socket
here = socket.gethostname()
open(f"/tmp/{here}", "w").close()
open(f"/dev/shm/{here}", "w").close()
print(json.dumps({"host": here, "files": os.listdir("/tmp") + os.listdir("/dev/shm")}))
"""


def submit(cluster: Cluster, command: str, *options: str, cwd: Path) -> str:
    """The id of a new batch job."""
    job = cluster.run("sbatch", "--parsable", *options, f"--wrap={command}", cwd=cwd)
    return job.strip()


def wait_for_text(path: Path, text: str, *, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"no {text!r} in {path}"
        time.sleep(0.05)


def test_all_nodes_are_idle(cluster: Cluster) -> None:
    assert len(cluster.names) == 4
    for name in cluster.names:
        assert cluster.node_state(name) == {"IDLE"}


def test_nodes_have_their_own_host_name_and_tmp(cluster: Cluster) -> None:
    printed = cluster.run("srun", "--nodes=2", sys.executable, "-c", IDENTITY)
    nodes = [json.loads(line) for line in printed.splitlines()]
    assert sorted(node["host"] for node in nodes) == ["n1", "n2"]
    for node in nodes:
        left_by = [name for name in node["files"] if name in cluster.names]
        assert left_by == [node["host"]] * 2


def test_nodes_share_a_folder(cluster: Cluster, shared_folder: Path) -> None:
    cluster.run("srun", "--nodes=2", "sh", "-c", "touch $(hostname)", cwd=shared_folder)
    assert sorted(path.name for path in shared_folder.iterdir()) == ["n1", "n2"]


def test_only_named_folders_below_tmp_are_shared(make_cluster: MakeCluster) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as seen,
        tempfile.TemporaryDirectory(dir="/tmp") as hidden,
    ):
        small = make_cluster(nodes=1, shared=[Path(seen)])
        small.run("srun", "touch", f"{seen}/file")
        assert Path(seen, "file").exists()
        assert small.run("srun", "sh", "-c", f"[ -e {hidden} ] || echo hidden") == "hidden\n"


def test_array_runs(cluster: Cluster, shared_folder: Path) -> None:
    command = "echo $SLURM_ARRAY_TASK_ID"
    job = submit(cluster, command, "--array=0-9", "--output=%a.txt", cwd=shared_folder)
    cluster.wait_for_job(job, "COMPLETED")
    assert len(cluster.job_states(job)) == 10
    for task in range(10):
        assert (shared_folder / f"{task}.txt").read_text() == f"{task}\n"


def test_array_size_is_limited(make_cluster: MakeCluster) -> None:
    small = make_cluster(nodes=1, max_array_size=5)
    assert submit(small, "true", "--array=0-4", cwd=small.base)
    with pytest.raises(ClusterError, match="Invalid job array specification"):
        submit(small, "true", "--array=0-5", cwd=small.base)


def test_cancelled_job_can_say_goodbye(cluster: Cluster, shared_folder: Path) -> None:
    command = "trap 'echo term; exit' TERM; echo ready; while :; do sleep 0.1; done"
    job = submit(cluster, command, "--output=out.txt", cwd=shared_folder)
    output = shared_folder / "out.txt"
    wait_for_text(output, "ready")
    cluster.run("scancel", "--full", job)
    wait_for_text(output, "term")
    cluster.wait_for_job(job, "CANCELLED")


@pytest.mark.long
def test_time_limit_gives_notice(cluster: Cluster, shared_folder: Path) -> None:
    command = "trap 'echo term; exit' TERM; echo ready; while :; do sleep 0.1; done"
    job = submit(cluster, command, "--time=60", "--output=out.txt", cwd=shared_folder)
    output = shared_folder / "out.txt"
    wait_for_text(output, "ready")
    cluster.reach_time_limit(job)
    wait_for_text(output, "term", timeout=60)
    cluster.wait_for_job(job, "TIMEOUT")


def test_controller_keeps_jobs(cluster: Cluster, shared_folder: Path) -> None:
    waiting = "until [ -e go ]; do sleep 0.1; done; hostname"
    running = submit(cluster, waiting, "--output=out.txt", cwd=shared_folder)
    cluster.wait_for_job(running, "RUNNING")
    held = submit(cluster, "true", "--hold", cwd=shared_folder)
    cluster.stop_controller()
    with pytest.raises(ClusterError, match="Unable to contact slurm controller"):
        cluster.run("squeue")
    (shared_folder / "go").touch()
    wait_for_text(shared_folder / "out.txt", "n1")
    cluster.start_controller()
    cluster.wait_for_job(running, "COMPLETED")
    assert cluster.job_states(held) == ["PENDING"]


def test_heals_after_a_power_cut(cluster: Cluster, shared_folder: Path) -> None:
    job = submit(cluster, "sleep 1000", "--nodelist=n2", cwd=shared_folder)
    cluster.wait_for_job(job, "RUNNING")
    cluster.kill_node("n2")
    cluster.heal()
    assert cluster.node_state("n2") == {"IDLE"}
    assert cluster.run("srun", "--nodelist=n2", "hostname") == "n2\n"


@pytest.mark.long
def test_job_of_a_killed_node_runs_again(cluster: Cluster, shared_folder: Path) -> None:
    command = "echo $(hostname) $SLURM_RESTART_COUNT >> tries; until [ -e go ]; do sleep 0.1; done"
    options = ["--requeue", "--open-mode=append", "--nodes=1", "--exclude=n3,n4"]
    job = submit(cluster, command, *options, cwd=shared_folder)
    wait_for_text(shared_folder / "tries", "n1")
    cluster.kill_node("n1")
    cluster.wait_for_node("n1", "DOWN", timeout=90)
    wait_for_text(shared_folder / "tries", "n2 1", timeout=120)
    cluster.start_node("n1")
    cluster.wait_for_node("n1", "IDLE", timeout=90)
    (shared_folder / "go").touch()
    cluster.wait_for_job(job, "COMPLETED")


def test_fake_gpus_are_given_out(make_cluster: MakeCluster) -> None:
    gpus = make_cluster(nodes=1, gpus=2)
    show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    assert gpus.run("srun", "--gpus=2", *show) == "0,1\n"
    assert gpus.run("srun", "--gpus=1", *show) == "0\n"


def test_network_can_be_cut(make_cluster: MakeCluster) -> None:
    wired = make_cluster(nodes=2, net=True)
    ask = ["srun", "--nodes=2", "getent", "hosts", "n2"]
    assert wired.run(*ask).split() == [wired.place.addresses["n2"], "n2"] * 2
    wired.cut_network("n2")
    reach = f"echo > /dev/tcp/n2/{wired.place.ports['n2']}"
    attempt = ["srun", "--nodelist=n1", "timeout", "2", "bash", "-c", reach]
    with pytest.raises(ClusterError):
        wired.run(*attempt)
    wired.restore_network("n2")
    # The kernel may refuse with "no route" until it looks for the neighbour again.
    until = f"until {{ {reach}; }} 2>/dev/null; do sleep 0.1; done"
    wired.run("srun", "--nodelist=n1", "timeout", "30", "bash", "-c", until)


def test_accounting_knows_ended_jobs(make_cluster: MakeCluster) -> None:
    kept = make_cluster(nodes=1, accounting=True)
    job = submit(kept, "exit 3", "--output=/dev/null", cwd=kept.base)
    kept.wait_for_job(job, "FAILED")
    show = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=State,ExitCode"]
    deadline = time.monotonic() + 30
    while (row := kept.run(*show, f"--jobs={job}").strip()) != "FAILED|3:0":
        assert time.monotonic() < deadline, row
        time.sleep(0.2)


def start_by_hand(base: Path, *options: str) -> subprocess.Popen[str]:
    """`cluster.py up`, when it has printed the line to export."""
    command = [sys.executable, str(script.__file__), "up", str(base), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines[-1] == f"export SLURM_CONF={base}/slurm.conf\n"
    return process


def test_by_hand_up_and_down(slurm_folder: Path) -> None:
    base = slurm_folder / "hand"
    with start_by_hand(base, "--nodes=1") as process:
        assert "n1" in Cluster(base).run("srun", "hostname")
        subprocess.run([sys.executable, str(script.__file__), "down", str(base)], check=True)
        assert process.wait(30) == 0
    assert Cluster(base).processes() == []


def test_nothing_outlives_a_killed_supervisor(slurm_folder: Path) -> None:
    base = slurm_folder / "killed"
    with start_by_hand(base, "--nodes=2") as process:
        submit(Cluster(base), "sleep 1000", cwd=base)
        assert len(Cluster(base).processes()) > 3
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while left := Cluster(base).processes():
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_unsuitable_folders_are_refused() -> None:
    with pytest.raises(ClusterError, match="longer than 60 bytes"):
        Cluster(Path("/var/tmp") / ("x" * 80))
    with pytest.raises(ClusterError, match="letters, digits"):
        Cluster(Path("/var/tmp/a b"))


def test_missing_packages_are_named() -> None:
    missing = missing_packages(Settings(accounting=True), "/nonexistent")
    assert {"slurmctld", "slurmd", "slurm-client", "munge", "slurmdbd"} <= set(missing)
    assert missing_packages(Settings(accounting=True), "/usr/bin:/usr/sbin:/bin:/sbin") == []
