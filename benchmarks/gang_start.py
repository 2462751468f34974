"""Start of a gang on many virtual nodes: one step for all members, against one srun for each.

    python benchmarks/gang_start.py [--nodes 300] [--members-per-node 1] [--control]

A real Slurm of virtual nodes (tests/support/slurm/cluster.py), real batch script, agents and
barrier server; the members are small Python programs that wait at the barrier and leave a record.
Reported: the most `srun` processes at a time, the spread of the members' launches, and that of
their release by the barrier. `--control` also starts the gang as ai500 did before: one srun for
each member. Virtual nodes share this machine's cores, so spreads are upper bounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":  # the repository's root, for the tests' cluster
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tests.support.simulated_slurm import TRIAL, controller_for
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.sleepers import GANG

from ai500.config import load
from ai500.core import events
from ai500.jobs.schedulers import slurm
from ai500.jobs.schedulers.slurm_script import Request, gang_script
from ai500.pipeline import stages as pipeline
from ai500.records.run_folder import RunFolder, TrialFolder

MEMBER = """\
#!@PYTHON@ -IS
# In place of the node agent: waits at the barrier, trains nothing.
import json, os, socket, sys, time
module, trial = sys.argv[2:4]
if module == "ai500.jobs.gang_agent":
    os.execv("@PYTHON@", ["@PYTHON@", "@GANG@", *sys.argv])
if module != "ai500.jobs.node_agent":
    os.execv("@PYTHON@", ["@PYTHON@", *sys.argv[1:]])
started, member = time.time(), int(os.environ["AI500_MEMBER"])
folder = f"{trial}/members/{member:03d}"
while True:
    try:
        address = json.load(open(f"{trial}/barrier.json"))
        connection = socket.create_connection((address["hosts"][0], address["port"]), 60)
        break
    except (OSError, ValueError):
        time.sleep(0.2)
connection.settimeout(None)
request = {"token": address["token"], "request": "wait"}
connection.sendall(json.dumps(request).encode() + b"\\\\n")
missing = json.loads(connection.makefile().readline())["missing"]
with open(f"{folder}/events.jsonl", "a") as log:
    for number, (event, wall) in enumerate((("start", started), ("barrier", time.time())), 1):
        fields = {"event": event, "wall": wall, "monotonic": wall, "host": "", "boot": "",
                  "sequence": number, "trial": 1, "member": member, "attempt": 1,
                  "missing": missing}
        log.write(json.dumps(fields) + "\\\\n")
open(f"{folder}/record.json", "w").write("{}")
""".replace("\\\\", "\\")


@dataclass(frozen=True)
class Start:
    """Start of one gang."""

    members: int
    most_sruns: int
    launch_seconds: float
    """Time between the first and the last launch."""
    release_seconds: float
    """Time between the first and the last release by the barrier."""
    missing: int


def main() -> int:
    """Start the gang and print its figures; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--members-per-node", type=int, default=1)
    parser.add_argument("--control", action="store_true", help="also one srun for each member")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ai500-gang-", dir="/var/tmp"))
    try:
        each = options.members_per_node
        with Cluster(folder / "cluster", nodes=options.nodes, cpus=each) as cluster:
            print(f"{options.nodes} nodes are idle after {cluster.start_seconds:.1f} s", flush=True)
            os.environ.update(cluster.environment)
            one_step = start_gang(folder / "one step", cluster, each=each, script=gang_script)
            _print("one step", one_step)
            if options.control:
                several = start_gang(folder / "sruns", cluster, each=each, script=srun_each)
                _print("one srun for each member", several)
                ratio = several.launch_seconds / one_step.launch_seconds
                print(f"spread of launches, one srun each / one step: {ratio:.2f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    goals = {
        "at most one srun a node": one_step.most_sruns <= options.nodes,
        "all members are released within 1 s": one_step.release_seconds <= 1,
        "no member is missing at the barrier": one_step.missing == 0,
    }
    for goal, holds in goals.items():
        print(f"{'holds ' if holds else 'FAILED'}  {goal}")
    return 0 if all(goals.values()) else 1


