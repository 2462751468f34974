"""The agent of a gang on one node: a process for each member there, in one step of Slurm (ADR 13).

`python -m ai500.jobs.gang_agent TRIAL_FOLDER --gang FILE …` runs once on each node of the gang, in
its container if there is one. It divides the node's CPUs and accelerators among the members, starts
each as a fork of itself that runs the node agent, and reports the ends to the barrier server. A
member that fails ends neither the others nor the step; on its own other nodes it is ended too.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import selectors
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ai500.core.barrier import BarrierClient, connect
from ai500.core.errors import AI500Error
from ai500.jobs import node_agent
from ai500.jobs.gang import GangPart, read_node
from ai500.jobs.launchers import DEVICE_VARIABLES
from ai500.jobs.schedulers import ATTEMPT_MARK
from ai500.records import Task, run_folder
from ai500.records.run_folder import TrialFolder
from ai500.records.worker_exit import CHECKPOINTED_EXIT_CODE, SIGNAL_EXIT

SERVER_SECONDS = 60.0  # the barrier server's step starts beside the agents'
_PR_SET_PDEATHSIG = 1


class GangAgent:
    """The members of one node: those that wait for slots, and those that run."""

    def __init__(
        self,
        trial: TrialFolder,
        parts: Sequence[GangPart],
        *,
        addresses: Sequence[str] = (),
        cpus_per_slot: int = 1,
        binds: bool = True,
        divides_devices: bool = True,
    ) -> None:
        self._trial = trial
        self._waiting = list(parts)
        self._running: dict[int, GangPart] = {}
        self._addresses = addresses
        self._cpus_per_slot = cpus_per_slot
        self._divides_devices = divides_devices
        slots = 1 + max((slot for part in parts for slot in part.slots), default=0)
        self._cpus = cpus_by_slot(slots, cpus_per_slot=cpus_per_slot) if binds else []
        self._server: BarrierClient | None = None
        self._signals = -1
        self._stops = False

    def start(self) -> None:
        """Start the members whose slots are free."""
        self._signals, writer = os.pipe()
        for end in (self._signals, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._stop)
        self._start_free()

    def run(self, server: BarrierClient | None) -> None:
        """Run all members to their ends."""
        self._server = server
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ)
            if server is not None:
                selector.register(server, selectors.EVENT_READ)
            self._collect_ended()
            while self._running or self._waiting:
                self._start_free()
                for key, _ in selector.select():
                    if key.fileobj is server and not self._end_failed():
                        selector.unregister(server)
                with contextlib.suppress(BlockingIOError):
                    os.read(self._signals, 4096)
                self._collect_ended()

    def _stop(self, number: int, frame: object) -> None:
        """Forward SIGTERM: with cgroups Slurm sends it to this process only."""
        self._stops = True
        for process in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def _start_free(self) -> None:
        """Start the members whose slots are free; one waits for those of earlier waves there."""
        for part in list(self._waiting):
            if self._stops:
                self._waiting.remove(part)
                self._report(part, CHECKPOINTED_EXIT_CODE)
            elif not any(
                other.wave < part.wave and set(other.slots) & set(part.slots)
                for other in [*self._running.values(), *self._waiting]
            ):
                self._waiting.remove(part)
                self._start(part)

    def _start(self, part: GangPart) -> None:
        # SIGTERM in between would miss the new process.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        parent, process = os.getpid(), os.fork()
        if process:
            self._running[process] = part
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            return
        code = 1
        try:
            code = self._run_member(part, parent=parent)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _run_member(self, part: GangPart, *, parent: int) -> int:
        """Become the node agent of a member; its output goes to the member's log."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return 1  # the agent has ended meanwhile
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(CHECKPOINTED_EXIT_CODE))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.environ.update(self.environment(part))
        if part.ranks:
            os.environ["AI500_TASKS_PER_NODE"] = part.ranks
        if self._cpus:
            os.sched_setaffinity(0, [cpu for slot in part.slots for cpu in self._cpus[slot]])
        log = self._trial.member(part.member).node_log(part.index)
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        attempt, job = os.environ["AI500_ATTEMPT"], os.environ.get("SLURM_JOB_ID")
        node = os.environ.get("SLURMD_NODENAME")
        print(f"{ATTEMPT_MARK}{attempt} of member {part.member}: job {job} on {node}", flush=True)
        return node_agent.run(self._trial, part.member)

    def environment(self, part: GangPart) -> dict[str, str]:
        """Return the member's variables: Slurm's as in a step of its own, its accelerators."""
        attempt = part.attempt + int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        cpus = self._cpus_per_slot * (1 if part.ranks else len(part.slots))
        devices = divided_devices(os.environ, part.slots) if self._divides_devices else {}
        head = {"AI500_HEAD": self._addresses[part.head]} if self._addresses else {}
        return {
            "AI500_MEMBER": str(part.member),
            "AI500_ATTEMPT": str(attempt),
            "SLURM_NODEID": str(part.index),
            "SLURM_PROCID": str(part.index),
            "SLURM_STEP_NUM_NODES": str(part.count),
            "SLURM_STEP_NUM_TASKS": str(part.count),
            "SLURM_NTASKS": str(part.count),
            "SLURM_NPROCS": str(part.count),
            "SLURM_CPUS_PER_TASK": str(cpus),
            **head,
            **devices,
        }

    def _collect_ended(self) -> None:
        while self._running:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if (part := self._running.pop(process, None)) is not None:
                self._report(part, code if code >= 0 else SIGNAL_EXIT - code)

    def _report(self, part: GangPart, code: int) -> None:
        if code == 0 and part.index == 0 and not self._trial.member(part.member).record.exists():
            code = 1
        if self._server is not None:
            self._server.report_end(part.member, node=part.index, nodes=part.count, code=code)

    def _end_failed(self) -> bool:
        """End members that failed on another node; return False if the server has ended."""
        failed = self._server.failed_members() if self._server is not None else None
        for process, part in self._running.items():
            if part.member in (failed or ()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)  # its workers die with it
        return failed is not None


