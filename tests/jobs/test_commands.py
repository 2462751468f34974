"""The calls of Slurm's commands, tested with a real Slurm."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from ai500.core.errors import AI500Error, ConfigError, EnvironmentLacksError
from ai500.jobs.schedulers import slurm_commands as commands
from ai500.jobs.schedulers.slurm_cluster import read_partition
from ai500.jobs.schedulers.slurm_commands import SlurmUnavailableError
from ai500.jobs.schedulers.slurm_output import SlurmJob
from ai500.jobs.schedulers.slurm_script import sbatch_line
from tests.support.slurm.cluster import Cluster

NAME = "a name; with 'quotes' | ü, and $HOME"
ENDINGS = """#!/bin/sh
case $SLURM_ARRAY_TASK_ID in
  0) exit 0 ;;
  1) exit 7 ;;
  2) kill -KILL $$ ;;
  *) exec sleep 300 ;;
esac
"""


@pytest.fixture(autouse=True)
def without_other_slurms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Variables that would change what the commands print, if they reached them."""
    monkeypatch.setenv("SQUEUE_FORMAT", "%t")
    monkeypatch.setenv("SQUEUE_STATES", "SUSPENDED")
    monkeypatch.setenv("SCANCEL_STATE", "SUSPENDED")
    monkeypatch.setenv("SLURM_BITSTR_LEN", "8")
    yield


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The shared cluster is the one this process talks to."""
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    return cluster


def _array(tasks: str) -> str:
    options = [f"--array={tasks}", "--output=/dev/null", f"--job-name={NAME}"]
    return commands.submit_script(ENDINGS, options=options)


def _when(
    ids: Collection[str], ready: Callable[[dict[str, SlurmJob]], bool], *, timeout: float = 60
) -> dict[str, SlurmJob]:
    deadline = time.monotonic() + timeout
    while not ready(jobs := commands.job_states(ids)):
        assert time.monotonic() < deadline, jobs
        time.sleep(0.1)
    return jobs


def _are(states: dict[str, str]) -> Callable[[dict[str, SlurmJob]], bool]:
    return lambda jobs: all(jobs[job_id].state == state for job_id, state in states.items())


def test_the_cluster_is_read(here: Cluster) -> None:
    partition = read_partition(None, constraint=None)
    assert [node.name for node in partition.nodes] == here.names
    assert {node.cpus for node in partition.nodes} == {here.settings.cpus}
    assert all(node.usable for node in partition.nodes)
    assert partition.max_array_size == here.settings.max_array_size
    assert (partition.accounting, partition.max_seconds) == (False, None)
    assert partition.version.startswith(here.run("sinfo", "--version").split()[1])


def test_a_drained_node_says_why(here: Cluster) -> None:
    name = here.names[0]
    here.run("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=a fan is loud")
    try:
        nodes = {node.name: node for node in read_partition(None, constraint=None).nodes}
    finally:
        here.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    assert (nodes[name].usable, nodes[name].reason) == (False, "a fan is loud")
    assert nodes[here.names[1]].usable


@pytest.mark.usefixtures("here")
def test_an_unknown_partition_is_a_mistake_in_the_configuration() -> None:
    default = read_partition(None, constraint=None).name
    with pytest.raises(ConfigError) as caught:
        read_partition("nowhere", constraint=None)
    assert (caught.value.key, caught.value.value) == ("slurm.partition", "nowhere")
    assert default in caught.value.remedy


def test_gpus_and_features(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_cluster(nodes=2, gpus=2)
    monkeypatch.setenv("SLURM_CONF", other.environment["SLURM_CONF"])
    features = "AvailableFeatures=fast,new", "ActiveFeatures=fast,new"
    other.run("scontrol", "update", f"NodeName={other.names[1]}", *features)
    (node,) = read_partition(None, constraint="slow|fast&new").nodes
    assert (node.name, node.gpus, node.features) == (other.names[1], 2, ("fast", "new"))


@pytest.mark.usefixtures("here")
def test_an_array_from_waiting_to_its_ends() -> None:
    array = _array("0-399:3,1,2")
    tasks = sorted({*range(0, 400, 3), 1, 2})
    ids = [f"{array}_{task}" for task in tasks]
    ends = {f"{array}_0": "done", f"{array}_1": "failed", f"{array}_2": "failed"}
    jobs = _when(ids, _are(ends | {f"{array}_3": "running"}))
    assert set(jobs) == set(ids)
    assert [jobs[f"{array}_{task}"].exit_code for task in (0, 1, 2, 3)] == [0, 7, -9, None]
    assert jobs[f"{array}_1"].slurm_state == "FAILED"
    assert jobs[f"{array}_3"].restarts == 0
    waiting = [job for job in jobs.values() if job.state == "pending"]
    assert len(waiting) > 100
    assert jobs[f"{array}_399"].state == "pending"


@pytest.mark.usefixtures("here")
def test_cancelling_some_then_all() -> None:
    array = _array("3-40")
    running, waiting = f"{array}_3", f"{array}_40"
    _when([running, waiting], _are({running: "running", waiting: "pending"}))
    commands.cancel_jobs([running, waiting, "999999", "999998_7"])
    jobs = _when([running, waiting], _are({running: "cancelled"}))
    assert jobs[running].exit_code == -15
    assert jobs[waiting].state == "lost"  # Slurm forgets it at once, and nobody keeps accounts
    commands.cancel_jobs([f"{array}_{task}" for task in range(3, 41)])
    _when([f"{array}_4"], _are({f"{array}_4": "cancelled"}))
    assert commands.jobs_named(NAME)


@pytest.mark.usefixtures("here")
def test_a_whole_array_that_is_cancelled_while_it_waits() -> None:
    array = commands.submit_script(ENDINGS, options=["--array=3-999", "--output=/dev/null", "-H"])
    ids = [f"{array}_{task}" for task in range(3, 1000)]
    assert {job.state for job in commands.job_states(ids).values()} == {"pending"}
    commands.cancel_jobs([array])
    assert {job.state for job in commands.job_states(ids).values()} == {"cancelled"}


@pytest.mark.usefixtures("here")
def test_names_are_exact_and_may_hold_anything() -> None:
    before = commands.jobs_named(NAME)
    array = _array("3-5")
    commands.submit_script(ENDINGS, options=["--output=/dev/null", f"--job-name={NAME}2"])
    assert set(commands.jobs_named(NAME)) == {*before, array}
    assert commands.jobs_named("unused name") == []


@pytest.mark.usefixtures("here")
def test_a_plain_job_and_an_unknown_job() -> None:
    job = commands.submit_script("#!/bin/sh\nexit 3\n", options=["--output=/dev/null"])
    ended = _when([job, "999999"], _are({job: "failed", "999999": "lost"}))
    assert ended[job].exit_code == 3
    assert commands.job_states([]) == {}


@pytest.mark.usefixtures("here")
def test_a_requeued_task_waits_again_and_counts_its_restart() -> None:
    array = _array("3-4")
    task = f"{array}_3"
    _when([task], _are({task: "running"}))
    commands.run_slurm(("scontrol", "requeue", task), timeout=30)
    jobs = _when([task], _are({task: "pending"}))
    assert jobs[task].restarts == 1


@pytest.mark.usefixtures("here")
def test_a_rejected_job_reports_slurms_message() -> None:
    with pytest.raises(AI500Error, match=r"sbatch failed.*[Ii]nvalid partition"):
        commands.submit_script(ENDINGS, options=["--partition=nowhere"])


def test_a_stopped_controller_is_unavailable_and_comes_back(here: Cluster) -> None:
    array = _array("3-4")
    here.stop_controller()
    try:
        with pytest.raises(SlurmUnavailableError, match="scontrol ping"):
            commands.job_states([f"{array}_3"])
        with pytest.raises(SlurmUnavailableError):
            commands.submit_script(ENDINGS, options=["--output=/dev/null"])
    finally:
        here.start_controller()
    _when([f"{array}_3"], _are({f"{array}_3": "running"}))


def test_a_command_that_is_late_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "squeue"
    command.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmUnavailableError) as caught:
        commands.run_slurm(("squeue",), timeout=1)
    assert caught.value.value == "squeue"


def test_without_slurm_the_message_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentLacksError) as caught:
        commands.job_states(["1"])
    assert caught.value.value == "squeue"
    assert not isinstance(caught.value, SlurmUnavailableError)


def test_without_a_configuration_the_message_says_where_to_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    with pytest.raises(EnvironmentLacksError) as caught:
        commands.job_states(["1"])
    assert caught.value.key == "SLURM_CONF"
    assert not isinstance(caught.value, SlurmUnavailableError)


def test_accounting_knows_what_squeue_forgot(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_cluster(nodes=2, accounting=True, extra_conf=["MinJobAge=2"])
    monkeypatch.setenv("SLURM_CONF", other.environment["SLURM_CONF"])
    assert read_partition(None, constraint=None).accounting
    array = _array("0-20")
    expected = {f"{array}_0": "done", f"{array}_1": "failed", f"{array}_20": "cancelled"}
    _when([f"{array}_20"], _are({f"{array}_20": "pending"}))
    commands.cancel_jobs([f"{array}_20"])
    _when(expected, _are(expected))
    deadline = time.monotonic() + 90
    while f"{array}_1\n" in other.run("squeue", "-h", "--states=all", "--array", "-o", "%i"):
        assert time.monotonic() < deadline, "squeue still knows the ended task"
        time.sleep(0.5)
    jobs = commands.job_states(list(expected))
    assert {job_id: job.state for job_id, job in jobs.items()} == expected
    assert jobs[f"{array}_1"].exit_code == 7
    assert jobs[f"{array}_20"].reason == "before it started"


def test_a_word_of_sbatch_reaches_slurm_as_it_is(here: Cluster, tmp_path: Path) -> None:
    comment = """it's "one" word; \\ # and $HOME `id`"""
    script = tmp_path / "job.sh"
    script.write_text(
        f"#!/bin/sh\n{sbatch_line(f'--comment={comment}')}\n{sbatch_line('--output=/dev/null')}\n"
    )
    job = here.run("sbatch", "--parsable", "--hold", script).strip()
    shown = here.run("scontrol", "show", "job", job).splitlines()
    assert f"Comment={comment}" in [line.strip() for line in shown]
    here.run("scancel", job)
