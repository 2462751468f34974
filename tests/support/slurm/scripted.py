"""Members that a script of plain Python trains: they sleep, and speak the worker contract."""

from __future__ import annotations

import json
from pathlib import Path

from ai500.records import Score, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import Command
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import Submit, run_events

# Needs nothing but Python. Ranks meet at each epoch's end; the state is the number of epochs.
SCRIPT = """
import json, os, signal, socket, sys, time
task = json.load(open(sys.argv[1]))
state = os.path.join(task["checkpoint"], "epochs")
with open(os.path.join(task["checkpoint"], "cores"), "w") as file:
    json.dump(sorted(os.sched_getaffinity(0)), file)
stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
done = int(open(state).read()) if os.path.exists(state) else 0
def emit(event, **fields):
    if task["rank"] == 0:
        print(":::AI500", json.dumps({"event": event, **fields}), flush=True)
def meet():
    address = (task["master_addr"], task["master_port"])
    if task["world_size"] == 1:
        return
    if task["rank"] == 0:
        with socket.create_server(("", address[1])) as server:
            server.accept()[0].close()
        return
    for _ in range(600):
        try:
            return socket.create_connection(address).close()
        except OSError:
            time.sleep(0.05)
    sys.exit("no rendezvous")
meet()
emit("first_batch")
for epoch in range(done + 1, task["epochs"] + 1):
    waited = time.monotonic() + float(os.environ.get("EPOCH_SECONDS", "0.1"))
    while time.monotonic() < waited:
        time.sleep(0.02)
        if stopped:
            open(state, "w").write(str(epoch - 1))
            sys.exit(75)
    emit("epoch", epoch=epoch)
    emit("quality", epoch=epoch, quality=0.9)
emit("end")
"""
CONFIG = """
workload = "custom"
[custom_class]
name = "mine"
target_quality = 0.5
penalty_exponent = 3
epochs = 4
batch_size = 10
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
accelerators_per_node = 1
cores_per_slot = 1
[slurm]
exclusive = true
"""


def written(folder: Path) -> Path:
    """Write script and configuration; return the configuration's path."""
    (folder / "train.py").write_text(SCRIPT)
    (folder / "ai500.toml").write_text(CONFIG)
    return folder / "ai500.toml"


def started(
    submit: Submit,
    cluster: Cluster,
    folder: Path,
    *settings: str,
    epoch_seconds: float = 2.0,
    run: Path | None = None,
) -> tuple[Path, Command]:
    """Start `ai500 run` of members that sleep."""
    run = run or folder / "run"
    words = [word for setting in settings for word in ("--set", setting)]
    config = written(folder)
    command = submit(
        cluster, "run", "--config", config, "--out", run, *words,
        EPOCH_SECONDS=str(epoch_seconds),
    )  # fmt: skip
    return run, command


def score_of(run: Path) -> Score:
    """Read the run's score."""
    return run_folder.read(Score, RunFolder(run).score)


def findings(submit: Submit, cluster: Cluster, run: Path) -> dict[str, str]:
    """Return the findings of `ai500 check`: rule → message."""
    command = submit(cluster, "check", run, "--json")
    command.wait(300)
    return {finding["rule"]: finding["message"] for finding in json.loads(command.out)["findings"]}


def attempts(run: Path) -> set[int]:
    """Return the numbers of the attempts in which jobs were submitted."""
    return {event["attempt"] for event in run_events(run, "job_submitted")}
