"""Eq. 5 in full on a real Slurm: members on one node and a half [D17].

M = 2 members of P = 6 on 3 nodes of 4 slots, as scripts; M = 2 of P = 3 on 3 nodes of 2 slots, with
torch, to the weights of members that have a node each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ai500.records import Score, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import Submit, results, run_events

# Needs nothing but Python. Every rank writes where it ran, then waits for the other member's ranks:
# both members have to run at once.
SCRIPT = """
import json, os, sys, time
task = json.load(open(sys.argv[1]))
names = ("rank", "local_rank", "local_world_size", "world_size", "threads")
place = {name: task[name] for name in names} | {"node": os.environ["SLURMD_NODENAME"]}
ranks = os.path.join(task["run"], "ranks")
os.makedirs(ranks, exist_ok=True)
file = os.path.join(ranks, f"{task['member']}-{task['rank']}.json")
json.dump(place, open(file + ".tmp", "w"))
os.replace(file + ".tmp", file)
deadline = time.monotonic() + 240
while len([name for name in os.listdir(ranks) if name.endswith(".json")]) < 12:
    if time.monotonic() > deadline:
        sys.exit("the other member does not run")
    time.sleep(0.1)
if task["rank"] == 0:
    def emit(event, **fields):
        print(":::AI500", json.dumps({"event": event, **fields}), flush=True)
    emit("first_batch")
    emit("epoch", epoch=1)
    emit("quality", epoch=1, quality=0.9)
    emit("end")
"""
CONFIG = """
workload = "custom"
[ensemble]
size = 2
[parallel]
degree = 6
[custom_class]
name = "mine"
target_quality = 0.5
penalty_exponent = 3
epochs = 1
batch_size = 5
quality_name = "score"
quality_direction = "higher"
train_samples = 100
validation_samples = 20
[framework]
kind = "script"
command = ["{python}", "train.py", "{task}"]
[scheduler]
kind = "slurm"
poll_seconds = 0.2
[system]
accelerators_per_node = 4
cores_per_slot = 1
"""


def test_two_members_of_six_on_three_nodes_of_four(
    make_cluster: Callable[..., Cluster], submit: Submit, shared_folder: Path
) -> None:
    (shared_folder / "train.py").write_text(SCRIPT)
    (shared_folder / "ai500.toml").write_text(CONFIG)
    run = shared_folder / "run"
    cluster = make_cluster(nodes=3, cpus=4)
    command = submit(cluster, "run", "--config", shared_folder / "ai500.toml", "--out", run)
    assert command.wait(timeout=400) == 0, command.err
    assert run_folder.read(Score, RunFolder(run).score).complete
    used: dict[str, int] = {}
    for member in (0, 1):
        places = [
            json.loads((run / f"ranks/{member}-{rank}.json").read_text()) for rank in range(6)
        ]
        assert [place["rank"] for place in places] == list(range(6))
        assert {place["world_size"] for place in places} == {6}
        assert {place["threads"] for place in places} == {1}
        on_nodes = [place["node"] for place in places]
        counts = {node: on_nodes.count(node) for node in dict.fromkeys(on_nodes)}
        assert sorted(counts.values()) == [2, 4]  # a whole node, and half of another
        for node, count in counts.items():
            used[node] = used.get(node, 0) + count
            local = [place["local_rank"] for place in places if place["node"] == node]
            assert local == list(range(count))
    assert used == dict.fromkeys(cluster.names, 4)
    starts = {event["member"]: event["host"] for event in run_events(run, "start")}
    report = (run / "report.html").read_text(encoding="utf-8")
    for member, host in starts.items():
        recorded = sorted((run / "trials/01/systems").glob(f"*-{member:03d}.json"))
        hosts = [file.stem.rpartition("-")[0] for file in recorded]
        assert host in hosts and len(hosts) == 2
        assert f">{', '.join(hosts)}<" in report


@pytest.mark.long
def test_torch_members_of_three_on_three_nodes_of_two(
    make_cluster: Callable[..., Cluster], run_ensemble: Submit, shared_folder: Path
) -> None:
    trained = []
    for nodes, slots in ((3, 2), (2, 3)):
        cluster = make_cluster(nodes=nodes, cpus=slots)
        run = shared_folder / f"{nodes} nodes"
        settings = {
            "ensemble.size": 2, "parallel.degree": 3, "train.batch_size": 8, "train.epochs": 2,
            "system.nodes": nodes, "system.accelerators_per_node": slots, "slurm.exclusive": False,
        }  # fmt: skip
        command = run_ensemble(cluster, run, settings)
        assert command.wait(timeout=400) == 0, command.err
        systems = run / "trials/01/systems"
        hosts = [
            {file.stem.rpartition("-")[0] for file in systems.glob(f"*-{member:03d}.json")}
            for member in (0, 1)
        ]
        assert [len(names) for names in hosts] == [nodes - 1] * 2
        assert set.union(*hosts) == set(cluster.names)
        trained.append(results(run))
    straddling, whole = trained
    assert straddling == whole
