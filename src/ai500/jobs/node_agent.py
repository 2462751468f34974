"""The node agent: stages data on a node, runs the ranks of a member, and returns its exit code.

`python -m ai500.jobs.node_agent TRIAL_FOLDER` runs once on each node of a member, in its
container if there is one. AI500_MEMBER names the member, Slurm's variables the node's index.
`--clear TRIAL_FOLDER` removes the copies that a job staged on the node.
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
"""Exit code of a member that was stopped and wrote a checkpoint: requeue it (EX_TEMPFAIL)."""
RENDEZVOUS_SECONDS = 300.0  # a shared file system may show a new file late
DIE_WITH_PARENT = str(Path(__file__).parent / "schedulers" / "die_with_parent.py")


@dataclass(frozen=True, slots=True)
class Place:
    """The position of this node among those of the member."""

    index: int
    count: int
    node: str
    job: str
    """Identifier of this start of the job; a requeued job has a new one."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Place:
        """Read Slurm's variables; without them this is the only node."""
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
    """The address at which the ranks of a member that spans nodes connect."""

    job: str
    host: str
    port: int


class Child:
    """The worker process, or the torchrun that starts the workers.

    SIGTERM is forwarded to the ranks: Slurm (with cgroups), podman and docker send it to this
    process only. Torchrun does not get it: it would kill a rank that takes more than 30 s to write
    its checkpoint. A rank that receives the signal twice ignores the second.
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
        """Run the command and return its exit code as a shell does; skip it once interrupted."""
        if self.interrupted:
            return CHECKPOINTED_EXIT_CODE
        self._process = subprocess.Popen(
            [sys.executable, "-S", DIE_WITH_PARENT, str(os.getpid()), *command],
            env=environment,
            start_new_session=True,  # a signal to this process's group must not reach the ranks
        )
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def run_member(trial: TrialFolder, member: int) -> int:
    """Train the member's ranks on this node, or all members that share its process."""
    folder = trial.member(member)
    task = run_folder.read(Task, folder.task)
    sharers = [trial.member(number) for number in task.process_members or (member,)]
    unfinished = [sharer for sharer in sharers if not sharer.record.exists()]
    if not unfinished:
        return 0  # a requeued gang also starts its finished members again
    _log_shared_process(unfinished, first=folder)
    child = Child(ranks=task.parallel_degree)
    place = Place.from_environment(os.environ)
    environment = dict(os.environ)
    if task.stage:
        staged = _stage(task, trial, place)
        assert staged.folder is not None
        environment["AI500_STAGED"] = staged.folder
    code = child.run(_command(task, folder, place), environment)
    if code != 0 and child.interrupted:
        return _exit_code_when_stopped(unfinished)
    return code


def _log_shared_process(folders: Sequence[MemberFolder], *, first: MemberFolder) -> None:
    """Point the logs of members that share a process to the first member's log."""
    attempt = os.environ.get("AI500_ATTEMPT", "1")
    for folder in folders:
        if folder.path != first.path:
            with folder.log.open("a", encoding="utf-8") as log:
                log.write(
                    f"{ATTEMPT_MARK}{attempt} of member {int(folder.path.name)}\n"
                    f"Trained in a shared process: its output is in {first.log}.\n"
                )


def _stage(task: Task, trial: TrialFolder, place: Place) -> Placement:
    """Copy the data to the node, once for all members that share it."""
    run = Path(task.run)
    bootstraps = run_folder.read_all(BootstrapRecord, trial.bootstraps)
    staged = placement.on_node(
        open_store(Path(task.store)),
        node=place.node,
        counts=[recorded_counts(run, bootstraps[member]) for member in task.node_members],
        folder=job_scratch(task),
    )
    run_folder.write(trial.node_placement(place.node, task.member), staged)
    return staged


def job_scratch(task: Task) -> Path:
    """Return the folder of this job's copies; a requeued job keeps its id."""
    job = os.environ.get("SLURM_JOB_ID", "local")
    return placement.scratch_folder(Path(task.run), stated=task.scratch) / f"job-{job}"


