"""Slurm: the members as tasks of a job array, or as steps of one gang (V3 §3.3, §3.7).

One `squeue` per poll for the whole run. Each submission is recorded in the trial's folder `slurm/`
before sbatch is called, so a controller that dies in between finds its jobs again by their name.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ai500.config import Config, SlurmConfig
from ai500.core.atomic import write_text
from ai500.core.errors import JobError
from ai500.core.shell import quoted
from ai500.jobs import gang
from ai500.jobs.barrier import BarrierServer
from ai500.jobs.outage import Outage, ask_patiently
from ai500.jobs.schedulers import (
    ACTIVE,
    JobSpec,
    JobStatus,
    SchedulerContext,
    SchedulerUnavailableError,
    slurm_cluster,
)
from ai500.jobs.schedulers import slurm_commands as commands
from ai500.jobs.schedulers.slurm_output import SlurmJob
from ai500.jobs.schedulers.slurm_script import Part, Request, array_script, gang_script
from ai500.parallel.parallelism_controller import straddling_slots
from ai500.records import Cluster, JobLimits, Plan, run_folder
from ai500.records.run_folder import TrialFolder

CHECKPOINT_SECONDS = 60.0  # for cancelled members to write their checkpoints
POLL_GROWTH = 1.5
CANCEL_SECONDS = 120.0  # for slurmctld to end jobs after scancel
SUBMIT_PAUSE_SECONDS = 5.0
LOOKUPS = 3  # a request that slurmctld has received may still wait there
MAX_SKIPPED_LINES = 20  # a banner may contain the time, and be new in every answer


@dataclass(frozen=True, slots=True)
class Submission:
    """One sbatch call: written before it, and again with the job id."""

    name: str
    start: str
    processes: tuple[tuple[int, ...], ...]
    """Members that each process trains."""
    job: str | None

    def ids(self) -> list[str]:
        """List an id for each process, in order: an array's task, or a gang's first member."""
        if self.start == "array":
            return [f"{self.job}_{task}" for task in range(len(self.processes))]
        return [f"{self.job}m{members[0]}" for members in self.processes]


class SlurmScheduler:
    """Submits, follows and cancels the jobs of one trial."""

    poll_seconds = 2.0
    slowest_poll_seconds = 60.0

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._slurm = context.config.slurm
        self._folder = context.trial / "slurm"
        self._patience_seconds = 60 * context.config.scheduler.patience_minutes
        self._clock_server: BarrierServer | None = None
        self._pending: set[str] = set()
        self._active: dict[str, SlurmJob] = {}
        """Last answer about each job that had not ended."""
        self._skipped: set[str] = set()
        self._earlier: list[str] = []
        """Last job of a portion that the next portion has to wait for."""
        self._left: set[int] = set()
        """Members of portions for which Slurm had no room."""
        self._largest_portion: int | None = None
        """Most tasks of an array that Slurm takes at present; None: no limit was met."""
        self._noted_left = 0
        self._cancelled = self._folder / "cancelled"
        """Flag file: while it exists, batch scripts do not requeue their jobs."""

    def submit(self, jobs: Sequence[JobSpec]) -> list[str]:
        """Submit one array or gang, or several arrays where Slurm's limits require it.

        The ids are those of the jobs that Slurm took, the first ones; it has no room for the rest.
        """
        self._cancelled.unlink(missing_ok=True)
        ids: list[str] = []
        at_once = _at_once(self._context.plan)
        # A retry that comes between two portions waits for none.
        continued = any(job.member in self._left for job in jobs)
        earlier = self._earlier if continued and self._active else []
        while left := jobs[len(ids) :]:
            part = left[: self._portion(len(left))]
            try:
                ids += self._submit(part, after=earlier)
            except commands.QueueFullError as error:
                # Portions wait for each other: smaller ones would not fill Sys_scale.
                smallest = 2 * at_once if earlier and at_once else 2
                if self._slurm.start == "array" and len(part) >= smallest:
                    self._largest_portion = len(part) // 2
                    continue
                if len(part) == 1 and commands.REFUSED_ARRAY in str(error):
                    raise  # MaxArraySize = 0: waiting does not help
                self._note_full(len(left), str(error))
                self._left |= {job.member for job in left}
                self._earlier = earlier or self._earlier
                return ids
            self._left -= {job.member for job in part}
            if self._largest_portion is not None:
                self._largest_portion *= 2
            earlier = ids[-1:] if at_once else []
        return ids

    def _note_full(self, left: int, reason: str) -> None:
        if left != self._noted_left:
            self._noted_left = left
            self._context.note(f"{left} jobs wait until Slurm takes more: {reason}")

    def _portion(self, left: int) -> int:
        """Return the number of jobs to submit in one array; a gang is one job."""
        cluster = self._context.plan.cluster
        if self._slurm.start != "array" or cluster is None:
            return left
        return min(left, max(1, cluster.max_array_size), self._largest_portion or left)

    def submitted_before(self) -> dict[int, str]:
        """Return member → its last job; look up by name those whose id was not recorded."""
        jobs: dict[int, str] = {}
        for submission in map(_identified, self._submissions().values()):
            if submission.job is not None:
                for members, job_id in zip(submission.processes, submission.ids(), strict=True):
                    jobs.update(dict.fromkeys(members, job_id))
        return jobs

    def follow(self) -> None:
        """Record ids of earlier jobs, and serve the reference clock of an array's members.

        A gang runs a clock and barrier server of its own.
        """
        for file, submission in self._submissions().items():
            if submission != (identified := _identified(submission)):
                run_folder.write(file, identified)
        if self._slurm.start == "array" and self._clock_server is None:
            trial = TrialFolder(self._context.trial)
            self._clock_server = BarrierServer(trial, name=self._context.name)

    def _submissions(self) -> dict[Path, Submission]:
        files = sorted(self._folder.glob("*.json"), key=lambda file: int(file.stem))
        return {file: run_folder.read(Submission, file) for file in files}

    def states(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """Query all jobs with one squeue; the script of a gang records its members' exit codes."""
        bases = {job_id: job_id.partition("m")[0] for job_id in ids}
        queried = set(bases.values())
        self._active = {job_id: job for job_id, job in self._active.items() if job_id in queried}
        jobs = self._query(queried) if queried else {}
        exits = self._exits({base for job_id, base in bases.items() if "m" in job_id})
        # A task that is cancelled while it waits leaves the queue at once, without a trace.
        cancelled = {base for base in self._pending if base in jobs and jobs[base].state == "lost"}
        self._pending = {base for base, job in jobs.items() if job.state == "pending"}
        # Waiting tasks share a row of squeue, and so a status.
        rows = {id(job): job for job in jobs.values()}
        statuses = {key: _status(job) for key, job in rows.items()}
        states = {job_id: statuses[id(jobs[base])] for job_id, base in bases.items()}
        for job_id, code in exits.items():
            # A running gang may be requeued with all its members: the exit code of a failed
            # member counts only after the gang has ended.
            if job_id in bases and (code == 0 or states[job_id].state not in ACTIVE):
                states[job_id] = _ended_with(code, gang=states[job_id])
        if self._cancelled.exists():  # a cancelled job may end with any exit code
            states |= {
                job_id: replace(status, state="cancelled")
                for job_id, status in states.items()
                if status.state in ("failed", "lost")
            }
        gone = JobStatus("cancelled", reason="cancelled before it started")
        return states | {job_id: gone for job_id, base in bases.items() if base in cancelled}

    def _query(self, ids: set[str]) -> dict[str, SlurmJob]:
        """Query the jobs; one that was active is lost only if two answers lack it."""
        jobs = commands.job_states(ids, on_skipped=self._note_skipped)
        for job_id, job in jobs.items():
            if job.state in ACTIVE:
                self._active[job_id] = job
            elif last := self._active.pop(job_id, None):
                jobs[job_id] = last if job.state == "lost" else job
        return jobs

    def _note_skipped(self, line: str) -> None:
        """Report, once, a line that a Slurm command printed besides the requested rows."""
        if line not in self._skipped and len(self._skipped) < MAX_SKIPPED_LINES:
            self._skipped.add(line)
            self._context.note(f"skipped a line that Slurm's command printed: {line!r}")

    def cancel(self, ids: Sequence[str]) -> None:
        """Stop the steps first, so that members write a checkpoint and the script cleans up.

        A plain `scancel` would also end the batch script, and an srun that receives the signal
        kills its tasks.
        """
        jobs = sorted({job_id.partition("m")[0] for job_id in ids})
        if jobs:
            write_text(self._cancelled, "by ai500\n")
            self._insist(lambda: commands.cancel_waiting_jobs(jobs))
            self._insist(lambda: commands.stop_steps(jobs))
            left = self._wait_for_end(jobs, seconds=CHECKPOINT_SECONDS)
            self._insist(lambda: commands.cancel_jobs(left))
            self._wait_for_end(left, seconds=CANCEL_SECONDS)
        self.close()

    def _insist(self, command: Callable[[], None]) -> None:
        """Repeat a command that Slurm does not answer, for a person who waits for its effect."""
        ask_patiently(
            command,
            patience_seconds=min(CANCEL_SECONDS, self._patience_seconds),
            on_outage=lambda reason: self._context.note(f"cancelling again: {reason}"),
        )

    def _wait_for_end(self, jobs: Sequence[str], *, seconds: float) -> list[str]:
        """Wait until the jobs have ended, at most so long; return those that have not."""
        left, deadline = list(jobs), time.monotonic() + seconds
        pause = self.poll_seconds
        while left:
            with contextlib.suppress(SchedulerUnavailableError):
                states = commands.job_states(left, on_skipped=self._note_skipped)
                left = [job for job in left if states[job].state in ACTIVE]
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not left:
                break
            time.sleep(min(pause, remaining))
            pause = min(self.slowest_poll_seconds, POLL_GROWTH * pause)
        return left

    def close(self) -> None:
        """Stop the clock server."""
        if self._clock_server is not None:
            self._clock_server.close()
            self._clock_server = None

    def preview(self, jobs: Sequence[JobSpec]) -> list[tuple[str, str]]:
        """Return the scripts without submitting them."""
        chunks = list(self._chunks(jobs))
        return [
            (f"{self._slurm.start} {number} of {len(chunks)}", self._script(chunk, "001"))
            for number, chunk in enumerate(chunks, start=1)
        ]

    def _chunks(self, jobs: Sequence[JobSpec]) -> Iterator[Sequence[JobSpec]]:
        size = max(1, self._portion(len(jobs)))
        for first in range(0, len(jobs), size):
            yield jobs[first : first + size]

    def _submit(self, jobs: Sequence[JobSpec], *, after: Sequence[str]) -> list[str]:
        """Submit `jobs` to start `after` others: two arrays together would exceed Sys_scale."""
        number = f"{1 + len(list(self._folder.glob('*.sh'))):03d}"
        script = self._script(jobs, number)
        processes = tuple(job.members for job in jobs)
        submission = Submission(self._name(number), self._slurm.start, processes, job=None)
        file = self._folder / f"{number}.json"
        run_folder.write(file, submission)
        if self._slurm.start == "gang":
            parts = gang.parts_by_node(jobs, waves=self._waves(jobs))
            gang.write_gang(self._gang_file(number), parts)
        write_text(self._folder / f"{number}.sh", script)
        try:
            job = self._sbatch(script, name=submission.name, after=after)
        except commands.QueueFullError:
            # An sbatch that was killed while it retried may have succeeded; a record of a request
            # that did not would be looked up at every resume and cancel.
            taken: list[str] = []
            with contextlib.suppress(SchedulerUnavailableError):
                if not (taken := commands.jobs_named(submission.name)):
                    file.unlink()
                    for suffix in (".sh", ".gang"):
                        file.with_suffix(suffix).unlink(missing_ok=True)
            if not taken:
                raise
            job = taken[0]
        submission = replace(submission, job=job)
        run_folder.write(file, submission)
        return submission.ids()

    def _sbatch(self, script: str, *, name: str, after: Sequence[str]) -> str:
        """Call sbatch until it is clear whether Slurm has the job.

        slurmctld may have accepted it and not have been able to say so: after every failure it is
        looked up by its name.
        """
        options = [f"--chdir={self._context.trial}"]
        options += [f"--dependency=afterany:{job.partition('_')[0]}" for job in after]
        outage = Outage(self._patience_seconds)
        for attempt in itertools.count():
            try:
                job = commands.submit_script(script, options=options)
                return self._only(job, name=name) if attempt else job
            except SchedulerUnavailableError as error:
                if outage.note(error):
                    self._context.note(f"submitting again until Slurm answers: {error}")
                with contextlib.suppress(SchedulerUnavailableError):
                    if job_ids := commands.jobs_named(name):
                        return job_ids[0]
            except (commands.CommandFailedError, commands.UnclearReplyError) as error:
                return self._accepted_job(name, error=error)
            time.sleep(SUBMIT_PAUSE_SECONDS)
        raise AssertionError  # the loop has no end

    def _accepted_job(
        self, name: str, *, error: commands.CommandFailedError | commands.UnclearReplyError
    ) -> str:
        """Return the id of a job that may exist after an unclear sbatch; raise if it does not."""
        rejected = isinstance(error, commands.CommandFailedError) and error.is_rejection
        for _ in range(1 if rejected else LOOKUPS):
            with contextlib.suppress(SchedulerUnavailableError):
                if job_ids := commands.jobs_named(name):
                    self._context.note(f"job {job_ids[0]} was submitted, although {error}")
                    return job_ids[0]
            if not rejected:
                time.sleep(SUBMIT_PAUSE_SECONDS)
        submitted = any(submission.job is not None for submission in self._submissions().values())
        if rejected and not submitted:
            raise error
        run = self._context.trial.parents[1]
        raise JobError(
            str(error),
            value=error.value,
            remedy=f"Jobs of this run may be in the queue: `ai500 resume {quoted(run)}` follows "
            f"them and submits the rest, `ai500 cancel {quoted(run)}` ends them.",
        ) from error

    def _only(self, job: str, *, name: str) -> str:
        """Cancel other jobs of this name: an earlier sbatch succeeded later than its look-up."""
        with contextlib.suppress(SchedulerUnavailableError):
            commands.cancel_jobs([other for other in commands.jobs_named(name) if other != job])
        return job

    def _name(self, number: str) -> str:
        return f"{self._context.name}-{number}"

    def _script(self, jobs: Sequence[JobSpec], number: str) -> str:
        request = self._request(jobs, number)
        return gang_script(request) if self._slurm.start == "gang" else array_script(request)

    def _request(self, jobs: Sequence[JobSpec], number: str) -> Request:
        plan, slurm, launcher = self._context.plan, self._slurm, self._context.launcher
        nodes = gang.nodes_of(jobs) if slurm.start == "gang" else {}
        straddling = straddling_slots(plan.mapping)
        python, module = jobs[0].command[0], "ai500.jobs.node_agent"
        trial, gang_file = str(self._context.trial), str(self._gang_file(number))
        agent: Sequence[str] = jobs[0].command
        if nodes:
            shared = ["--all-devices"] if plan.members_per_accelerator > 1 else []
            agent = [python, "-m", "ai500.jobs.gang_agent", trial, "--gang", gang_file, *shared]
        waves = self._waves(jobs)
        return Request(
            name=self._name(number),
            trial=self._context.trial,
            parts=[Part(job.member, job.attempt) for job in jobs],
            nodes_per_member=len(plan.nodes)
            if straddling and not nodes
            else max(len(job.shares) for job in jobs),
            gang_nodes=len(nodes),
            job_slots_per_node=_slots_per_node(jobs) if nodes else len(jobs[0].shares[0].slots),
            cpus_per_slot=cpus_per_slot(plan, self._context.config),
            memory_mib_per_slot=memory_mib_per_slot(plan, slurm),
            accelerators=plan.device != "cpu",
            at_once=_at_once(plan),
            first_wave=waves.count(min(waves)),
            stages=plan.stage,
            command=launcher(agent),
            clear=launcher([python, "-m", module, "--clear", trial]),
            barrier=launcher([python, "-m", "ai500.jobs.barrier", trial, "--gang", gang_file]),
            srun_flags=launcher.srun_flags,
            environment={
                name: value
                for name, value in jobs[0].environment.items()
                if name not in ("AI500_MEMBER", "AI500_ATTEMPT")
            },
            exits=self._folder / f"{number}.exits",
            cancelled=self._cancelled,
            slurm=slurm,
            straddling_slots=None if nodes else straddling,
            pinned_nodes=tuple(nodes) if slurm.pin else (),
        )

    def _gang_file(self, number: str) -> Path:
        """Return the file of the gang's members by node."""
        return self._folder / f"{number}.gang"

    def _waves(self, jobs: Sequence[JobSpec]) -> list[int]:
        return [self._context.plan.mapping[job.member].wave for job in jobs]

    def _exits(self, gangs: set[str]) -> dict[str, int]:
        """Read the exit codes of those members of the gangs that have ended."""
        codes: dict[str, int] = {}
        for file, submission in self._submissions().items() if gangs else ():
            if submission.job in gangs:
                codes |= _read_exits(file.with_suffix(".exits"), submission.job)
        return codes


