"""What one node does for a member: data to the node, ranks started and watched, the end told.

`python -m ai500.jobs.node_agent TRIAL_FOLDER` runs once on each node of a member, in its
container where there is one; AI500_MEMBER says which member, and Slurm (if it is Slurm) which of
the member's nodes this is. `--clear TRIAL_FOLDER` removes the copy that a job made on the node.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.core import events
from ai500.core.barrier import connect
from ai500.core.errors import AI500Error, EnvironmentLacksError
from ai500.data.bootstrap import recorded_counts
from ai500.data.open_store import open_store
from ai500.jobs.schedulers import ATTEMPT_MARK
from ai500.parallel import placement
from ai500.records import BootstrapRecord, Placement, Task, run_folder
from ai500.records.run_folder import MemberFolder, TrialFolder

CHECKPOINTED_EXIT_CODE = 75
"""The member was asked to stop and wrote a checkpoint: run the job again (EX_TEMPFAIL)."""
RENDEZVOUS_SECONDS = 300.0
DIE_WITH_PARENT = str(Path(__file__).parent / "schedulers" / "die_with_parent.py")


@dataclass(frozen=True, slots=True)
class Place:
    """This node among those of the member."""

    index: int
    count: int
    node: str
    job: str
    """Of this start of this job: unlike any earlier start's."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Place:
        """The only node, unless Slurm says otherwise."""
        job = environ.get("SLURM_JOB_ID", f"pid{os.getpid()}")
        step, restart = environ.get("SLURM_STEP_ID", "0"), environ.get("SLURM_RESTART_COUNT", "0")
        return cls(
            index=int(environ.get("SLURM_NODEID", "0")),
            count=int(environ.get("SLURM_STEP_NUM_NODES", "1")),
            node=environ.get("SLURMD_NODENAME", socket.gethostname()),
            job=f"{job}.{restart}.{step}",
        )


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the ranks of a member that spans nodes find each other."""

    job: str
    host: str
    port: int


class Child:
    """The process that trains, or the torchrun of those that do.

    SIGTERM is passed on to the ranks: Slurm (with cgroups), podman and docker tell it to this
    process alone. Torchrun is left out: it would kill a rank that takes more than 30 s to write
    its checkpoint. A rank that gets the signal twice does not mind.
    """

    def __init__(self, *, ranks: int) -> None:
        self.interrupted = False
        self._one_rank = ranks == 1
        self._process: subprocess.Popen[bytes] | None = None
        signal.signal(signal.SIGTERM, self._interrupt)

    def _interrupt(self, number: int, frame: object) -> None:
        self.interrupted = True
        if self._process is not None:
            first = self._process.pid
            for rank in [first] if self._one_rank else children_of(first):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, number)

    def run(self, command: list[str], environment: Mapping[str, str]) -> int:
        """The exit code, as a shell would tell it; at once when the end was asked for before."""
        if self.interrupted:
            return CHECKPOINTED_EXIT_CODE
        self._process = subprocess.Popen(
            [sys.executable, "-S", DIE_WITH_PARENT, str(os.getpid()), *command],
            env=environment,
            start_new_session=True,  # a signal to this process's group is for this process
        )
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def run_member(trial: TrialFolder, member: int) -> int:
    """Train on this node the member's part, or all members that share its process."""
    folder = trial.member(member)
    task = run_folder.read(Task, folder.task)
    folders = [trial.member(one) for one in task.process_members or (member,)]
    unfinished = [one for one in folders if not one.record.exists()]
    if not unfinished:
        return 0  # a gang that was requeued starts its finished members again, too
    _tell_where_to_look(unfinished, first=folder)
    child = Child(ranks=task.parallel_degree)
    place = Place.from_environment(os.environ)
    environment = dict(os.environ)
    if task.stage:
        placed = _stage(task, trial, place)
        assert placed.folder is not None
        environment["AI500_STAGED"] = placed.folder
    code = child.run(_command(task, folder, place), environment)
    if code != 0 and child.interrupted:
        return _stopped(unfinished)
    return code


def _tell_where_to_look(folders: Sequence[MemberFolder], *, first: MemberFolder) -> None:
    """The logs of members that share a process: it writes to the first one's."""
    attempt = os.environ.get("AI500_ATTEMPT", "1")
    for folder in folders:
        if folder.path != first.path:
            with folder.log.open("a", encoding="utf-8") as log:
                log.write(
                    f"{ATTEMPT_MARK}{attempt} of member {int(folder.path.name)}\n"
                    f"Trained by a process that it shares: {first.log} has what that printed.\n"
                )


