"""The node agent: stages data on a node, runs the ranks of a member, and returns its exit code.

`python -m ai500.jobs.node_agent TRIAL_FOLDER` runs once on each node of a member, in its
container if there is one. AI500_MEMBER names the member, Slurm's variables the node's index.
`--clear TRIAL_FOLDER` removes the copies on the node after an agent was killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ai500.core import events
from ai500.core.atomic import explained
from ai500.core.barrier import connect
from ai500.core.errors import AI500Error
from ai500.core.heartbeat import is_held, wait_while_beating
from ai500.core.processes import AGENT_VARIABLE, children_of
from ai500.core.source import DIE_WITH_PARENT
from ai500.data.bootstrap import recorded_counts
from ai500.data.open_store import open_store
from ai500.frameworks.protocol import NodePlace, WorkerCommand, load_framework
from ai500.jobs.memory_kills import memory_kills
from ai500.jobs.reports import VARIABLE, Report, send
from ai500.jobs.schedulers import ATTEMPT_MARK
from ai500.parallel import placement
from ai500.parallel.data_duplicator import TRAIN
from ai500.records import BootstrapRecord, Placement, Task, WorkerExit, run_folder
from ai500.records.run_folder import MemberFolder, TrialFolder
from ai500.records.worker_exit import CHECKPOINTED_EXIT_CODE, SIGNAL_EXIT

SIGKILL_EXIT = SIGNAL_EXIT + signal.SIGKILL
RANK_EXIT = re.compile(r"^ *exitcode *: (-?\d+) ", re.MULTILINE)
"""A line of torchrun's report: `  exitcode  : -9 (pid: 1234)`."""


class Child:
    """The worker process, or the torchrun that starts the workers.

    SIGTERM is forwarded to the ranks: Slurm (with cgroups), podman and docker send it to this
    process only. Torchrun does not get it: it would kill a rank that takes more than 30 s to write
    its checkpoint. A rank that receives the signal twice ignores the second.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self._starts_ranks = False
        self._process: subprocess.Popen[bytes] | None = None
        signal.signal(signal.SIGTERM, self._interrupt)

    def _interrupt(self, number: int, frame: object) -> None:
        self.interrupted = True
        if self._process is not None:
            first = self._process.pid
            for rank in children_of(first) if self._starts_ranks else [first]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, number)

    def run(self, command: WorkerCommand, environment: Mapping[str, str]) -> int:
        """Run the command and return its exit code as a shell does; skip it once interrupted."""
        if self.interrupted:
            return CHECKPOINTED_EXIT_CODE
        self._starts_ranks = command.starts_ranks
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-S", DIE_WITH_PARENT, str(os.getpid()), *command.words],
                env={**environment, AGENT_VARIABLE: str(os.getpid())},
                start_new_session=True,  # a signal to this process's group must not reach the ranks
            )
        except OSError as error:
            raise explained(error, "cannot start the worker", path=None) from error
        code = self._process.wait()
        if command.temporary is not None:
            shutil.rmtree(command.temporary, ignore_errors=True)
        for folder in Path(tempfile.gettempdir()).glob("torchinductor_*"):
            with contextlib.suppress(OSError):  # a cache with contents stays, for the next run
                folder.rmdir()
        return code if code >= 0 else SIGNAL_EXIT - code


def run_member(trial: TrialFolder, member: int) -> int:
    """Train the member's ranks on this node, or all members that share its process."""
    folder = trial.member(member)
    task = run_folder.read(Task, folder.task)
    sharers = [trial.member(number) for number in task.process_members or (member,)]
    child = Child()
    _wait_for_earlier_worker(folder, child)
    unfinished = [sharer for sharer in sharers if not sharer.record.exists()]
    if not unfinished:
        return 0  # a requeued gang also starts its finished members again
    _log_shared_process(unfinished, first=folder)
    framework = load_framework(task.framework.kind)
    place = NodePlace.from_environment(os.environ)
    kills = memory_kills()
    with scratch(task) as copies:
        environment = dict(os.environ)
        if copies is not None:
            staged = _stage(task, trial, place, copies)
            assert staged.folder is not None
            environment["AI500_STAGED"] = staged.folder
        command = framework.command(task, folder=folder, place=place)
        code = child.run(command, environment)
    if code != 0 and child.interrupted:
        return _exit_code_when_stopped(unfinished)
    if code != 0:
        # torchrun reports the signal that ended a rank as a failure of its own.
        if command.starts_ranks:
            code = exit_code_of_rank(_log_of(folder, place)) or code
        may_be_killed = code == SIGKILL_EXIT or command.starts_ranks
        _record_exit(unfinished, place, code, kills_before=kills if may_be_killed else None)
    return code


