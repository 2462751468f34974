"""Grid Engine (SGE, Son of Grid Engine, UGE): the members as tasks of an array job.

One `qstat` per poll for the whole run. Grid Engine forgets a job at its end: the batch script
appends the exit code of each run of a task to a file of the task's own. A task that exits with 99
is run again (`qsub -r y`): the script does so for a member that was stopped and wrote a checkpoint.
"""

from __future__ import annotations

import contextlib
import getpass
import re
import shlex
import subprocess
import time
import xml.etree.ElementTree as Xml
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from ai500.config import Config
from ai500.core.atomic import write_text
from ai500.core.errors import AI500Error, EnvironmentLacksError, JobError, setting_error
from ai500.jobs.barrier import BarrierServer
from ai500.jobs.outage import ask_patiently
from ai500.jobs.schedulers import (
    ATTEMPT_MARK,
    JobSpec,
    JobStatus,
    SchedulerContext,
    SchedulerUnavailableError,
)
from ai500.records import Cluster, JobState, Plan, run_folder
from ai500.records.run_folder import TrialFolder
from ai500.records.worker_exit import CHECKPOINTED_EXIT_CODE

COMMAND_SECONDS = 120.0
CANCEL_SECONDS = 300.0  # the queue's `notify` (60 s by default) passes between the two signals
POLL_GROWTH = 1.5
RERUN_EXIT_CODE = 99
_UNAVAILABLE = re.compile(
    "unable to (contact|send message to) qmaster|commlib error|communication error|timeout",
    re.IGNORECASE,
)
_NO_SUCH_JOB = re.compile("does not exist|do not exist", re.IGNORECASE)
_FULL = re.compile("exceed|would exceed|too many|maximum|limit", re.IGNORECASE)
_RESERVED = ("-t", "-tc", "-N", "-terse", "-sync", "-r", "-notify", "-o", "-e", "-j")
_UNUSABLE_STATES = "auEdDcCsSo"
"""Letters of a queue instance that starts no job: alarm, unreachable, error, disabled, …"""
_ARRAY = re.compile(r"^(\d+)\.1-(\d+):1$|^(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Submission:
    """One qsub call: written before it, and again with the job's number."""

    name: str
    processes: tuple[tuple[int, ...], ...]
    """Members that each task trains."""
    job: str | None

    def ids(self) -> list[str]:
        """List the id of each process, in order; tasks are numbered from 1."""
        return [f"{self.job}.{task}" for task in range(1, 1 + len(self.processes))]


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A task as qstat lists it."""

    name: str
    letters: str
    """State: qw, hqw, r, t, Rr, dr, s, T, Eqw, …"""

    @property
    def state(self) -> JobState:
        """State of the task; one that is being deleted still runs."""
        if "E" in self.letters:
            return "failed"
        return "pending" if "w" in self.letters or self.letters == "Rq" else "running"

    @property
    def reason(self) -> str | None:
        """Reason in the words of the other schedulers, else Grid Engine's letters."""
        if self.state == "failed":
            return f"state {self.letters}: Grid Engine could not start it (see qstat -j)"
        if any(letter in self.letters for letter in "sST"):
            return "SUSPENDED"
        return self.letters if self.state == "pending" else None


class GridEngine:
    """Submits, follows and cancels the jobs of one trial."""

    poll_seconds = 2.0
    slowest_poll_seconds = 60.0

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._options = context.config.grid_engine
        self._folder = context.trial / "grid_engine"
        self._patience_seconds = 60 * context.config.scheduler.patience_minutes
        self._cancelled = self._folder / "cancelled"
        """Flag file: while it exists, batch scripts do not ask to be run again."""
        self._active: dict[str, QueuedJob] = {}
        self._clock_server: BarrierServer | None = None

    def submit(self, jobs: Sequence[JobSpec]) -> list[str]:
        """Submit one array job; return no ids if Grid Engine has no room for it."""
        self._cancelled.unlink(missing_ok=True)
        largest = self._context.plan.cluster.max_array_size if self._context.plan.cluster else 1
        jobs = jobs[: max(1, largest)]
        number = f"{1 + len(list(self._folder.glob('*.sh'))):03d}"
        name = f"{self._context.name}-{number}"
        script, record = self._folder / f"{number}.sh", self._folder / f"{number}.json"
        submission = Submission(name, tuple(job.members for job in jobs), job=None)
        run_folder.write(record, submission)
        write_text(script, self._script(jobs))
        words = ["qsub", *self._qsub_options(jobs, name), str(script)]
        try:
            printed = ask_patiently(
                lambda: self._qsub(words, name),
                patience_seconds=self._patience_seconds,
                on_outage=lambda reason: self._context.note(f"submitting again: {reason}"),
            )
        except CommandFailedError as error:
            record.unlink()
            script.unlink()
            if not _FULL.search(str(error)):
                raise
            self._context.note(f"{len(jobs)} jobs wait until Grid Engine takes more: {error}")
            return []
        submission = replace(submission, job=printed)
        run_folder.write(record, submission)
        return submission.ids()

    def _qsub(self, words: Sequence[str], name: str) -> str:
        """Submit, unless an earlier call without an answer has; return the job's number."""
        for job_id, job in _queue().items():
            if job.name == name:
                return job_id.partition(".")[0]
        printed = _call(words)
        if (match := _ARRAY.search(printed)) is None:
            raise JobError(f"qsub printed no job number: {printed!r}", value=printed)
        return match[1] or match[3]

    def submitted_before(self) -> dict[int, str]:
        """Return member → its last task; look up by name a job whose number was not recorded."""
        tasks: dict[int, str] = {}
        for submission in self._submissions().values():
            if submission.job is not None:
                for members, task in zip(submission.processes, submission.ids(), strict=True):
                    tasks.update(dict.fromkeys(members, task))
        return tasks

    def follow(self) -> None:
        """Record the numbers of earlier jobs, and serve the reference clock of the members."""
        for file, submission in self._submissions().items():
            if submission != run_folder.read(Submission, file):
                run_folder.write(file, submission)
        if self._clock_server is None:
            trial = TrialFolder(self._context.trial)
            self._clock_server = BarrierServer(trial, name=self._context.name)

    def _submissions(self) -> dict[Path, Submission]:
        files = sorted(self._folder.glob("*.json"))
        submissions = {file: run_folder.read(Submission, file) for file in files}
        if any(submission.job is None for submission in submissions.values()):
            numbers = {job.name: job_id.partition(".")[0] for job_id, job in _queue().items()}
            submissions = {
                file: replace(s, job=s.job or numbers.get(s.name))
                for file, s in submissions.items()
            }
        return submissions

    def states(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """Query all tasks with one qstat; the exit codes of ended ones are in files."""
        if not ids:
            return {}
        queued = _queue()
        states: dict[str, JobStatus] = {}
        for job_id in ids:
            job = queued.get(job_id)
            if job is not None and "R" not in job.letters:
                states[job_id] = JobStatus(job.state, None, job.reason, 0)
                continue
            runs = self._exits(job_id)  # read after qstat: a task writes its code before it ends
            restarts = runs.count(RERUN_EXIT_CODE)
            if job is not None:
                states[job_id] = JobStatus(job.state, None, job.reason, restarts)
            elif runs and runs[-1] != RERUN_EXIT_CODE:
                code = runs[-1]
                states[job_id] = JobStatus("failed" if code else "done", code, None, restarts)
            elif (last := self._active.get(job_id)) is not None:
                # Its script's last line may not be visible yet on this host.
                states[job_id] = JobStatus(last.state, None, last.reason, restarts)
            else:
                states[job_id] = JobStatus("lost", None, None, restarts)
        self._active = {job_id: queued[job_id] for job_id in ids if job_id in queued}
        self._remove_failed([i for i in ids if i in queued and states[i].state == "failed"])
        if self._cancelled.exists():
            states |= {
                job_id: replace(status, state="cancelled")
                for job_id, status in states.items()
                if status.state in ("failed", "lost")
            }
        return states

    def _remove_failed(self, ids: Sequence[str]) -> None:
        """Delete tasks in an error state: Grid Engine would keep them for ever."""
        if ids:
            with contextlib.suppress(AI500Error):
                _delete(ids)

    def _exits(self, job_id: str) -> list[int]:
        """Return the exit codes of a task's runs, in order."""
        try:
            text = (self._folder / "exits" / job_id).read_text(encoding="ascii", errors="replace")
        except OSError:
            return []
        return [int(line) for line in re.findall(r"^(\d+)\n", text, flags=re.MULTILINE)]

    def cancel(self, ids: Sequence[str]) -> None:
        """Delete the tasks: running members are notified, and write a checkpoint."""
        if ids:
            write_text(self._cancelled, "by ai500\n")
            self._insist(lambda: _delete(ids))
            deadline, pause = time.monotonic() + CANCEL_SECONDS, self.poll_seconds
            left = set(ids)
            while left and time.monotonic() < deadline:
                with contextlib.suppress(SchedulerUnavailableError):
                    left &= _queue().keys()
                if left:
                    time.sleep(pause)
                    pause = min(self.slowest_poll_seconds, POLL_GROWTH * pause)
        self.close()

    def _insist(self, command: Callable[[], None]) -> None:
        ask_patiently(
            command,
            patience_seconds=min(CANCEL_SECONDS, self._patience_seconds),
            on_outage=lambda reason: self._context.note(f"cancelling again: {reason}"),
        )

    def close(self) -> None:
        """Stop the clock server."""
        if self._clock_server is not None:
            self._clock_server.close()
            self._clock_server = None

    def preview(self, jobs: Sequence[JobSpec]) -> list[tuple[str, str]]:
        """Return the command and the script without submitting them."""
        words = ["qsub", *self._qsub_options(jobs, f"{self._context.name}-001"), "001.sh"]
        return [("array 1 of 1", f"# {shlex.join(words)}\n{self._script(jobs)}")]

    def _qsub_options(self, jobs: Sequence[JobSpec], name: str) -> list[str]:
        options, plan, context = self._options, self._context.plan, self._context
        words = [
            "-terse", "-t", f"1-{len(jobs)}", "-N", name, "-r", "y", "-notify",
            "-S", "/bin/bash", "-wd", str(context.trial), "-j", "y", "-o", "/dev/null",
        ]  # fmt: skip
        slots = len(jobs[0].shares[0].slots) * cores_per_slot(plan, context.config)
        if slots > 1:
            words += ["-pe", options.parallel_environment, str(slots)]
        at_once = plan.system_scale * plan.members_per_accelerator // plan.parallel_degree
        if at_once < len(jobs):
            words += ["-tc", str(at_once)]
        named = {"-q": options.queue, "-P": options.project}
        words += [word for flag, value in named.items() if value for word in (flag, value)]
        if options.time_limit:
            words += ["-l", f"h_rt={options.time_limit}"]
        return [*words, *options.qsub]

    def _script(self, jobs: Sequence[JobSpec]) -> str:
        """Write a script with one task per member, in plain bash."""
        quoted = {
            "members": " ".join(str(job.member) for job in jobs),
            "attempts": " ".join(str(job.attempt) for job in jobs),
        }
        environment = {
            name: value
            for name, value in jobs[0].environment.items()
            if name not in ("AI500_MEMBER", "AI500_ATTEMPT")
        }
        context = self._context
        command = shlex.join(context.launcher(jobs[0].command))
        clear = context.launcher(
            [jobs[0].command[0], "-m", "ai500.jobs.node_agent", "--clear", str(context.trial)]
        )
        exits = shlex.quote(str(self._folder / "exits"))
        return "\n".join(
            [
                "#!/bin/bash",
                f"trial={shlex.quote(str(context.trial))}",
                f'exits={exits}/"$JOB_ID.$SGE_TASK_ID"',
                f"cancelled={shlex.quote(str(self._cancelled))}",
                *(f"{name}=({values})" for name, values in quoted.items()),
                "export AI500_MEMBER=${members[SGE_TASK_ID - 1]}",
                'runs=$(cat "$exits" 2>/dev/null | wc -l)',
                "export AI500_ATTEMPT=$((${attempts[SGE_TASK_ID - 1]} + runs))",
                'exec >>"$trial/members/$(printf %03d "$AI500_MEMBER")/log.txt" 2>&1',
                f'echo "{ATTEMPT_MARK}$AI500_ATTEMPT of member $AI500_MEMBER'
                ': job $JOB_ID.$SGE_TASK_ID on $HOSTNAME"',
                *(f"export {name}={shlex.quote(v)}" for name, v in sorted(environment.items())),
                "# A folder of the task's own for staged data: tasks of one host share /tmp.",
                'export TMPDIR="${TMPDIR:-${TMP:-/tmp}}"',
                'TMPDIR=$(mktemp -d "$TMPDIR/ai500-$JOB_ID.$SGE_TASK_ID.XXXXXX") || exit 1',
                *self._options.setup,
                "# Grid Engine signals the whole process group; only this shell acts on it.",
                f"( trap '' USR1 USR2; exec {command} ) &",
                "agent=$!",
                "trap 'kill -TERM \"$agent\" 2>/dev/null' USR1 USR2 TERM",
                'wait "$agent"; code=$?',
                'while kill -0 "$agent" 2>/dev/null; do wait "$agent"; code=$?; done',
                *([shlex.join(clear)] if context.config.data.scratch else []),
                'rm -rf "$TMPDIR"',
                f'[ "$code" -eq {CHECKPOINTED_EXIT_CODE} ] && [ ! -e "$cancelled" ] && '
                f"code={RERUN_EXIT_CODE}",
                'mkdir -p "${exits%/*}" && echo "$code" >>"$exits"',
                'exit "$code"',
                "",
            ]
        )


class GridEngineKind:
    """Jobs on a cluster with Grid Engine."""

    outlives_controller = True
    controller_places_data = False

    def survey(self, config: Config) -> Cluster | None:
        """Describe the usable hosts of the queue."""
        queue = config.grid_engine.queue
        words = ["qstat", "-f", "-xml", *(["-q", queue] if queue else [])]
        slots: dict[str, int] = {}
        unusable: dict[str, str] = {}
        names: list[str] = []
        for instance in _parsed(_call(words)).iter("Queue-List"):
            name, _, host = (instance.findtext("name") or "").partition("@")
            letters = instance.findtext("state") or ""
            names += [name] if name not in names else []
            if any(letter in _UNUSABLE_STATES for letter in letters):
                unusable[host] = f"state {letters}"
            else:
                slots[host] = max(int(instance.findtext("slots_total") or 0), slots.get(host, 0))
        slots = {host: count for host, count in slots.items() if count > 0}
        if not slots:
            raise EnvironmentLacksError(
                f"Grid Engine has no usable host in {queue or 'any queue'}"
                + "".join(f"; {host}: {reason}" for host, reason in unusable.items()),
                key="grid_engine.queue",
                value=queue,
                remedy="See `qstat -f`, and set another queue.",
            )
        limits = dict(line.split(None, 1) for line in _call(["qconf", "-sconf"]).splitlines()
                      if len(line.split(None, 1)) == 2)  # fmt: skip
        accelerators = config.system.accelerators_per_node or 0  # qstat lists none
        tasks = int(limits.get("max_aj_tasks", "0")) or 1_000_000
        return Cluster(
            name="Grid Engine",
            partition=queue or ", ".join(names),
            nodes=tuple(slots),
            unusable={host: why for host, why in unusable.items() if host not in slots},
            cpus_per_node=min(slots.values()),
            accelerators_per_node=0 if config.system.device in (None, "cpu") else accelerators,
            max_array_size=tasks,
            max_seconds=None,
            accounting="accounting=true" in limits.get("reporting_params", ""),
            version=_call(["qstat", "-help"]).splitlines()[0],
        )

    def make(self, context: SchedulerContext) -> GridEngine:
        """Make the scheduler of one trial."""
        return GridEngine(context)

    def preview(self, context: SchedulerContext, jobs: Sequence[JobSpec]) -> list[tuple[str, str]]:
        """Return the batch script; refuse what it can't express."""
        _check(context)
        return GridEngine(context).preview(jobs)


GRID_ENGINE = GridEngineKind()


def cores_per_slot(plan: Plan, config: Config) -> int:
    """Return Grid Engine's slots (cores) to request with each accelerator, or CPU slot [D8]."""
    if config.grid_engine.cores_per_accelerator is not None:
        return config.grid_engine.cores_per_accelerator
    if plan.device == "cpu" and config.system.cores_per_slot is not None:
        return config.system.cores_per_slot
    assert plan.cluster is not None
    return max(1, plan.cluster.cpus_per_node // len(plan.nodes[0].slots))


class CommandFailedError(AI500Error):
    """A command of Grid Engine that failed for another reason than an outage."""


def _check(context: SchedulerContext) -> None:
    config, plan = context.config, context.plan
    if any(len(entry.shares) > 1 for entry in plan.mapping):
        raise setting_error(
            "parallel.degree", plan.parallel_degree,
            "on Grid Engine a member has to fit on one host.",
            "Set a smaller parallel.degree.",
        )  # fmt: skip
    if context.launcher.srun_flags:
        raise setting_error(
            "scheduler.launcher", plan.launcher, "it needs Slurm to start the container.",
            "Set another launcher.",
        )  # fmt: skip
    scratch = config.data.scratch
    if plan.stage and scratch is not None and "$" not in scratch:
        raise setting_error(
            "data.scratch", scratch,
            "several tasks of one host would share and delete each other's copies.",
            "Put the task into it, as in /scratch/$JOB_ID.$SGE_TASK_ID, or leave it out.",
        )  # fmt: skip
    for word in config.grid_engine.qsub:
        if word in _RESERVED:
            raise setting_error(
                "grid_engine.qsub", word, "ai500 sets this option itself.", "Remove it."
            )


def _queue() -> dict[str, QueuedJob]:
    """List this user's tasks that have not ended; waiting tasks of an array share a row."""
    root = _parsed(_call(["qstat", "-xml", "-u", getpass.getuser()]))
    jobs: dict[str, QueuedJob] = {}
    for row in root.iter("job_list"):
        number, tasks = row.findtext("JB_job_number"), row.findtext("tasks") or "1"
        job = QueuedJob(row.findtext("JB_name") or "", row.findtext("state") or "")
        for task in _task_numbers(tasks):
            jobs[f"{number}.{task}"] = job
    return jobs


def _task_numbers(text: str) -> Iterator[int]:
    """Yield the tasks of "3", "2,5" or "4-10:2"."""
    for first, last, step in re.findall(r"(\d+)(?:-(\d+):(\d+))?", text):
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def _delete(ids: Sequence[str]) -> None:
    """Delete the tasks; those that have ended meanwhile are no error."""
    try:
        _call(["qdel", *_ranges(ids)])
    except CommandFailedError as error:
        if not _NO_SUCH_JOB.search(str(error)):
            raise


def _ranges(ids: Sequence[str]) -> list[str]:
    """Write consecutive tasks of a job as one word: 12.1-3 for 12.1, 12.2 and 12.3."""
    tasks: dict[str, list[int]] = {}
    for job_id in ids:
        job, _, task = job_id.partition(".")
        tasks.setdefault(job, []).append(int(task))
    words = []
    for job, numbers in tasks.items():
        for _, group in groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0]):
            run = [number for _, number in group]
            words.append(f"{job}.{run[0]}" + (f"-{run[-1]}" if len(run) > 1 else ""))
    return words


def _parsed(text: str) -> Xml.Element:
    try:
        return Xml.fromstring(text)
    except Xml.ParseError as error:
        raise SchedulerUnavailableError(
            f"qstat printed no XML: {error}", value=text[:80]
        ) from error


def _call(words: Sequence[str]) -> str:
    """Run a command of Grid Engine and return its standard output."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise EnvironmentLacksError(
            f"Grid Engine's command \"{words[0]}\" is not on this machine's PATH.",
            value=words[0],
            remedy="Source the cell's settings.sh, or run ai500 on a submit host.",
        ) from None
    except subprocess.TimeoutExpired:
        raise SchedulerUnavailableError(
            f"{words[0]} got no response within {COMMAND_SECONDS:.0f} s", value=words[0]
        ) from None
    message = " ".join((done.stderr or done.stdout).split())
    if done.returncode and _UNAVAILABLE.search(message):
        raise SchedulerUnavailableError(f"Grid Engine does not respond: {message}", value=words[0])
    if done.returncode:
        raise CommandFailedError(f"{words[0]} exited with {done.returncode}: {message}")
    return done.stdout
