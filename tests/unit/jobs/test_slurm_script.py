"""The batch scripts: valid bash, hostile names quoted, what a site asked for in its place."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.config import SlurmConfig
from ai500.core.errors import ConfigError
from ai500.jobs.schedulers.slurm_script import (
    COMPLETE_EXITS,
    Part,
    Request,
    array_script,
    gang_script,
)

HOSTILE = '/shared/it\'s a "run"; rm -rf $HOME `x` ü\\%j'


def request(**changes: Any) -> Request:
    trial = Path(HOSTILE)
    made = Request(
        name="ai500-x-001",
        trial=trial,
        parts=[Part(0, 1), Part(3, 2)],
        nodes_per_member=2,
        gang_nodes=4,
        job_slots_per_node=4,
        cpus_per_slot=3,
        memory_mib_per_slot=None,
        accelerators=True,
        at_once=None,
        first_wave=2,
        stages=True,
        command=["python", "-m", "agent", str(trial)],
        clear=["python", "-m", "agent", "--clear", str(trial)],
        barrier=["python", "-m", "meeting", str(trial)],
        srun_flags=(),
        environment={"PYTHONPATH": "/a b"},
        exits=trial / "001.exits",
        cancelled=trial / "cancelled",
        slurm=SlurmConfig(),
    )
    return dataclasses.replace(made, **changes)


def check_bash(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, timeout=30)
    assert done.returncode == 0 and not done.stderr, done.stderr


def options(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if "#SBATCH" in line]


def value_of(script: str, name: str) -> str:
    """Evaluate the script's first assignment to `name` with bash."""
    line = next(line for line in script.splitlines() if line.startswith(f"{name}="))
    shown = subprocess.run(
        ["bash", "-c", f'{line}\nprintf %s "${name}"'], capture_output=True, text=True, timeout=30
    )
    return shown.stdout


@pytest.mark.parametrize("make", [array_script, gang_script])
def test_a_script_is_bash_and_names_reach_it_unharmed(make: Any) -> None:
    script = make(request())
    check_bash(script)
    assert value_of(script, "trial") == HOSTILE
    assert not any(HOSTILE[:10] in option for option in options(script))
    assert shlex.quote(HOSTILE) in script


@given(st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), min_size=1))
def test_any_path_is_quoted(name: str) -> None:
    trial = Path("/shared") / name.replace("/", "-")
    script = array_script(request(trial=trial))
    line = next(line for line in script.split("\n") if line.startswith("trial="))
    assert shlex.split(line.removeprefix("trial=")) == [str(trial)]


WORDS = ('--comment="$(touch owned)"', "--x=`touch owned`", "a b", "; touch owned", "it's", "*", "")


@pytest.mark.parametrize("make", [array_script, gang_script])
def test_words_of_srun_reach_it_as_they_are(make: Any, tmp_path: Path) -> None:
    """The shell runs the script; `srun` prints its words, NUL between them."""
    slurm = SlurmConfig(srun=WORDS, cpu_bind='"$(touch owned)"')
    flags = ('--container-image="$(touch owned)"', "--container-mounts=/a b:/c")
    script = make(request(slurm=slurm, srun_flags=flags, stages=False))
    step = script[script.index("srun ") :].split("python")[0].rstrip().removesuffix("\\")
    step = "srun " + step.rpartition("srun ")[2]
    run = f'srun() {{ printf "%s\\0" "$@"; }}\nSLURM_JOB_NUM_NODES=2\n{step}'
    done = subprocess.run(
        ["bash", "-c", run, "sh"], capture_output=True, text=True, timeout=30, cwd=tmp_path
    )
    words = done.stdout.split("\0")[:-1]
    assert words[-len(WORDS) :] == list(WORDS)
    assert set(flags) <= set(words)
    assert '--cpu-bind="$(touch owned)"' in words
    assert list(tmp_path.iterdir()) == []


def test_an_option_of_sbatch_with_the_end_of_a_line_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"slurm\.sbatch"):
        array_script(request(slurm=SlurmConfig(sbatch=("--comment=x\ntouch owned",))))


def test_what_the_site_wants_is_in_the_head() -> None:
    slurm = SlurmConfig(
        partition="gpu", account="us", qos="high", time_limit="1:00:00", constraint="a100",
        exclusive=True, reservation="acceptance", sbatch=("--mail-type=END",),
        srun=("--network=no_vni",), setup=("module load x",), cpu_bind="cores",
        checkpoint_signal_seconds=77,
    )  # fmt: skip
    script = array_script(request(slurm=slurm, at_once=5))
    head = options(script)
    for option in (
        "--partition=gpu", "--account=us", "--qos=high", "--time=1:00:00", "--constraint=a100",
        "--exclusive", "--reservation=acceptance", "--mail-type=END", "--signal=TERM@77",
        "--requeue", "--array=0-1%5", "--nodes=2", "--cpus-per-task=12", "--gpus-per-node=4",
    ):  # fmt: skip
        assert option in head
    assert script.index("module load x") < script.index("srun ")
    step = next(line for line in script.splitlines() if line.startswith("srun "))
    for option in ("--network=no_vni", "--cpu-bind=cores", "--gpus-per-task=4", "--ntasks=2"):
        assert option in step.split()