def _stage(task: Task, trial: TrialFolder, place: Place) -> Placement:
    """Once per node: of the members that share a node, the first copies, the others find it."""
    run = Path(task.run)
    drawn = run_folder.read_all(BootstrapRecord, trial.bootstraps)
    placed = placement.on_node(
        open_store(Path(task.store)),
        node=place.node,
        counts=[recorded_counts(run, drawn[member]) for member in task.node_members],
        folder=job_scratch(task),
    )
    run_folder.write(trial.placed(place.node, task.member), placed)
    return placed


def job_scratch(task: Task) -> Path:
    """The folder of this job's own copies; a job that is requeued keeps its number."""
    job = os.environ.get("SLURM_JOB_ID", "local")
    return placement.scratch_folder(Path(task.run), stated=task.scratch) / f"job-{job}"


def _command(task: Task, folder: MemberFolder, place: Place) -> list[str]:
    """A plain process for one rank, one torchrun per node for several."""
    worker = [sys.executable, "-m", "ai500.train.worker", str(folder.task)]
    if task.parallel_degree == 1:
        return worker
    ranks, rest = divmod(task.parallel_degree, place.count)
    if rest:
        raise AI500Error(
            f"member {task.member} has P_degree {task.parallel_degree} and runs on {place.count} "
            "nodes: it does not divide. Start it through `ai500 run`."
        )
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    if place.count == 1:
        return [*torchrun, "--standalone", "--no-python", *worker]
    met = _rendezvous(folder, place)
    # Static: the node's number is the order of the ranks, so sums are rounded in the same order
    # each time the member starts.
    return [
        *torchrun, f"--nnodes={place.count}", f"--node-rank={place.index}",
        f"--master-addr={met.host}", f"--master-port={met.port}", "--no-python", *worker,
    ]  # fmt: skip


def _rendezvous(folder: MemberFolder, place: Place) -> Rendezvous:
    """The first node takes a free port of its own and tells the others through the folder."""
    if place.index == 0:
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        host = os.environ.get("AI500_HEAD", socket.gethostname())
        run_folder.write(folder.rendezvous, Rendezvous(place.job, host, port))
    deadline = time.monotonic() + RENDEZVOUS_SECONDS
    while time.monotonic() < deadline:
        try:
            met = run_folder.read(Rendezvous, folder.rendezvous)
        except AI500Error:
            met = None
        if met is not None and met.job == place.job:
            return met
        time.sleep(0.2)
    raise EnvironmentLacksError(
        f"{place.node} did not see {folder.rendezvous} within {RENDEZVOUS_SECONDS:.0f} s. The "
        "run folder must lie on a file system that all nodes share."
    )


def _leave_barrier(trial: TrialFolder) -> None:
    """The rest of the gang does not wait for a member that failed before it was ready."""
    first = os.environ.get("SLURM_NODEID", "0") == "0"
    if first and (name := os.environ.get("AI500_BARRIER")):
        visitor = connect(trial.barrier, name=name, timeout_seconds=0)
        if visitor is not None:
            visitor.leave()
            visitor.close()


def _stopped(folders: Sequence[MemberFolder]) -> int:
    """Ask for another start, unless this one got nowhere: that would go on for ever."""
    left = [folder for folder in folders if not folder.record.exists()]
    if not left:
        return 0  # it was about to end by itself
    told = [
        event["attempt"]
        for folder in left
        for event in events.read(folder.events)
        if event["event"] == "interrupted"
    ]
    if int(os.environ.get("AI500_ATTEMPT", "1")) not in told:
        print("error: the job was stopped before it had trained a step.", file=sys.stderr)
        return 1
    return CHECKPOINTED_EXIT_CODE


def clear(trial: TrialFolder) -> int:
    """Remove this job's copies from the node; every member's task names the same scratch."""
    tasks = sorted(trial.path.glob("members/*/task.json"))
    if tasks:
        task = run_folder.read(Task, tasks[0])
        placement.remove(job_scratch(task))
        if "SLURM_JOB_ID" in (task.scratch or ""):  # an empty folder that is named after the job
            with contextlib.suppress(OSError):
                job_scratch(task).parents[1].rmdir()
    return 0


def main() -> int:
    """The member of the environment, or `--clear`."""
    *flags, trial = sys.argv[1:]
    try:
        if flags == ["--clear"]:
            return clear(TrialFolder(Path(trial)))
        return _member_of_gang(TrialFolder(Path(trial)), int(os.environ["AI500_MEMBER"]))
    except AI500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _member_of_gang(trial: TrialFolder, member: int) -> int:
    code = 1
    try:
        code = run_member(trial, member)
    finally:
        if code != 0:
            _leave_barrier(trial)
    return code


def children_of(process: int) -> list[int]:
    """Process numbers of its children."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The command's name, in brackets, may hold anything.
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            if parent == process:
                found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