def cpus_by_slot(slots: int, *, cpus_per_slot: int) -> list[list[int]]:
    """Divide the CPUs that Slurm bound this task to; empty: it bound none, or other than asked."""
    cpus = sorted(os.sched_getaffinity(0), key=_core)
    asked = int(os.environ.get("SLURM_CPUS_PER_TASK", "0"))
    if len(cpus) != asked or slots * cpus_per_slot > asked:
        return []
    return [cpus[slot * cpus_per_slot : (slot + 1) * cpus_per_slot] for slot in range(slots)]


def _core(cpu: int) -> tuple[int, int]:
    """Order hardware threads by their core, so that a slot has whole cores."""
    try:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings = path.read_text().replace("-", ",").split(",")
        return min(map(int, siblings)), cpu
    except (OSError, ValueError):
        return cpu, cpu


def divided_devices(environ: Mapping[str, str], slots: Sequence[int]) -> dict[str, str]:
    """Return the variables that list accelerators, with those of these slots only."""
    listed = {name: environ[name].split(",") for name in DEVICE_VARIABLES if environ.get(name)}
    divided = {
        name: ",".join(devices[slot] for slot in slots)
        for name, devices in listed.items()
        if max(slots) < len(devices)
    }
    if "ROCR_VISIBLE_DEVICES" in divided:
        # HIP numbers those that ROCr leaves, from 0; else it would read CUDA_VISIBLE_DEVICES.
        divided["HIP_VISIBLE_DEVICES"] = ",".join(map(str, range(len(slots))))
    return divided


def main() -> int:
    """Run the members of this node."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("trial", type=Path)
    parser.add_argument("--gang", type=Path, required=True, help="file of the gang's members")
    parser.add_argument("--nodes", type=Path, help="file of the nodes' addresses")
    parser.add_argument("--cpus-per-slot", type=int, default=1)
    parser.add_argument("--no-binding", action="store_true", help="leave CPUs undivided")
    parser.add_argument("--all-devices", action="store_true", help="leave accelerators undivided")
    arguments = parser.parse_args()
    trial = TrialFolder(arguments.trial)
    try:
        node = read_node(arguments.gang, int(os.environ.get("SLURM_NODEID", "0")))
    except AI500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    agent = GangAgent(
        trial,
        node.parts,
        addresses=arguments.nodes.read_text().splitlines() if arguments.nodes else (),
        cpus_per_slot=arguments.cpus_per_slot,
        binds=not arguments.no_binding,
        divides_devices=not arguments.all_devices,
    )
    with scratch_of(trial, node.parts):
        return _run(agent, trial)


@contextlib.contextmanager
def scratch_of(trial: TrialFolder, parts: Sequence[GangPart]) -> Iterator[None]:
    """Keep the node's copies until the last wave has ended."""
    with contextlib.ExitStack() as stack:
        for part in parts:
            # A task or a folder that can't be used is an error of the member that needs it.
            with contextlib.suppress(AI500Error, OSError):
                task = run_folder.read(Task, trial.member(part.member).task)
                stack.enter_context(node_agent.scratch(task))
                break
        yield


def _run(agent: GangAgent, trial: TrialFolder) -> int:
    agent.start()
    name = os.environ.get("AI500_BARRIER")
    server = connect(trial.barrier, name=name, timeout_seconds=SERVER_SECONDS)
    if server is None:
        print("error: no barrier server: the members' records alone decide", file=sys.stderr)
    else:
        server.join()
    agent.run(server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