def _print(name: str, start: Start) -> None:
    print(
        f"{name}: {start.members} members, at most {start.most_sruns} srun, launched within "
        f"{start.launch_seconds:.2f} s, released within {start.release_seconds:.3f} s, "
        f"{start.missing} missing",
        flush=True,
    )


def start_gang(
    folder: Path, cluster: Cluster, *, each: int, script: Callable[[Request], str]
) -> Start:
    """Start a gang to its end."""
    folder.mkdir()
    (folder / "gang.py").write_text(GANG)
    program = folder.with_name(f"member-{folder.name.replace(' ', '-')}")
    gang = program.with_suffix(".gang.py")
    gang.write_text(GANG)
    program.write_text(MEMBER.replace("@PYTHON@", sys.executable).replace("@GANG@", str(gang)))
    program.chmod(0o755)
    members = each * len(cluster.names)
    settings = {
        "ensemble.size": members, "parallel.degree": 1, "system.device": "cpu",
        "system.accelerators_per_node": each, "scheduler.kind": "slurm", "slurm.start": "gang",
        "slurm.python": str(program), "data.stage": False, "slurm.barrier_seconds": 2000.0,
    }  # fmt: skip
    config = load(overrides=settings)
    _, plan = pipeline.survey_and_plan(config)
    slurm.gang_script = script
    controller = controller_for(folder, config, plan)
    with counted_sruns(str(cluster.conf)) as most:
        controller.start()
        failed = controller.run(lambda views: None)
    if failed:
        trial = RunFolder(folder).trial(TRIAL)
        logs = [*sorted((trial.path / "slurm").glob("*.log")), trial.member(failed[0]).log]
        sys.exit("\n".join(log.read_text()[-2000:] for log in logs if log.exists()))
    return _measured(RunFolder(folder).trial(TRIAL), members, most_sruns=max(most))


def _measured(trial: TrialFolder, members: int, *, most_sruns: int) -> Start:
    logged = [event for m in range(members) for event in events.read(trial.member(m).events)]
    launched = [event["wall"] for event in logged if event["event"] == "start"]
    released = [event["wall"] for event in logged if event["event"] == "barrier"]
    return Start(
        members=members,
        most_sruns=most_sruns,
        launch_seconds=max(launched) - min(launched),
        release_seconds=max(released) - min(released),
        missing=max(event["missing"] for event in logged),
    )


def srun_each(request: Request) -> str:
    """Write the batch script with one srun for each member in place of the gang's step."""
    lines = gang_script(request).splitlines()
    first = next(n for n, line in enumerate(lines) if "gang_agent" in line) - 1
    each = len(request.parts) // request.gang_nodes
    agent = f"{request.command[0]} -m ai500.jobs.node_agent '{request.trial}'"
    loop = [
        'for member in "${members[@]}"; do',
        f"  AI500_MEMBER=$member AI500_ATTEMPT=1 srun --nodes=1 --ntasks=1 --exact --mem=0 "
        f"--cpus-per-task=1 --relative=$((member / {each})) --mpi=none {agent} &",
        "  sruns+=($!)",
        "done",
        'wait "${sruns[@]}"',
    ]
    return "\n".join([*lines[:first], *loop, *lines[first + 2 :], ""])


@contextmanager
def counted_sruns(conf: str) -> Iterator[list[int]]:
    """Count the srun processes of this cluster's batch hosts, several times a second."""
    counts, end = [0], threading.Event()
    mark = f"SLURM_CONF={conf}".encode()

    def count() -> None:
        while not end.wait(0.3):
            counts.append(sum(_is_srun(entry, mark) for entry in Path("/proc").glob("[0-9]*")))

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        end.set()
        thread.join()


def _is_srun(entry: Path, mark: bytes) -> bool:
    """Return True for an srun of the cluster; each has a child for its input and output."""
    try:
        if (entry / "comm").read_text() != "srun\n" or mark not in (entry / "environ").read_bytes():
            return False
        parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        return Path("/proc", parent, "comm").read_text() != "srun\n"
    except OSError:
        return False


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
