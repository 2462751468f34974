"""Slurm: the members as tasks of a job array, or as steps of one gang (V3 §3.3, §3.7).

One `squeue` per poll for the whole run. What was submitted is in the trial's folder `slurm/`
before Slurm knows of it, so a controller that dies in between finds its jobs again by their name.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ai500.config import Config
from ai500.core.atomic import write_text
from ai500.jobs.barrier import BarrierServer
from ai500.jobs.schedulers import JobSpec, JobStatus, SchedulerUnavailableError, Setting
from ai500.jobs.schedulers import slurm_checks as checks
from ai500.jobs.schedulers import slurm_commands as commands
from ai500.jobs.schedulers.slurm_script import Part, Request, array_script, gang_script
from ai500.records import Cluster, Plan, run_folder
from ai500.records.run_folder import TrialFolder

CHECKPOINT_SECONDS = 60.0
CANCEL_SECONDS = 120.0
SUBMIT_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Submission:
    """One sbatch call: written before it, and again with Slurm's answer."""

    name: str
    start: str
    members: tuple[int, ...]
    job: str | None
    others: tuple[tuple[int, ...], ...] = ()
    """For each of `members` those that the same process trains."""

    def ids(self) -> list[str]:
        """An id for each member, in order: an array's task, or a gang's member."""
        mark = "_" if self.start == "array" else "m"
        numbers = range(len(self.members)) if self.start == "array" else self.members
        return [f"{self.job}{mark}{number}" for number in numbers]


