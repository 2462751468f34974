"""Suspended jobs, drained and rebooted nodes, odd clocks, stale file systems, meters of a site.

The members are scripts that sleep (`tests/support/slurm/scripted.py`); all else is real.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ai500.meters.log import read_meters, series
from ai500.metrics.energy import counter_increase
from ai500.records import Plan, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import Submit, member_log, run_events, until, wait_for_event
from tests.support.slurm.scripted import attempts, findings, score_of, started

pytestmark = pytest.mark.long

MakeCluster = Callable[..., Cluster]
# Python imports it at its start. (libfaketime makes its sleeps fail.)
WRONG_CLOCK = """
import time
true = time.time
time.time = lambda: true() + {seconds}
"""


def test_a_drained_node_finishes_its_member_and_gets_no_other(
    cluster: Cluster, submit: Submit, shared_folder: Path
) -> None:
    run, command = started(
        submit, cluster, shared_folder, "system.nodes=2", "ensemble.size=4", "parallel.degree=1"
    )
    first = wait_for_event(command, member_log(run, 0), "first_batch")
    node = first["host"]
    cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=disk")
    try:
        assert command.wait(600) == 0, command.err
        hosts = {e["member"]: e["host"] for e in run_events(run, "first_batch")}
        assert hosts[0] == node
        assert [m for m, host in hosts.items() if host == node] == [0]
        assert attempts(run) == {1}
        assert score_of(run).complete
    finally:
        cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")


def test_a_node_that_reboots_on_request_takes_members_again(
    make_cluster: MakeCluster, submit: Submit, slurm_folder: Path, shared_folder: Path
) -> None:
    """`scontrol reboot ASAP` waits for the member; members wait for the node."""
    rebooting = slurm_folder / "rebooting"
    program = slurm_folder / "reboot.sh"
    program.write_text(f"#!/bin/sh\ntouch {rebooting}\n")
    program.chmod(0o755)
    cluster = make_cluster(
        nodes=1,
        extra_conf=[f"RebootProgram={program}", "ResumeTimeout=300"],
        node_setup='SLURMD_OPTIONS="$(cat "$private/options" 2>/dev/null || true)"\n',
    )
    run, command = started(
        submit, cluster, shared_folder, "system.nodes=1", "ensemble.size=2", "parallel.degree=1"
    )
    wait_for_event(command, member_log(run, 0), "first_batch")
    cluster.run("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=kernel", "n1")
    until("reboot", rebooting.exists, timeout=300)
    assert [e["member"] for e in run_events(run, "first_batch")] == [0]
    assert command.process.poll() is None, "the second member waits"
    cluster.kill_node("n1")
    (cluster.base / "tmp" / "n1" / "options").write_text("-b")  # slurmd reports a boot
    cluster.start_node("n1")
    assert command.wait(600) == 0, command.err
    assert score_of(run).complete
    assert attempts(run) == {1}
    assert not {"REBOOT", "REBOOT_ISSUED", "DOWN"} & cluster.node_state("n1")


def test_a_member_that_a_better_job_suspends_goes_on(
    make_cluster: MakeCluster, submit: Submit, slurm_folder: Path, shared_folder: Path
) -> None:
    """PreemptMode=SUSPEND: it is shown as suspended, and neither repeated nor failed."""
    cluster = make_cluster(
        nodes=2,
        extra_conf=[
            "PreemptType=preempt/partition_prio", "PreemptMode=SUSPEND,GANG",
            "SchedulerTimeSlice=5", "PartitionName=better Nodes=ALL PriorityTier=10 State=UP",
        ],
    )  # fmt: skip
    run, command = started(
        submit, cluster, shared_folder, "system.nodes=2", "ensemble.size=2", "parallel.degree=1",
        "slurm.exclusive=false", "slurm.partition=batch", epoch_seconds=3,
    )  # fmt: skip
    for member in (0, 1):
        wait_for_event(command, member_log(run, member), "first_batch")
    cluster.run("sbatch", "--partition=better", "--nodes=2", "--ntasks-per-node=2",
                "--output=/dev/null",
                f"--wrap=until [ -e {slurm_folder}/enough ]; do sleep 0.2; done")  # fmt: skip
    until("suspension", lambda: len(run_events(run, "job_suspended")) == 2)
    shown = submit(cluster, "status", run)
    assert shown.wait(120) == 0
    assert "suspended" in shown.out
    (slurm_folder / "enough").touch()
    assert command.wait(600) == 0, command.err
    assert {e["member"] for e in run_events(run, "job_continued")} == {0, 1}
    assert attempts(run) == {1}
    assert score_of(run).complete
    begins = max(e["wall"] for e in run_events(run, "job_suspended"))
    ends = min(e["wall"] for e in run_events(run, "job_continued"))
    assert score_of(run).trials[0].seconds > ends - begins > 0  # the window contains it


@pytest.mark.parametrize("minutes", [5, -5])
def test_a_clock_that_is_minutes_off_spoils_no_score(
    cluster: Cluster, submit: Submit, shared_folder: Path, minutes: int
) -> None:
    folder = shared_folder / "clock"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WRONG_CLOCK.format(seconds=60 * minutes))
    wrong = f'[ "$SLURMD_NODENAME" != n2 ] || export PYTHONPATH="{folder}:$PYTHONPATH"'
    run, command = started(
        submit, cluster, shared_folder, "system.nodes=3", "ensemble.size=3", "parallel.degree=1",
        f"slurm.setup={json.dumps([wrong])}",
    )  # fmt: skip
    assert command.wait(600) == 0, command.err
    offsets = {e["host"]: e["offset_seconds"] for e in run_events(run, "clock")}
    assert abs(abs(offsets["n2"]) - 60 * abs(minutes)) < 5, offsets
    assert all(abs(offset) < 5 for host, offset in offsets.items() if host != "n2")
    score = score_of(run).trials[0]
    ends = [e["monotonic"] for e in run_events(run, "end")]
    starts = [e["monotonic"] for e in run_events(run, "first_batch")]  # one kernel, one clock
    assert score.seconds == pytest.approx(max(ends) - min(starts), abs=1)
    assert score.start_skew_seconds == pytest.approx(max(starts) - min(starts), abs=1)
    assert score.clock_uncertainty_seconds is not None
    rules = findings(submit, cluster, run)
    assert not {"clocks agree", "clocks compared", "steady clocks", "window as controlled",
                "window in order"} & rules.keys(), rules  # fmt: skip


STALE_SECONDS = 5
STALE = (
    f"bindfs -o attr_timeout={STALE_SECONDS},entry_timeout={STALE_SECONDS},"
    f"negative_timeout={STALE_SECONDS} --enable-lock-forwarding --multithreaded"
)


@contextmanager
def mounted(words: list[str], folder: Path) -> Iterator[None]:
    subprocess.run(words, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def test_a_run_folder_with_stale_attributes(
    make_cluster: MakeCluster, submit: Submit, slurm_folder: Path, shared_folder: Path
) -> None:
    """Each node sees files, sizes and missing names as they were up to five seconds ago.

    Each mounts the folder by a FUSE layer of its own, whose attributes and names the kernel caches;
    data are read anew when a file is opened, as on NFS (close-to-open).
    """
    behind, front = slurm_folder / "behind", slurm_folder / "front"
    for folder in (behind, front):
        folder.mkdir()
    setup = f"umount --lazy {front}\n{STALE} {behind} {front}\n"
    with mounted([*STALE.split(), str(behind), str(front)], front):
        cluster = make_cluster(nodes=4, node_setup=setup)
        stale = front / "probe"
        assert "No such file" in cluster.run(
            "srun", "--nodelist=n1", "sh", "-c",
            f"cat {stale} 2>&1; echo here >{behind}/probe; cat {stale} 2>&1; true",
        ).splitlines()[-1]  # fmt: skip
        run, command = started(
            submit, cluster, shared_folder, "system.nodes=4", "ensemble.size=2",
            "parallel.degree=2", run=front / "run", epoch_seconds=6,
        )  # fmt: skip
        wait_for_event(command, member_log(behind / "run", 1), "epoch")
        cancel = submit(cluster, "cancel", run)
        assert cancel.wait(300) == 0, cancel.err
        assert command.wait(300) == 130
        again = submit(cluster, "resume", run, EPOCH_SECONDS="1")
        assert again.wait(600) == 0, again.err
        assert score_of(run).complete
        assert {e["member"] for e in run_events(run, "end")} == {0, 1}
        status = submit(cluster, "status", run)
        assert status.wait(120) == 0
        assert "2 of 2 members done" in status.out


WATTS = {"n1": 100.0, "n2": 200.0, "n3": 300.0}
METERED = """
# A boot of its own, and a RAPL counter of so many watts in place of this kernel's.
cat /proc/sys/kernel/random/uuid >"$private/boot_id"
mount --bind "$private/boot_id" /proc/sys/kernel/random/boot_id
zone="$private/class/powercap/intel-rapl:0"
mkdir -p "$zone"
echo package-0 >"$zone/name"
echo 0 >"$zone/energy_uj"
echo 262143328850000 >"$zone/max_energy_range_uj"
mount --bind "$private/class" /sys/class
/usr/bin/python3 - "$zone/energy_uj" "${name#n}" <<'END' &
import os, sys, time
while True:
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(int(1e8 * int(sys.argv[2]) * time.monotonic())))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(0.05)
END
"""


def test_energy_and_systems_of_an_array_on_several_nodes(
    make_cluster: MakeCluster, submit: Submit, shared_folder: Path
) -> None:
    cluster = make_cluster(nodes=3, node_setup=METERED)
    run, command = started(
        submit, cluster, shared_folder, "system.nodes=3", "ensemble.size=3", "parallel.degree=1",
        "run.meter_seconds=0.5", epoch_seconds=20,
    )  # fmt: skip
    assert command.wait(900) == 0, command.err
    trial = RunFolder(run).trial(1)
    assert {host for hosts in trial.hosts_of_members().values() for host in hosts} == set(WATTS)
    logs = {log.name: log for log in read_meters(trial.meters)}
    assert logs.keys() == WATTS.keys()

    for name, log in logs.items():
        columns = series(log, lambda sample: float(sample["monotonic"]))
        (points,) = [v for c, v in columns.items() if c.quantity == "energy_joules"]
        first, last = points[0][0], points[-1][0]
        joules, covered = counter_increase(points, first, last, wraps_at=262143.0)
        assert joules / covered == pytest.approx(WATTS[name], rel=0.05)
    score = score_of(run).trials[0]
    assert score.power_coverage == "processors"
    assert score.watts == pytest.approx(sum(WATTS.values()), rel=0.05)
    assert score.energy_joules == pytest.approx(score.watts * score.seconds, rel=0.01)


def cores(run: Path, member: int) -> list[int]:
    (file,) = RunFolder(run).trial(1).member(member).path.rglob("cores")
    values: list[int] = json.loads(file.read_text())
    return values


def test_cgroups_bind_members_of_a_node_to_different_cores(
    make_cluster: MakeCluster, submit: Submit, shared_folder: Path
) -> None:
    cluster = make_cluster(
        nodes=1,
        extra_conf=["TaskPlugin=task/cgroup,task/affinity", "ProctrackType=proctrack/cgroup"],
        cgroup_conf="ConstrainCores=yes\nCgroupAutomount=no\n",
    )
    run, command = started(
        submit, cluster, shared_folder, "system.nodes=1", "ensemble.size=2", "parallel.degree=1",
        "system.accelerators_per_node=2", "slurm.exclusive=false", epoch_seconds=4,
    )  # fmt: skip
    assert command.wait(600) == 0, command.err
    assert sorted([cores(run, 0), cores(run, 1)]) == [[0], [1]]
    assert score_of(run).complete


def test_nodes_with_two_threads_per_core(
    make_cluster: MakeCluster, submit: Submit, shared_folder: Path
) -> None:
    """Slots are whole cores: the plan's members run at once, and none takes another's core."""
    cluster = make_cluster(
        nodes=2,
        cpus=4,
        topology="Sockets=1 CoresPerSocket=2 ThreadsPerCore=2",
        extra_conf=["SelectTypeParameters=CR_Core_Memory"],
    )
    run, command = started(
        submit, cluster, shared_folder, "system.nodes=2", "ensemble.size=4", "parallel.degree=1",
        "system.accelerators_per_node=2", "system.cores_per_slot=2", "slurm.exclusive=false",
        epoch_seconds=5,
    )  # fmt: skip
    assert command.wait(600) == 0, command.err
    plan: Any = run_folder.read(Plan, RunFolder(run).plan)
    assert (plan.cluster.cpus_per_node, plan.cluster.threads_per_core, plan.waves) == (4, 2, 1)
    begins = [e["monotonic"] for e in run_events(run, "first_batch")]
    ends = [e["monotonic"] for e in run_events(run, "end")]
    assert max(begins) < min(ends), "all four trained at the same time"