def _command(task: Task, folder: MemberFolder, place: Place) -> list[str]:
    """Build the worker's command: one process for one rank, one torchrun per node for several."""
    worker = [sys.executable, "-m", "ai500.train.worker", str(folder.task)]
    if task.parallel_degree == 1:
        return worker
    ranks, rest = divmod(task.parallel_degree, place.count)
    if rest:
        raise AI500Error(
            f"member {task.member} has P_degree {task.parallel_degree}, which is not a multiple of "
            f"its {place.count} nodes.",
            key="parallel_degree",
            value=task.parallel_degree,
            remedy="Start it with `ai500 run`.",
        )
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    if place.count == 1:
        return [*torchrun, "--standalone", "--no-python", *worker]
    rendezvous = _rendezvous(folder, place)
    # Static rendezvous: the node's index gives the order of the ranks, so that sums are rounded in
    # the same order at every start.
    return [
        *torchrun, f"--nnodes={place.count}", f"--node-rank={place.index}",
        f"--master-addr={rendezvous.host}", f"--master-port={rendezvous.port}",
        "--no-python", *worker,
    ]  # fmt: skip


def _rendezvous(folder: MemberFolder, place: Place) -> Rendezvous:
    """Choose a free port on the first node and publish it to the others in the run folder."""
    if place.index == 0:
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        host = os.environ.get("AI500_HEAD", socket.gethostname())
        run_folder.write(folder.rendezvous, Rendezvous(place.job, host, port))
    deadline = time.monotonic() + RENDEZVOUS_SECONDS
    while time.monotonic() < deadline:
        try:
            rendezvous = run_folder.read(Rendezvous, folder.rendezvous)
        except AI500Error:
            rendezvous = None
        if rendezvous is not None and rendezvous.job == place.job:
            return rendezvous
        time.sleep(0.2)
    raise EnvironmentLacksError(
        f"{folder.rendezvous} did not appear on {place.node} within {RENDEZVOUS_SECONDS:.0f} s.",
        path=folder.rendezvous,
        remedy="Put the run folder on a file system that all nodes share.",
    )


def _leave_barrier(trial: TrialFolder) -> None:
    """Release the rest of the gang from waiting for a member that failed before its start."""
    first = os.environ.get("SLURM_NODEID", "0") == "0"
    if first and (name := os.environ.get("AI500_BARRIER")):
        client = connect(trial.barrier, name=name, timeout_seconds=0)
        if client is not None:
            client.leave()
            client.close()


def _exit_code_when_stopped(folders: Sequence[MemberFolder]) -> int:
    """Request a requeue, unless this attempt made no progress: it would repeat for ever."""
    unfinished = [folder for folder in folders if not folder.record.exists()]
    if not unfinished:
        return 0  # the signal came when training had just finished
    attempts = [
        event["attempt"]
        for folder in unfinished
        for event in events.read(folder.events)
        if event["event"] == "interrupted"
    ]
    if int(os.environ.get("AI500_ATTEMPT", "1")) not in attempts:
        print("error: the job was stopped before its first training step.", file=sys.stderr)
        return 1
    return CHECKPOINTED_EXIT_CODE


def clear(trial: TrialFolder) -> int:
    """Remove this job's copies from the node; all members' tasks name the same scratch folder."""
    tasks = sorted(trial.path.glob("members/*/task.json"))
    if tasks:
        task = run_folder.read(Task, tasks[0])
        placement.remove(job_scratch(task))
        if "SLURM_JOB_ID" in (task.scratch or ""):  # an empty folder named after the job
            with contextlib.suppress(OSError):
                job_scratch(task).parents[1].rmdir()
    return 0


def main() -> int:
    """Run the member that the environment names, or clear its copies."""
    *flags, trial = sys.argv[1:]
    try:
        if flags == ["--clear"]:
            return clear(TrialFolder(Path(trial)))
        return _run_or_leave(TrialFolder(Path(trial)), int(os.environ["AI500_MEMBER"]))
    except AI500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _run_or_leave(trial: TrialFolder, member: int) -> int:
    """Run the member; leave the gang's barrier if it fails."""
    code = 1
    try:
        code = run_member(trial, member)
    finally:
        if code != 0:
            _leave_barrier(trial)
    return code


def children_of(process: int) -> list[int]:
    """List the ids of a process's children."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The command's name, in parentheses, may contain any character.
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            if parent == process:
                children.append(int(stat.parent.name))
    return children


if __name__ == "__main__":
    sys.exit(main())