class SlurmScheduler:
    """The jobs of one trial."""

    poll_seconds = 2.0
    slowest_poll_seconds = 30.0

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._slurm = setting.config.slurm
        self._folder = setting.trial / "slurm"
        self._point: BarrierServer | None = None
        self._waiting: set[str] = set()
        self._cancelled = self._folder / "cancelled"
        """While it is there, no job is requeued by its own script."""

    def submit(self, jobs: Sequence[JobSpec]) -> list[str]:
        """One array or gang, or several arrays where one would pass MaxArraySize."""
        self._cancelled.unlink(missing_ok=True)
        ids: list[str] = []
        for chunk in self._chunks(jobs):
            ids += self._submit(chunk, after=ids[-1:] if _at_once(self._setting.plan) else ())
        return ids

    def submitted_before(self) -> dict[int, str]:
        """Member → its last job; one whose sbatch nobody saw the answer of is found by name."""
        found: dict[int, str] = {}
        for file in self._files():
            submission = run_folder.read(Submission, file)
            if submission.job is None and (known := commands.jobs_named(submission.name)):
                submission = replace(submission, job=known[0])
            if submission.job is not None:
                found.update(zip(submission.members, submission.ids(), strict=True))
                for others, job in zip(submission.others, submission.ids(), strict=False):
                    found.update(dict.fromkeys(others, job))
        return found

    def follow(self) -> None:
        """Be the clock that an array's members compare theirs with; a gang has its own."""
        for file in self._files():
            submission = run_folder.read(Submission, file)
            if submission.job is None and (known := commands.jobs_named(submission.name)):
                run_folder.write(file, replace(submission, job=known[0]))
        if self._slurm.start == "array" and self._point is None:
            self._point = BarrierServer(TrialFolder(self._setting.trial), name=self._setting.name)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.json"), key=lambda file: int(file.stem))

    def states(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """All in one squeue; of a gang's members those that have ended say so themselves."""
        jobs = {one: one.partition("m")[0] for one in ids}
        told = commands.job_states(set(jobs.values())) if jobs else {}
        exits = self._exits({base for one, base in jobs.items() if "m" in one})
        # A task that is cancelled while it waits is gone at once, and without a trace.
        cancelled = {job for job in self._waiting if job in told and told[job].state == "lost"}
        self._waiting = {job for job, one in told.items() if one.state == "pending"}
        # Tasks that wait share a row of squeue's answer, and so a status.
        said = {key: _status(row) for key, row in {id(one): one for one in told.values()}.items()}
        states = {one: said[id(told[base])] for one, base in jobs.items()}
        for one, code in exits.items():
            # A gang that still runs may be about to be requeued with all its members: what one of
            # them failed with counts only when the gang has ended.
            if one in jobs and (code == 0 or states[one].state not in ("pending", "running")):
                states[one] = _ended_with(code, gang=states[one])
        if self._cancelled.exists():  # who is asked to stop ends as it can: that is no failure
            states |= {
                one: replace(status, state="cancelled")
                for one, status in states.items()
                if status.state in ("failed", "lost")
            }
        gone = JobStatus("cancelled", reason="cancelled before it started")
        return states | {one: gone for one, base in jobs.items() if base in cancelled}

    def cancel(self, ids: Sequence[str]) -> None:
        """Ask the members first: they write a checkpoint, and the script clears up behind them. A
        plain `scancel` would end the script, too, and where srun gets its signal, srun kills."""
        jobs = sorted({one.partition("m")[0] for one in ids})
        if jobs:
            write_text(self._cancelled, "by ai500\n")
            commands.cancel_waiting_jobs(jobs)
            commands.stop_steps(jobs)
            left = self._wait_for_end(jobs, seconds=CHECKPOINT_SECONDS)
            commands.cancel_jobs(left)
            self._wait_for_end(left, seconds=CANCEL_SECONDS)
        self.close()

    @staticmethod
    def _wait_for_end(jobs: Sequence[str], *, seconds: float) -> list[str]:
        """Those that have not ended by then."""
        left, deadline = list(jobs), time.monotonic() + seconds
        while left:
            told = commands.job_states(left)
            left = [job for job in left if told[job].state in ("pending", "running")]
            if time.monotonic() > deadline:
                break
            time.sleep(0.5 if left else 0.0)
        return left

    def close(self) -> None:
        """Answer no clock questions any more."""
        if self._point is not None:
            self._point.close()
            self._point = None

    def preview(self, jobs: Sequence[JobSpec]) -> list[tuple[str, str]]:
        """The scripts, not submitted."""
        chunks = list(self._chunks(jobs))
        return [
            (f"{self._slurm.start} {number} of {len(chunks)}", self._script(chunk, "001"))
            for number, chunk in enumerate(chunks, start=1)
        ]

    def _chunks(self, jobs: Sequence[JobSpec]) -> Iterator[Sequence[JobSpec]]:
        cluster = self._setting.plan.cluster
        size = len(jobs)
        if self._slurm.start == "array" and cluster is not None:
            size = min(size, cluster.max_array_size)
        for first in range(0, len(jobs), max(1, size)):
            yield jobs[first : first + size]

    def _submit(self, jobs: Sequence[JobSpec], *, after: Sequence[str]) -> list[str]:
        """`after`: so that two arrays together do not take more than Sys_scale."""
        number = f"{1 + len(list(self._folder.glob('*.sh'))):03d}"
        script = self._script(jobs, number)
        members = tuple(job.member for job in jobs)
        groups = tuple(job.others for job in jobs)
        submission = Submission(self._name(number), self._slurm.start, members, None, groups)
        file = self._folder / f"{number}.json"
        run_folder.write(file, submission)
        write_text(self._folder / f"{number}.sh", script)
        submission = replace(
            submission, job=self._sbatch(script, name=submission.name, after=after)
        )
        run_folder.write(file, submission)
        return submission.ids()

    def _sbatch(self, script: str, *, name: str, after: Sequence[str]) -> str:
        """Slurm's controller may be restarting: a submission waits for it a while."""
        deadline = time.monotonic() + SUBMIT_PATIENCE_SECONDS
        options = [f"--chdir={self._setting.trial}"]
        options += [f"--dependency=afterany:{job.partition('_')[0]}" for job in after]
        while True:
            try:
                return commands.submit_script(script, options=options)
            except SchedulerUnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(5.0)
            # Slurm may have taken the job without living to say so.
            with contextlib.suppress(SchedulerUnavailableError):
                if known := commands.jobs_named(name):
                    return known[0]

    def _name(self, number: str) -> str:
        return f"{self._setting.name}-{number}"

    def _script(self, jobs: Sequence[JobSpec], number: str) -> str:
        request = self._request(jobs, number)
        return gang_script(request) if self._slurm.start == "gang" else array_script(request)

    def _request(self, jobs: Sequence[JobSpec], number: str) -> Request:
        plan, slurm, launcher = self._setting.plan, self._slurm, self._setting.launcher
        nodes = _gang_nodes(jobs) if slurm.start == "gang" else {}
        share = jobs[0].shares[0]
        python, module = jobs[0].command[0], "ai500.jobs.node_agent"
        trial = str(self._setting.trial)
        waves = {job.member: plan.mapping[job.member].wave for job in jobs}
        least = min(waves.values())
        return Request(
            name=self._name(number),
            trial=self._setting.trial,
            parts=[Part(job.member, job.attempt, nodes.get(job.shares[0].node, 0)) for job in jobs],
            nodes_per_member=len(jobs[0].shares),
            gang_nodes=len(nodes),
            slots_per_node=len(share.slots),
            job_slots_per_node=_slots_per_node(jobs) if nodes else len(share.slots),
            cpus_per_slot=cpus_per_slot(plan, self._setting.config),
            accelerators=plan.device != "cpu",
            at_once=_at_once(plan),
            first_wave=sum(wave == least for wave in waves.values()),
            shares_accelerators=plan.members_per_accelerator > 1,
            stages=plan.stage,
            command=launcher(jobs[0].command),
            clear=launcher([python, "-m", module, "--clear", trial]),
            barrier=launcher([python, "-m", "ai500.jobs.barrier", trial]),
            srun_flags=launcher.srun_flags,
            environment={
                name: value
                for name, value in jobs[0].environment.items()
                if name not in ("AI500_MEMBER", "AI500_ATTEMPT")
            },
            exits=self._folder / f"{number}.exits",
            cancelled=self._cancelled,
            slurm=slurm,
        )

    def _exits(self, gangs: set[str]) -> dict[str, int]:
        """What the members of these gangs ended with, as far as they have."""
        codes: dict[str, int] = {}
        for file in self._files() if gangs else ():
            submission = run_folder.read(Submission, file)
            if submission.job in gangs:
                codes |= _read_exits(file.with_suffix(".exits"), submission.job)
        return codes


class SlurmKind:
    """Jobs of a Slurm cluster."""

    outlives_controller = True
    controller_places_data = False

    def survey(self, config: Config) -> Cluster | None:
        """The nodes of the partition that can be used, and what one of them has."""
        slurm = config.slurm
        checks.check_settings(config)
        told = commands.read_cluster(partition=slurm.partition, constraint=slurm.constraint)
        usable = [node for node in told.nodes if node.usable]
        wanted = config.system.accelerators_per_node
        if config.system.device != "cpu" and wanted is not None and any(n.gpus for n in usable):
            usable = [node for node in usable if node.gpus >= wanted]
        unusable = {n.name: n.why or n.state for n in told.nodes if not n.usable}
        if not usable:
            raise checks.no_node(told.partition, unusable, constraint=slurm.constraint)
        checks.check_time_limit(slurm.time_limit, partition=told)
        checks.check_uniform(told.partition, usable, device=config.system.device)
        return Cluster(
            name=told.name,
            partition=told.partition,
            nodes=tuple(node.name for node in usable),
            unusable=unusable,
            cpus_per_node=min(node.cpus for node in usable),
            threads_per_core=max(node.threads_per_core for node in usable),
            accelerators_per_node=usable[0].gpus,
            max_array_size=told.max_array_size,
            max_seconds=told.max_seconds,
            accounting=told.accounting,
            version=told.version,
        )

    def make(self, setting: Setting) -> SlurmScheduler:
        """For one trial."""
        return SlurmScheduler(setting)

    def preview(self, setting: Setting, jobs: Sequence[JobSpec]) -> list[tuple[str, str]]:
        """The batch scripts."""
        return SlurmScheduler(setting).preview(jobs)


SLURM = SlurmKind()


def cpus_per_slot(plan: Plan, config: Config) -> int:
    """CPUs that Slurm is asked for with each accelerator, or that make a CPU slot [D8]."""
    if config.slurm.cpus_per_accelerator is not None:
        return config.slurm.cpus_per_accelerator
    if plan.device == "cpu" and config.system.cores_per_slot is not None:
        return config.system.cores_per_slot
    assert plan.cluster is not None
    each = plan.cluster.cpus_per_node // len(plan.nodes[0].slots)
    # Slurm gives whole cores: half of one would take the other half from the next slot.
    threads = plan.cluster.threads_per_core
    return max(1, each - each % threads)


def _ended_with(exit_code: int, *, gang: JobStatus) -> JobStatus:
    if exit_code == 0:
        return JobStatus("done", 0)
    return JobStatus("cancelled" if gang.state == "cancelled" else "failed", exit_code, gang.reason)


def _status(told: commands.SlurmJob) -> JobStatus:
    reason = told.reason if told.state == "pending" else told.slurm_state
    return JobStatus(told.state, told.exit_code, reason, told.restarts)


def _read_exits(path: Path, job: str) -> dict[str, int]:
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = re.findall(r"^(\d+) (\d+)\n", text, flags=re.MULTILINE)
    return {f"{job}m{member}": int(code) for member, code in pairs}


def _gang_nodes(jobs: Sequence[JobSpec]) -> dict[str, int]:
    """The planned nodes these members use, numbered: the gang's nodes stand for them."""
    names = dict.fromkeys(share.node for job in jobs for share in job.shares)
    return {name: number for number, name in enumerate(names)}


def _slots_per_node(jobs: Sequence[JobSpec]) -> int:
    used: dict[str, set[int]] = {}
    for job in jobs:
        for share in job.shares:
            used.setdefault(share.node, set()).update(share.slots)
    return max(len(slots) for slots in used.values())


def _at_once(plan: Plan) -> int | None:
    """A limit where Sys_scale is less than the cluster could give."""
    slots = len(plan.nodes[0].slots)
    if plan.cluster is None or plan.system_scale >= slots * len(plan.cluster.nodes):
        return None
    return plan.system_scale // plan.parallel_degree