def _wait_for_earlier_worker(folder: MemberFolder, child: Child) -> None:
    """Wait for a worker of this member that still trains on a node which Slurm gave up."""
    if is_held(folder.lock):
        print("another worker holds this member's lock: waiting while it lives", flush=True)
        wait_while_beating(folder.lock, ended=lambda: child.interrupted or folder.record.exists())


def _log_of(folder: MemberFolder, place: NodePlace) -> Path:
    """Return the log of this node; srun writes one for all nodes of a member."""
    own = folder.node_log(place.index)
    return own if own.exists() else folder.log


def exit_code_of_rank(log: Path) -> int | None:
    """Return the exit code of the rank that failed first, from torchrun's report; None: none."""
    with contextlib.suppress(OSError):
        attempt = log.read_text(encoding="utf-8", errors="replace").rpartition(ATTEMPT_MARK)[2]
        if codes := RANK_EXIT.findall(attempt):
            code = int(codes[-1])  # its last lines name the root cause
            return code if code >= 0 else SIGNAL_EXIT - code
    return None


def _record_exit(
    folders: Sequence[MemberFolder], place: NodePlace, code: int, *, kills_before: int | None
) -> None:
    """Record how the worker ended, for the controller; `kills_before`: None without a counter."""
    kills = None if kills_before is None else memory_kills()
    out_of_memory = None if kills is None or kills_before is None else kills > kills_before
    if out_of_memory:
        print("error: out of memory: the kernel killed a process of this job.", file=sys.stderr)
    end = WorkerExit(
        attempt=int(os.environ.get("AI500_ATTEMPT", "1")),
        node=place.node,
        exit_code=code,
        out_of_memory=out_of_memory,
    )
    with contextlib.suppress(AI500Error):  # a full disk must not hide the worker's exit code
        for folder in folders:
            if folder.path.exists():  # a deleted run folder is not made again
                run_folder.write(folder.exit(place.index), end)


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


def _stage(task: Task, trial: TrialFolder, place: NodePlace, folder: Path) -> Placement:
    """Copy the data to the node, once for all members that share it."""
    run, store = Path(task.run), open_store(Path(task.store))
    bootstraps = run_folder.read_all(BootstrapRecord, trial.bootstraps)
    counts = [recorded_counts(run, bootstraps[member]) for member in task.node_members]
    every_sample = np.ones(store.splits[TRAIN].count, dtype=np.uint8)
    staged = placement.on_node(
        store, node=place.node, counts=counts or [every_sample], folder=folder
    )
    run_folder.write(trial.node_placement(place.node, task.member), staged)
    return staged


@contextlib.contextmanager
def scratch(task: Task) -> Iterator[Path | None]:
    """Use the run's folder of copies on this node; None if the job stages nothing.

    All members of the run on this node share it, whichever job brings them.
    """
    if not task.stage:
        yield None
        return
    with placement.shared_folder(Path(task.run), stated=task.scratch) as folder:
        yield folder
    if "SLURM_JOB_ID" in (task.scratch or ""):  # an empty folder named after the job
        with contextlib.suppress(OSError):
            folder.parent.rmdir()


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
    """Remove copies on this node that no process uses; all tasks name the same scratch folder."""
    task = next(trial.path.glob("members/*/task.json"), None)
    if task is not None:
        with scratch(run_folder.read(Task, task)):
            pass  # the last user removes them
    return 0


def main() -> int:
    """Run the member that the environment names, or clear its copies."""
    *flags, trial = sys.argv[1:]
    if flags == ["--clear"]:
        return clear(TrialFolder(Path(trial)))
    return run(TrialFolder(Path(trial)), int(os.environ["AI500_MEMBER"]))


def run(trial: TrialFolder, member: int) -> int:
    """Run the member and print its error; leave the gang's barrier if it fails."""
    code = 1
    report(trial, member, None)
    try:
        code = run_member(trial, member)
    except AI500Error as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    finally:
        if code != 0:
            _leave_barrier(trial)
        if code != CHECKPOINTED_EXIT_CODE:  # its job is requeued
            report(trial, member, code)
    return code


def report(trial: TrialFolder, member: int, exit_code: int | None) -> None:
    """Report start or end of the members of this process, if the controller follows reports."""
    if VARIABLE in os.environ and os.environ.get("SLURM_NODEID", "0") == "0":
        with contextlib.suppress(AI500Error):
            task = run_folder.read(Task, trial.member(member).task)
            attempt = int(os.environ.get("AI500_ATTEMPT", "1"))
            sharers = task.process_members or (member,)
            send(trial, [Report(sharer, attempt, exit_code) for sharer in sharers])


if __name__ == "__main__":
    sys.exit(main())