class SlurmKind:
    """Jobs on a Slurm cluster."""

    outlives_controller = True
    controller_places_data = False

    def survey(self, config: Config) -> Cluster | None:
        """Describe the usable nodes of the partition."""
        return slurm_cluster.survey(config)

    def make(self, context: SchedulerContext) -> SlurmScheduler:
        """Make the scheduler of one trial."""
        return SlurmScheduler(context)

    def preview(self, context: SchedulerContext, jobs: Sequence[JobSpec]) -> list[tuple[str, str]]:
        """Return the batch scripts."""
        return SlurmScheduler(context).preview(jobs)


SLURM = SlurmKind()


def cpus_per_slot(plan: Plan, config: Config) -> int:
    """Return the CPUs to request with each accelerator, or for each CPU slot [D8]."""
    if config.slurm.cpus_per_accelerator is not None:
        return config.slurm.cpus_per_accelerator
    if plan.device == "cpu" and config.system.cores_per_slot is not None:
        return config.system.cores_per_slot
    assert plan.cluster is not None
    cpus = plan.cluster.cpus_per_node // len(plan.nodes[0].slots)
    # Slurm allocates whole cores: a request for half a core would take it from the next slot.
    return max(1, cpus - cpus % plan.cluster.threads_per_core)


def memory_mib_per_slot(plan: Plan, slurm: SlurmConfig) -> int | None:
    """Return the memory to request with each slot; None: the site's default.

    Where the site has no default one task would take its node's whole memory: a share instead.
    """
    if slurm.memory is not None:
        return slurm_cluster.mebibytes(slurm.memory)
    limits = plan.cluster.limits if plan.cluster is not None else JobLimits()
    defaults = (limits.default_mib_per_cpu, limits.default_mib_per_node, limits.default_mib_per_gpu)
    if limits.memory_mib_per_node is None or any(defaults):
        return None
    return limits.memory_mib_per_node // len(plan.nodes[0].slots)