def test_a_gang_is_two_steps_whatever_its_members() -> None:
    script = gang_script(request(stages=False))
    assert "--nodes=4" in options(script)
    assert "members=(0 3)" in script.splitlines()
    server, members = (line for line in script.splitlines() if line.startswith("srun "))
    assert {"--ntasks=1", "--relative=0", "--overlap"} <= set(server.split())
    assert {
        "--nodes=4", "--ntasks=4", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0",
        "--cpus-per-task=12", "--gpus-per-task=4",
    } <= set(members.split())  # fmt: skip
    assert "--at-once 2" in script
    assert "--cpus-per-slot 3" in script


def test_what_a_gang_did_not_report_follows_from_the_records(tmp_path: Path) -> None:
    """Member 5 reported a failure, 7 left a record, 8 left nothing."""
    for member in (5, 7, 8):
        (tmp_path / f"members/{member:03d}").mkdir(parents=True)
    (tmp_path / "members/007/record.json").touch()
    exits = tmp_path / "001.exits"
    exits.write_text("5 3\n")
    head = f"trial={shlex.quote(str(tmp_path))}\nexits={exits}\nmembers=(5 7 8)\n"
    subprocess.run(["bash", "-c", head + "\n".join(COMPLETE_EXITS)], check=True, timeout=30)
    assert exits.read_text() == "5 3\n7 0\n8 1\n"


def test_a_member_that_straddles_nodes_asks_for_slots_on_as_few_nodes_as_possible() -> None:
    """Slurm divides six tasks; the step takes all of the job's CPUs and accelerators [D17]."""
    script = array_script(request(straddling_slots=6, nodes_per_member=3))
    check_bash(script)
    head = options(script)
    for option in (
        "--nodes=1-3", "--use-min-nodes", "--ntasks=6", "--cpus-per-task=3", "--gpus-per-task=1",
    ):  # fmt: skip
        assert option in head
    assert not any(option.startswith("--ntasks-per-node") for option in head)
    assert script.index("AI500_TASKS_PER_NODE=$SLURM_TASKS_PER_NODE") < script.index("srun ")
    steps = [line.split() for line in script.splitlines() if line.startswith("srun ")]
    for step in steps:  # the member's, and the one that clears its copies
        assert '--nodes="$SLURM_JOB_NUM_NODES"' in step
        assert '--ntasks="$SLURM_JOB_NUM_NODES"' in step
        assert not any(word.startswith("--gpus") for word in step)
    assert "--cpu-bind=none" in steps[0]


def test_a_pinned_gang_names_its_nodes() -> None:
    assert not any("--nodelist" in option for option in options(gang_script(request())))
    pinned = gang_script(request(pinned_nodes=("n3", "n1", "n2", "n7")))
    assert "--nodelist=n3,n1,n2,n7" in options(pinned)


def requeued(tmp_path: Path, *, state: str, **environment: str) -> str:
    """Run the end of an array's script by bash with stand-ins for Slurm's commands."""
    script = array_script(request(cancelled=tmp_path / "cancelled", stages=False))
    end = script[script.index("if [") :]
    (tmp_path / "squeue").write_text(f'#!/bin/sh\necho "$@" >>"{tmp_path}/asked"\necho {state}\n')
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" >"{tmp_path}/done"\nexit 1\n')
    for name in ("squeue", "scontrol"):
        (tmp_path / name).chmod(0o755)
    subprocess.run(
        ["bash", "-c", f"code=75\n{end}"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "9", **environment},
        timeout=30,
    )
    done = tmp_path / "done"
    return done.read_text().strip() if done.exists() else ""


def test_a_checkpointed_job_asks_for_itself_alone_to_be_requeued(tmp_path: Path) -> None:
    assert requeued(tmp_path, state="RUNNING") == "requeue 9"
    # The last task of an array has the array's own number as its SLURM_JOB_ID.
    array = {"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "3"}
    assert requeued(tmp_path, state="RUNNING", **array) == "requeue 9_3"


def test_a_cancelled_job_is_not_requeued(tmp_path: Path) -> None:
    assert requeued(tmp_path, state="COMPLETING") == ""
    (tmp_path / "cancelled").touch()
    assert requeued(tmp_path, state="RUNNING") == ""


def test_accelerators_can_be_left_to_the_site() -> None:
    for script in (
        array_script(request(slurm=SlurmConfig(gpus_per_task=False))),
        array_script(request(accelerators=False)),
    ):
        assert "--gpus" not in script


def test_the_script_ends_as_its_members_did(tmp_path: Path) -> None:
    """The end of a gang's script, run by bash: it fails when a member did."""
    last = gang_script(request()).splitlines()[-1]
    for lines, code in (("0 0\n3 0\n", 0), ("0 0\n3 1\n", 1)):
        exits = tmp_path / "exits"
        exits.write_text(lines)
        done = subprocess.run(["bash", "-c", f"exits={exits}\n{last}"], timeout=30)
        assert done.returncode == code
