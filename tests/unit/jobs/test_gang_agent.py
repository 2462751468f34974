"""The agent of a gang on one node: what each member is given, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ai500.core.barrier import BarrierClient, connect
from ai500.jobs.barrier import BarrierServer
from ai500.jobs.gang import GangPart, NodeParts, write_gang
from ai500.jobs.gang_agent import GangAgent, cpus_by_slot, divided_devices
from ai500.records.run_folder import TrialFolder

# The agent of node 0, whose members run `sh -c MEMBER` in place of the node agent.
AGENT = """\
import os, sys
from ai500.jobs import gang_agent, node_agent
node_agent.run = lambda trial, member: os.execvp("sh", ["sh", "-c", os.environ["MEMBER"]])
sys.exit(gang_agent.main())
"""


@pytest.mark.parametrize(
    ("environ", "slots", "divided"),
    [
        ({"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, (2, 3), {"CUDA_VISIBLE_DEVICES": "6,7"}),
        ({"ZE_AFFINITY_MASK": "GPU-a,GPU-b"}, (1,), {"ZE_AFFINITY_MASK": "GPU-b"}),
        (
            {"ROCR_VISIBLE_DEVICES": "0,1,2,3", "CUDA_VISIBLE_DEVICES": "0,1,2,3"},
            (2, 3),
            {
                "ROCR_VISIBLE_DEVICES": "2,3",
                "CUDA_VISIBLE_DEVICES": "2,3",
                "HIP_VISIBLE_DEVICES": "0,1",
            },
        ),
        ({}, (0,), {}),
        ({"CUDA_VISIBLE_DEVICES": "0"}, (3,), {}),  # not what the gang asked for: left as it is
    ],
)
def test_a_member_sees_the_accelerators_of_its_slots(
    environ: dict[str, str], slots: tuple[int, ...], divided: dict[str, str]
) -> None:
    assert divided_devices(environ, slots) == divided


@pytest.mark.parametrize(
    ("bound", "asked", "cpus"),
    [
        ({8, 9, 10, 11}, 4, [[8, 9], [10, 11]]),
        (set(range(64)), 4, []),  # Slurm binds nothing here
        ({0, 1}, 2, []),  # too few
    ],
)
def test_cpus_are_divided_where_slurm_bound_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, bound: set[int], asked: int, cpus: list[list[int]]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: bound)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", str(asked))
    monkeypatch.setattr("ai500.jobs.gang_agent._core", lambda cpu: (cpu, cpu))
    assert cpus_by_slot(2, cpus_per_slot=2) == cpus


def test_a_member_has_the_variables_of_a_step_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    part = GangPart(7, 1, 0, (0, 1), index=1, count=3, head=1, ranks="4,2,2")
    agent = GangAgent(
        TrialFolder(tmp_path), [part], addresses=["a", "b"], cpus_per_slot=8, binds=False
    )
    variables = agent.environment(part)
    assert variables["AI500_ATTEMPT"] == "3"
    assert variables["AI500_HEAD"] == "b"
    assert (variables["SLURM_NODEID"], variables["SLURM_STEP_NUM_NODES"]) == ("1", "3")
    assert variables["SLURM_CPUS_PER_TASK"] == "8"  # of a slot: it straddles nodes


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BarrierServer]:
    running = BarrierServer(TrialFolder(tmp_path), name="g", exits=tmp_path / "001.exits")
    yield running
    running.close()


Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin(tmp_path: Path, server: BarrierServer) -> Iterator[Begin]:
    """Start an agent whose members run a shell script."""
    agents: list[subprocess.Popen[str]] = []

    def start(script: str, *parts: GangPart) -> subprocess.Popen[str]:
        for part in parts:
            TrialFolder(tmp_path).member(part.member).path.mkdir(parents=True, exist_ok=True)
        write_gang(tmp_path / "001.gang", [NodeParts(parts)])
        environment = {"MEMBER": script, "AI500_BARRIER": "g", "TRIAL": str(tmp_path)}
        words = [sys.executable, "-c", AGENT, str(tmp_path), "--gang", str(tmp_path / "001.gang")]
        agents.append(subprocess.Popen(words, env=os.environ | environment, text=True))
        return agents[-1]

    yield start
    for agent in agents:
        agent.kill()
        agent.wait()


def exits(folder: Path) -> list[str]:
    try:
        return sorted((folder / "001.exits").read_text().splitlines())
    except FileNotFoundError:
        return []


def until(true: Callable[[], object], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_member_that_fails_ends_no_other(tmp_path: Path, begin: Begin) -> None:
    script = """
    folder=$TRIAL/members/$(printf %03d "$AI500_MEMBER"); echo "of $AI500_MEMBER"
    case $AI500_MEMBER in
      0) kill -KILL $$ ;;
      1) exit 4 ;;
      2) sleep 0.5; touch "$folder/record.json" ;;
    esac
    """  # member 3 exits with 0 and leaves no record
    agent = begin(script, *(GangPart(member, 1, 0, (member,)) for member in range(4)))
    assert agent.wait(120) == 0
    until(lambda: len(exits(tmp_path)) == 4)
    assert exits(tmp_path) == ["0 137", "1 4", "2 0", "3 1"]
    log = (tmp_path / "members/001/log.txt").read_text().splitlines()
    assert log[0].startswith("=== ai500: attempt 1 of member 1")
    assert log[1] == "of 1"


def test_later_waves_start_when_their_slots_are_free(tmp_path: Path, begin: Begin) -> None:
    script = """
    echo "start $AI500_MEMBER" >>"$TRIAL/order"
    [ "$AI500_MEMBER" != 0 ] || while [ ! -e "$TRIAL/go" ]; do sleep 0.02; done
    echo "end $AI500_MEMBER" >>"$TRIAL/order"
    """
    begin(script, GangPart(0, 1, 0, (0,)), GangPart(1, 1, 0, (1,)), GangPart(2, 1, 1, (0,)),
          GangPart(3, 1, 1, (1,)))  # fmt: skip

    def order() -> list[str]:
        return (tmp_path / "order").read_text().split("\n")

    until(lambda: (tmp_path / "order").exists() and "end 3" in order())
    assert order().index("end 1") < order().index("start 3")
    assert "start 2" not in order()  # member 0 has its slot
    (tmp_path / "go").touch()
    until(lambda: "end 2" in order())
    assert order().index("end 0") < order().index("start 2")


def test_a_stop_reaches_the_members_and_later_waves_do_not_begin(
    tmp_path: Path, begin: Begin
) -> None:
    script = """
    trap 'exit 75' TERM; touch "$TRIAL/started-$AI500_MEMBER"; while :; do sleep 0.02; done
    """
    agent = begin(script, GangPart(0, 1, 0, (0,)), GangPart(1, 1, 1, (0,)))
    until((tmp_path / "started-0").exists)
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(120) == 0
    until(lambda: len(exits(tmp_path)) == 2)
    assert exits(tmp_path) == ["0 75", "1 75"]
    assert not (tmp_path / "started-1").exists()


def test_a_member_ends_here_when_it_fails_on_another_node(
    tmp_path: Path, begin: Begin, server: BarrierServer
) -> None:
    script = 'touch "$TRIAL/started-$AI500_MEMBER"; sleep 1; [ "$AI500_MEMBER" = 1 ] || sleep 300'
    agent = begin(script, GangPart(0, 1, 0, (0,), index=0, count=2), GangPart(1, 1, 0, (1,)))
    until(lambda: (tmp_path / "started-1").exists() and server.agents)
    other = joined(tmp_path)
    other.report_end(0, node=1, nodes=2, code=3)
    assert agent.wait(50) == 0
    until(lambda: len(exits(tmp_path)) == 2)
    assert exits(tmp_path) == ["0 3", "1 1"]  # the cause, not the SIGKILL that followed
    other.close()


def joined(folder: Path) -> BarrierClient:
    client = connect(TrialFolder(folder).barrier, name="g", timeout_seconds=60)
    assert client is not None
    client.join()
    return client


def test_members_die_with_their_agent(tmp_path: Path, begin: Begin) -> None:
    agent = begin('echo $$ >"$TRIAL/pid"; sleep 300', GangPart(0, 1, 0, (0,)))
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    agent.kill()
    member = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    until(lambda: not member.exists() or member.read_text().split()[2] == "Z")