def _identified(submission: Submission) -> Submission:
    """Look up by its name a submission whose job id was not recorded."""
    if submission.job is None and (job_ids := commands.jobs_named(submission.name)):
        return replace(submission, job=job_ids[0])
    return submission


def _ended_with(exit_code: int, *, gang: JobStatus) -> JobStatus:
    if exit_code == 0:
        return JobStatus("done", 0)
    return JobStatus("cancelled" if gang.state == "cancelled" else "failed", exit_code, gang.reason)


def _status(job: SlurmJob) -> JobStatus:
    reason = job.reason if job.state == "pending" else job.slurm_state
    return JobStatus(job.state, job.exit_code, reason, job.restarts)


def _read_exits(path: Path, job: str) -> dict[str, int]:
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = re.findall(r"^(\d+) (\d+)\n", text, flags=re.MULTILINE)
    return {f"{job}m{member}": int(code) for member, code in pairs}


def _slots_per_node(jobs: Sequence[JobSpec]) -> int:
    used: dict[str, set[int]] = {}
    for job in jobs:
        for share in job.shares:
            used.setdefault(share.node, set()).update(share.slots)
    return max(len(slots) for slots in used.values())


def _at_once(plan: Plan) -> int | None:
    """Limit the members that train at once, if the cluster is larger than Sys_scale."""
    slots = len(plan.nodes[0].slots)
    if plan.cluster is None or plan.system_scale >= slots * len(plan.cluster.nodes):
        return None
    return plan.system_scale // plan.parallel_degree
