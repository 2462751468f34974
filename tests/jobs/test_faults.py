"""Faults on a cluster: no work is lost, and the result is the same bit by bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ai500.core.shell import quoted
from ai500.records.run_folder import RunFolder
from tests.support import changed_records
from tests.support.commands import processes_of, wait_for
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import (
    Results,
    Submit,
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
    workers,
)

MakeCluster = Callable[..., Cluster]


@pytest.mark.parametrize("start", ["array", pytest.param("gang", marks=pytest.mark.long)])
def test_a_killed_worker_is_started_again(
    cluster: Cluster, run_ensemble: Submit, undisturbed: Results, shared_folder: Path, start: str
) -> None:
    run = shared_folder / "run"
    command = run_ensemble(cluster, run, {"slurm.start": start, "scheduler.max_retries": 1})
    wait_for_event(command, member_log(run, 1), "epoch")
    [victim] = workers(run, 1)
    os.kill(victim, signal.SIGKILL)
    assert command.wait() == 0, command.err
    assert results(run) == undisturbed
    assert starts(run) == {0: 1, 1: 2, 2: 1}
    assert [event["state"] for event in run_events(run, "job_ended", member=1)] == [
        "failed",
        "done",
    ]
    assert run_events(run, "job_ended", member=1)[0]["exit_code"] == 128 + signal.SIGKILL
    assert [event["attempt"] for event in run_events(run, "job_submitted", member=1)] == [1, 2]
    [resumed] = run_events(run, "resumed")
    assert (resumed["member"], resumed["attempt"]) == (1, 2)
    assert (resumed["epoch"], resumed["step"]) > (0, 0)


def forget_job_id(run: Path) -> None:
    """Undo the record of the job id: the controller died before sbatch replied."""
    trial = RunFolder(run).trial(1)
    trial.jobs.unlink()
    file = trial.path / "slurm" / "001.json"
    changed_records.save(file, changed_records.load(file) | {"job": None})


@pytest.mark.long
def test_a_killed_controller_finds_its_jobs_again(
    cluster: Cluster, run_ensemble: Submit, submit: Submit, undisturbed: Results,
    shared_folder: Path,
) -> None:  # fmt: skip
    run = shared_folder / "run"
    command = run_ensemble(cluster, run)
    wait_for_event(command, member_log(run, 0), "first_batch")
    command.kill()
    submitted = {member: job["id"] for member, job in jobs(run).items()}
    command = submit(cluster, "resume", run)
    until("second controller", lambda: len(run_events(run, "run_start")) == 2)
    command.kill()
    forget_job_id(run)
    command = submit(cluster, "resume", run)
    assert command.wait() == 0, command.err
    assert results(run) == undisturbed
    assert {member: job["id"] for member, job in jobs(run).items()} == submitted
    assert starts(run) == {0: 1, 1: 1, 2: 1}
    assert len(run_events(run, "job_submitted")) == 3
    taken = [(e["member"], e["member_sequence"]) for e in run_events(run, "epoch")]
    assert len(taken) == len(set(taken)) == 3 * 5


@pytest.mark.long
def test_cancelled_members_are_missed_and_resume_brings_them(
    cluster: Cluster, run_ensemble: Submit, submit: Submit, undisturbed: Results,
    shared_folder: Path,
) -> None:  # fmt: skip
    """One runs, one still waits for its turn: two at a time is all this system allows."""
    run = shared_folder / "run"
    command = run_ensemble(cluster, run, {"system.nodes": 2})
    wait_for_event(command, member_log(run, 1), "first_batch")
    until("a waiting job", lambda: jobs(run)[2]["state"] == "pending")
    cluster.run("scancel", jobs(run)[2]["id"])
    cluster.run("scancel", jobs(run)[1]["id"])
    assert command.wait() == 1
    assert "member 1 of trial 1 was cancelled" in command.err
    assert "member 2 of trial 1 was cancelled" in command.err
    assert f"ai500 resume {quoted(run)}" in command.err
    assert [jobs(run)[member]["state"] for member in range(3)] == ["done", "cancelled", "cancelled"]
    assert [event["state"] for event in run_events(run, "job_ended", member=1)] == ["cancelled"]
    assert [event["state"] for event in run_events(run, "job_ended", member=2)] == ["cancelled"]
    score = json.loads((run / "score.json").read_text())
    assert score["complete"] is False
    assert "INCOMPLETE" in (run / "report.html").read_text(encoding="utf-8")
    command = submit(cluster, "resume", run)
    assert command.wait() == 0, command.err
    assert results(run) == undisturbed
    assert starts(run) == {0: 1, 1: 2, 2: 1}


@pytest.mark.long
def test_a_member_that_fails_each_time_is_reported(
    cluster: Cluster, run_ensemble: Submit, shared_folder: Path
) -> None:
    run = shared_folder / "run"
    spoil = '[ "$AI500_MEMBER" != 1 ] || echo spoiled >"$trial/bootstraps/001.bootstrap"'
    command = run_ensemble(cluster, run, {"slurm.setup": [spoil], "scheduler.max_retries": 1})
    assert command.wait() == 1
    assert "member 1 of trial 1 failed: its input was refused (exit code 2);" in command.err
    assert "001.bootstrap" in command.err.split("the end of")[1]
    assert [event["attempt"] for event in run_events(run, "job_submitted", member=1)] == [1, 2]
    assert [event["state"] for event in run_events(run, "job_ended", member=1)] == ["failed"] * 2
    score = json.loads((run / "score.json").read_text())
    assert score["complete"] is False
    ensemble = json.loads((run / "trials/01/ensemble.json").read_text())
    assert (ensemble["members"], ensemble["missing"]) == ([0, 2], [1])
    assert "INCOMPLETE" in (run / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "still",
    [
        pytest.param((0, 1, 2), id="all go on afterwards"),
        # Their jobs' next step waits a minute for Slurm.
        pytest.param((0,), id="two end meanwhile", marks=pytest.mark.long),
    ],
)
@pytest.mark.long
def test_a_restarted_slurm_controller_is_waited_for(
    cluster: Cluster, run_ensemble: Submit, undisturbed: Results, shared_folder: Path,
    still: tuple[int, ...],
) -> None:  # fmt: skip
    run = shared_folder / "run"
    command = run_ensemble(cluster, run)
    for member in still:
        wait_for_event(command, member_log(run, member), "first_batch")
    with halted(run, *still):
        cluster.stop_controller()
        wait_for_event(command, run / "events.jsonl", "scheduler_unreachable")
        cluster.start_controller()
        wait_for_event(command, run / "events.jsonl", "scheduler_reachable")
    assert command.wait() == 0, command.err
    assert results(run) == undisturbed
    assert starts(run) == {0: 1, 1: 1, 2: 1}
    assert len(run_events(run, "scheduler_unreachable")) == 1


@pytest.mark.long
@pytest.mark.parametrize("start", ["array", "gang"])
def test_a_power_cut_takes_a_member_to_another_node(
    cluster: Cluster, run_ensemble: Submit, undisturbed: Results, shared_folder: Path, start: str
) -> None:
    run = shared_folder / "run"
    command = run_ensemble(cluster, run, {"slurm.start": start})
    wait_for_event(command, member_log(run, 1), "epoch")
    dark = wait_for_event(command, member_log(run, 1), "start")["host"]
    cluster.kill_node(dark)
    assert command.wait(400) == 0, command.err
    assert results(run) == undisturbed
    begun = run_events(run, "start", member=1)
    assert [event["attempt"] for event in begun] == [1, 2]
    assert begun[1]["host"] != dark
    [resumed] = run_events(run, "resumed", member=1)
    assert (resumed["epoch"], resumed["step"]) > (0, 0)
    assert run_events(run, "job_requeued", member=1)
    assert len(run_events(run, "job_submitted")) == 3
    score = json.loads((run / "score.json").read_text())
    assert score["clock_uncertainty_seconds"] > 0


@pytest.mark.long
@pytest.mark.parametrize("start", ["array", "gang"])
def test_a_member_writes_a_checkpoint_before_its_time_is_up(
    cluster: Cluster, run_ensemble: Submit, undisturbed: Results, shared_folder: Path, start: str
) -> None:
    run = shared_folder / "run"
    limits = {"slurm.time_limit": "1:00:00", "slurm.checkpoint_signal_seconds": 30}
    command = run_ensemble(cluster, run, {"slurm.start": start, **limits})
    wait_for_event(command, member_log(run, 1), "epoch")
    with halted(run, 1) as [worker]:
        job = jobs(run)[1]["id"].partition("m")[0]
        end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 60))
        cluster.run("scontrol", "update", f"JobId={job}", f"EndTime={end}")
        until("SIGTERM", lambda: was_sent(worker, signal.SIGTERM))
    stopped = wait_for_event(command, member_log(run, 1), "interrupted")
    # The job's new start has the old limit again: an hour.
    assert command.wait(400) == 0, command.err
    assert results(run) == undisturbed
    [resumed] = run_events(run, "resumed", member=1)
    assert (resumed["epoch"], resumed["step"]) == (stopped["epoch"], stopped["step"])
    assert resumed["attempt"] == 2
    assert run_events(run, "job_requeued", member=1)
    assert len(run_events(run, "job_submitted")) == 3


@contextmanager
def read_only(cluster: Cluster, folder: Path) -> Iterator[None]:
    """The folder can't be written, here and on all nodes; what is open already stays open."""

    def everywhere(*command: str | Path) -> None:
        subprocess.run(command, check=True)
        for pid in node_processes(cluster):
            enter = ["nsenter", f"--target={pid}", "--mount", "--pid"]
            subprocess.run([*enter, *command], check=True)

    # A mount that somebody writes through can't be made read-only: it is made so beside.
    beside = folder.with_name("read-only")
    beside.mkdir()
    everywhere("mount", "--bind", folder, beside)
    everywhere("mount", "-o", "remount,bind,ro", beside)
    everywhere("mount", "--bind", beside, folder)
    try:
        yield
    finally:
        everywhere("umount", "--lazy", folder)
        everywhere("umount", "--lazy", beside)


