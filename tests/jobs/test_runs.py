"""Whole runs on a real Slurm: array, gang, plan, and a person who leaves and comes back."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ai500.core.shell import quoted
from ai500.records import run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import wait_for
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import (
    ON_SLURM,
    Results,
    Submit,
    arguments,
    halted,
    jobs,
    member_log,
    queue,
    results,
    run_events,
    starts,
    until,
    wait_for_event,
    was_sent,
)

MakeCluster = Callable[..., Cluster]

MOST_FILES = 12  # of a member that has ended
HOSTILE = "a run; 'of' \"ours\" – ünïcode $HOME `%j` \\ #1"


@pytest.mark.long
def test_an_array_in_a_folder_with_a_hostile_name(
    cluster: Cluster, run_ensemble: Submit, undisturbed: Results, shared_folder: Path
) -> None:
    run = shared_folder / HOSTILE
    command = run_ensemble(cluster, run)
    assert command.wait() == 0, command.err
    assert results(run) == undisturbed
    assert {event["host"] for event in run_events(run, "start")} <= set(cluster.names)
    assert starts(run) == {0: 1, 1: 1, 2: 1}
    for kind in ("job_submitted", "job_started", "job_ended"):
        assert sorted(event["member"] for event in run_events(run, kind)) == [0, 1, 2]

    # Data went to each node's own /tmp, once for each job, and is gone.
    placed = run_folder.read_json(run / "trials/01/placement.json")
    assert sorted(copy["node"] for copy in placed) == ["n1", "n2", "n3"]
    for copy in placed:
        assert copy["bytes"] > 128 * 32 * 32 * 3  # at least the validation split
        on_node = cluster.base / "tmp" / copy["node"] / Path(copy["folder"]).relative_to("/tmp")
        assert on_node.parent.name.startswith(run.name)
        assert not on_node.parent.exists()

    # On a node of its own a member is described, metered and has its data placed there alone.
    for member in range(3):
        folder = RunFolder(run).trial(1).member(member).path
        others = [*(run / "trials/01").glob(f"*/*-{member:03d}.*")]
        others += (run / "trials/01/bootstraps").glob(f"{member:03d}.*")
        assert len([*folder.rglob("*"), *others]) <= MOST_FILES

    # Before and after training each node's clock was compared with the controller's.
    clocks = run_events(run, "clock")
    assert sorted(event["member"] for event in clocks) == [0, 0, 1, 1, 2, 2]
    for event in clocks:  # the nodes are one machine
        assert abs(event["offset_seconds"]) <= event["uncertainty_seconds"] + 0.01
    score = json.loads((run / "score.json").read_text())
    assert score["clock"] == "wall"
    assert score["clock_offset_seconds"] == max(abs(e["offset_seconds"]) for e in clocks)
    assert 0 < score["clock_uncertainty_seconds"] < 1
    assert str((run / "report.html").resolve()) in command.out
    assert "INCOMPLETE" not in (run / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "compared",
    [
        pytest.param(False, id="starts together"),
        # The undisturbed run takes as long again.
        pytest.param(True, id="same results", marks=pytest.mark.long),
    ],
)
def test_a_gang_of_members_that_span_nodes(
    cluster: Cluster,
    run_ensemble: Submit,
    shared_folder: Path,
    request: pytest.FixtureRequest,
    compared: bool,
) -> None:
    run = shared_folder / "gang; of 'two'"
    pairs = {"ensemble.size": 2, "parallel.degree": 2, "system.nodes": 4, "slurm.start": "gang"}
    command = run_ensemble(cluster, run, pairs)
    assert command.wait() == 0, command.err
    if compared:
        assert results(run) == request.getfixturevalue("undisturbed_pairs")
    assert [event["missing"] for event in run_events(run, "barrier")] == [0, 0]
    score = json.loads((run / "score.json").read_text())
    assert score["start_skew_seconds"] < 2
    assert score["clock_uncertainty_seconds"] > 0
    # Each member has a copy on each of its nodes.
    placed = run_folder.read_json(run / "trials/01/placement.json")
    assert sorted(copy["node"] for copy in placed) == ["n1", "n2", "n3", "n4"]
    # All steps, the barrier's too, have ended by themselves.
    exits = (run / "trials/01/slurm/001.exits").read_text()
    assert sorted(exits.splitlines()) == ["0 0", "1 0"]
    log = (run / "trials/01/slurm/001.log").read_text()
    assert "error" not in log.lower()
    job = jobs(run)[0]["id"].partition("m")[0]
    cluster.wait_for_job(job, "COMPLETED")
    assert cluster.run("squeue", "--noheader", "--steps", f"--jobs={job}") == ""


@pytest.mark.long
def test_an_array_larger_than_the_site_allows_is_split(
    make_cluster: MakeCluster, run_ensemble: Submit, undisturbed: Results, shared_folder: Path
) -> None:
    small = make_cluster(nodes=2, max_array_size=2)
    run = shared_folder / "run"
    command = run_ensemble(small, run, {"system.nodes": 2, "slurm.exclusive": False})
    assert command.wait() == 0, command.err
    assert results(run) == undisturbed
    assert [jobs(run)[member]["id"].partition("_")[2] for member in range(3)] == ["0", "1", "0"]
    assert len({jobs(run)[member]["id"].partition("_")[0] for member in range(3)}) == 2


def is_bash(script: str) -> bool:
    return subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0


def test_plan_shows_cluster_and_scripts(
    cluster: Cluster, submit: Submit, shared_store: Path
) -> None:
    command = submit(cluster, "plan", "--scheduler", "slurm", "--set", "system.cores_per_slot=1")
    assert command.wait() == 0, command.err
    shown = " ".join(command.out.split())
    assert "partition batch: 4 nodes of 2 CPUs and 0 accelerators" in shown
    assert "2 CPU slots of 8" in shown
    assert "#SBATCH --array=0-" in shown

    pairs = {"ensemble.size": 2, "parallel.degree": 2, "system.nodes": 4, "slurm.start": "gang"}
    site = {"slurm.partition": "batch", "slurm.time_limit": "1:00:00", "slurm.setup": ["module x"]}
    chosen = arguments(shared_store, ON_SLURM | pairs | site)
    command = submit(cluster, "plan", *chosen, "--json")
    assert command.wait() == 0, command.err
    plan = json.loads(command.out)
    assert (plan["system_scale"], plan["cluster"]["nodes"]) == (4, cluster.names)
    [script] = plan["scripts"].values()
    lines = script.splitlines()
    for option in ("--nodes=4", "--partition=batch", "--time=1:00:00", "--exclusive"):
        assert f"#SBATCH {option}" in lines
    assert lines.index("module x") < next(i for i, line in enumerate(lines) if "srun" in line)
    assert is_bash(script)
    assert not is_bash(script + "(")


def test_plan_finds_the_accelerators(
    make_cluster: MakeCluster, submit: Submit, shared_store: Path
) -> None:
    gpus = make_cluster(nodes=2, cpus=4, gpus=2)
    for start, of_job, of_step in (
        ("array", "1", "--gpus-per-task=1"),
        ("gang", "2", "--gpus-per-task=2"),  # a task is a node's agent, which divides them
    ):
        command = submit(
            gpus, "plan", "--scheduler", "slurm", "--data", shared_store, "--json",
            "--set", "parallel.degree=1", "--set", f"slurm.start={start}",
        )  # fmt: skip
        assert command.wait() == 0, command.err
        plan = json.loads(command.out)
        assert (plan["device"], plan["system_scale"], plan["ensemble_size"]) == ("cuda", 4, 4)
        assert plan["cluster"]["accelerators_per_node"] == 2
        [script] = plan["scripts"].values()
        assert f"#SBATCH --gpus-per-node={of_job}" in script.splitlines()
        assert of_step in script
        assert is_bash(script)


@pytest.mark.parametrize(
    ("settings", "environment", "code", "names"),
    [
        (["slurm.partition=bach"], {}, 2, "slurm.partition = 'bach'"),
        (["system.nodes=9"], {}, 2, "system.nodes = 9"),
        (["system.device=cuda"], {}, 2, "device 'cuda'"),
        (["container.image=x"], {}, 2, "container.image = 'x'"),
        (["slurm.time_limit=2h"], {}, 2, "slurm.time_limit = '2h'"),
        (["slurm.constraint=h100"], {}, 3, "slurm.constraint = 'h100'"),
        ([], {"SLURM_CONF": "/nowhere/slurm.conf"}, 3, "/nowhere/slurm.conf"),
        ([], {"PATH": "only prlimit"}, 3, "scontrol"),
    ],
    ids=[
        "partition",
        "nodes",
        "device",
        "image",
        "time",
        "constraint",
        "no configuration",
        "no Slurm",
    ],
)
def test_a_setting_that_the_cluster_cannot_satisfy_is_one_line(
    cluster: Cluster,
    submit: Submit,
    shared_folder: Path,
    settings: list[str],
    environment: dict[str, str],
    code: int,
    names: str,
) -> None:
    if "PATH" in environment:
        (shared_folder / "prlimit").symlink_to(str(shutil.which("prlimit")))
        environment = {"PATH": str(shared_folder)}
    words = [word for setting in settings for word in ("--set", setting)]
    run = shared_folder / "run"
    command = submit(cluster, "run", "--scheduler", "slurm", "--out", run, *words, **environment)
    assert command.wait() == code
    assert command.err.startswith("error: ")
    assert command.err.count("\n") == 1, command.err
    assert names in command.err
    assert not run.exists()


@pytest.mark.long
def test_hangup_leaves_the_jobs_and_cancel_ends_them(
    cluster: Cluster, run_ensemble: Submit, submit: Submit, undisturbed: Results,
    shared_folder: Path,
) -> None:  # fmt: skip
    run = shared_folder / "run"
    command = run_ensemble(cluster, run)
    for member in range(3):
        wait_for_event(command, member_log(run, member), "first_batch")
    with halted(run, 0, 1, 2) as ranks:  # or they might have ended before the cancel comes
        command.process.send_signal(signal.SIGHUP)
        assert command.wait() == 0, command.err
        assert f"ai500 resume {quoted(run)}" in command.err
        assert len(queue(cluster)) == 3
        command = submit(cluster, "cancel", run)
        until("SIGTERM", lambda: all(was_sent(rank, signal.SIGTERM) for rank in ranks))
    assert command.wait() == 0, command.err
    assert "cancelled" in command.out
    assert queue(cluster) == []
    assert [event["reason"] for event in run_events(run, "controller_detached")] == ["Disconnected"]
    assert wait_for(member_log(run, 0), "interrupted", timeout=1)["attempt"] == 1
    status = submit(cluster, "status", run, "--json")
    assert status.wait() == 0, status.err
    shown = json.loads(status.out)
    assert shown["state"] == "stopped"
    assert [member["state"] for member in shown["members"]] == ["cancelled"] * 3
    command = submit(cluster, "resume", run)
    assert command.wait() == 0, command.err
    assert results(run) == undisturbed
    assert run_events(run, "resumed", member=0)


def test_a_run_folder_that_the_nodes_do_not_see(cluster: Cluster, run_ensemble: Submit) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # each node has a /tmp of its own
        command = run_ensemble(cluster, Path(folder) / "run")
        assert command.wait() == 1
    assert "its node does not see the run folder" in command.err


def test_status_shows_why_members_wait(
    cluster: Cluster, run_ensemble: Submit, submit: Submit, shared_folder: Path
) -> None:
    run = shared_folder / "run"
    busy = ("--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 300")
    cluster.run("sbatch", *busy)
    command = run_ensemble(cluster, run)
    wait_for_event(command, run / "events.jsonl", "job_submitted")
    status = submit(cluster, "status", run)
    assert status.wait() == 0, status.err
    assert "running (process" in status.out
    assert re.search(r"0 of 3 members done; waiting for: \w+", status.out)
    command.interrupt()
    assert command.wait() == 130, command.err
    assert len(queue(cluster)) == 1


def test_detach_status_resume_and_control_c(
    cluster: Cluster, run_ensemble: Submit, submit: Submit, undisturbed: Results,
    shared_folder: Path,
) -> None:  # fmt: skip
    run = shared_folder / "run"
    command = run_ensemble(cluster, run, {}, "--detach")
    assert command.wait() == 0, command.err
    assert f"ai500 resume {quoted(run)}" in command.err
    status = submit(cluster, "status", run, "--json")
    assert status.wait() == 0, status.err
    shown = json.loads(status.out)
    assert (shown["state"], shown["controller"]) == ("detached", None)
    assert {member["state"] for member in shown["members"]} <= {"pending", "running"}
    submitted = jobs(run)
    command = submit(cluster, "resume", run)
    wait_for_event(command, run / "events.jsonl", "first_batch")
    command.interrupt()
    assert command.wait() == 130
    assert f"ai500 resume {quoted(run)}" in command.err
    assert queue(cluster) == []
    assert {member: job["id"] for member, job in jobs(run).items()} == {
        member: job["id"] for member, job in submitted.items()
    }
    assert run_events(run, "run_cancelled")
    command = submit(cluster, "resume", run)
    assert command.wait() == 0, command.err
    assert results(run) == undisturbed
    assert RunFolder(run).owner() is None