def node_processes(cluster: Cluster) -> list[int]:
    """List the process ids of the nodes' slurmd."""
    pids = []
    for pid in cluster.processes():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[0] == b"slurmd":
            pids.append(pid)
    assert len(pids) == len(cluster.names)
    return pids


@pytest.mark.long
def test_a_folder_that_was_read_only_for_a_while(
    cluster: Cluster, run_ensemble: Submit, submit: Submit, undisturbed: Results,
    shared_folder: Path,
) -> None:  # fmt: skip
    run = shared_folder / "run"
    command = run_ensemble(cluster, run)
    for member in range(3):
        wait_for_event(command, member_log(run, member), "first_batch")
    with read_only(cluster, run):
        assert command.wait() == 3
        assert "the file system is read-only" in command.err
        assert command.err.count("\n") == 1
        until("end of all jobs", lambda: queue(cluster) == [])
        refused = submit(cluster, "resume", run)
        assert refused.wait() == 3
        assert "cannot write in" in refused.err
        assert refused.err.count("\n") == 1
    assert processes_of(run) == []
    for member in range(3):
        log = RunFolder(run).trial(1).member(member).log.read_text()
        assert "(EROFS): the file system is read-only" in log
    command = submit(cluster, "resume", run)
    assert command.wait() == 0, command.err
    assert results(run) == undisturbed


@pytest.mark.long
def test_with_accounting_the_end_of_each_member_is_known(
    make_cluster: MakeCluster, run_ensemble: Submit, submit: Submit, undisturbed: Results,
    shared_folder: Path,
) -> None:  # fmt: skip
    """Slurm forgets jobs at once here; a controller that comes late asks the accounting."""
    kept = make_cluster(nodes=3, accounting=True, extra_conf=["MinJobAge=2"])
    run = shared_folder / "run"
    command = run_ensemble(kept, run, {}, "--detach")
    assert command.wait() == 0, command.err
    wait_for(member_log(run, 2), "first_batch")
    kept.run("scancel", jobs(run)[2]["id"])
    until("an empty queue", lambda: kept.run("squeue", "--noheader", "--states=all") == "")
    status = submit(kept, "status", run, "--json")
    assert status.wait() == 0, status.err
    states = [member["state"] for member in json.loads(status.out)["members"]]
    assert states == ["done", "done", "cancelled"]
    command = submit(kept, "resume", run)
    assert command.wait() == 0, command.err
    assert results(run) == undisturbed
    assert starts(run) == {0: 1, 1: 1, 2: 2}
