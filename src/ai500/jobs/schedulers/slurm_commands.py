"""Call Slurm's commands: each call handles a whole run, and none goes through a shell.

`slurm_output` parses what they print of jobs, `slurm_cluster` what they print of nodes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from ai500.core.errors import AI500Error, EnvironmentLacksError
from ai500.jobs.schedulers import SchedulerUnavailableError
from ai500.jobs.schedulers.slurm_output import (
    SlurmJob,
    compress_tasks,
    has_accounting,
    jobs_by_id,
    read_accounting,
    read_config,
    read_queue,
    tasks_by_job,
)

QUERY_SECONDS = 120.0
RETRY_NOTICE_SECONDS = 1.0  # between two looks at what sbatch complains about
SUBMIT_SECONDS = 300.0  # sbatch retries by itself while slurmctld is busy
LONGEST_ARGUMENT_BYTES = 100 * 1024  # Linux rejects an argument of 128 KiB

_QUEUE_FORMAT = "JobArrayID:0|,State:0|,RestartCnt:0|,exit_code:0|,Reason:0"
_UNAVAILABLE = re.compile(
    "unable to contact slurm controller|socket timed out|connection (refused|timed out|reset)"
    "|zero bytes were transmitted|temporarily (unable|unavailable)|standby mode|rate limit exceeded"
    "|no route to host|network is unreachable|munged communication error"
    "|munge (en|de)code failed|authentication error"
    "|persistent connection|(talking to|connect to) (the )?database",
    re.IGNORECASE,
)
_RETRYING = "sleeping and retrying"
REFUSED_ARRAY = "Invalid job array specification"
_FULL = re.compile(rf"{_RETRYING}|(Assoc|QOS)\w*SubmitJobs?\w*Limit|{REFUSED_ARRAY}")
_NO_CONFIGURATION = re.compile("configuration (source|file)", re.IGNORECASE)
_UNKNOWN_ID = "Invalid job id specified"
_GONE = re.compile(f"{_UNKNOWN_ID}|already completing or completed|already finished", re.IGNORECASE)


class SlurmUnavailableError(SchedulerUnavailableError):
    """slurmctld (or slurmdbd) does not respond: retry later.

    After `submit_script` the job may exist all the same: look it up with `jobs_named` first.
    """


class UnclearReplyError(AI500Error):
    """sbatch succeeded, and what it printed is no job id."""


class QueueFullError(AI500Error):
    """Slurm takes no more jobs now, or not so many: MaxSubmitJobs, MaxJobCount or MaxArraySize."""


class CommandFailedError(AI500Error):
    """A Slurm command that failed for another reason than an outage."""

    def __init__(self, words: Sequence[str], code: int, stderr: str) -> None:
        """Keep the command's standard error for callers that expect some failures."""
        self.stderr = stderr
        self.is_rejection = code > 0 and re.search(r"^sbatch: ", stderr, re.M) is not None
        """True if sbatch says that there is no job; False if it was killed, or says nothing."""
        message = stderr or "it printed no error message"
        super().__init__(f"{words[0]} failed with exit code {code}: {message}", value=code)


def run_slurm(words: Sequence[str], *, timeout: float, stdin: str = "") -> str:
    """Run a Slurm command and return its standard output."""
    try:
        completed = _run(words, deadline=time.monotonic() + timeout, stdin=stdin)
    except FileNotFoundError:
        raise EnvironmentLacksError(
            f"Slurm's command \"{words[0]}\" is not on this machine's PATH.",
            value=words[0],
            remedy="Load the site's module (often `module load slurm`), or run ai500 on a login "
            "node of the cluster.",
        ) from None
    except OSError as error:
        raise EnvironmentLacksError(
            f'Slurm\'s command "{words[0]}" cannot be started: {error.strerror}.', value=words[0]
        ) from error
    except subprocess.TimeoutExpired:
        raise SlurmUnavailableError(
            f"{words[0]} got no response from Slurm within {timeout:.0f} s.",
            value=words[0],
            remedy="See `scontrol ping`, and try again later.",
        ) from None
    if completed.returncode == 0:
        return completed.stdout
    stderr = completed.stderr.strip()
    if words[0] == "sbatch" and _FULL.search(stderr):
        raise QueueFullError(stderr.splitlines()[0], value=words[0])
    if _UNAVAILABLE.search(stderr):
        raise SlurmUnavailableError(
            f"Slurm does not respond: {stderr.splitlines()[-1]}.",
            value=words[0],
            remedy="See `scontrol ping`, and try again later.",
        )
    if _NO_CONFIGURATION.search(stderr):
        raise EnvironmentLacksError(
            f"{words[0]} finds no Slurm configuration here: {stderr.splitlines()[-1]}.",
            key="SLURM_CONF",
            value=words[0],
            remedy="Run ai500 on a login node of the cluster, or set SLURM_CONF.",
        )
    raise CommandFailedError(words, completed.returncode, stderr)


def _run(words: Sequence[str], *, deadline: float, stdin: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a session of its own; if it is late, kill it with its children."""
    with subprocess.Popen(
        list(words),
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = _communicate(process, deadline=deadline, stdin=stdin)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(list(words), process.returncode, stdout, stderr)


def _communicate(process: subprocess.Popen[str], *, deadline: float, stdin: str) -> tuple[str, str]:
    """Return stdout and stderr; end an sbatch that begins to retry by itself, for minutes."""
    unsent: str | None = stdin
    while True:
        seconds = min(RETRY_NOTICE_SECONDS, max(0.0, deadline - time.monotonic()))
        try:
            return process.communicate(unsent, timeout=seconds)
        except subprocess.TimeoutExpired as late:
            stderr = (late.stderr or b"").decode(errors="replace")  # bytes, whatever the encoding
            if time.monotonic() >= deadline:
                raise
            if _RETRYING in stderr:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            unsent = None


def query_slurm(words: Sequence[str]) -> str:
    """Return what a query prints; every failure is an outage, whatever its text or exit code.

    A command that is not installed, or finds no configuration, is an EnvironmentLacksError.
    """
    try:
        return run_slurm(words, timeout=QUERY_SECONDS)
    except CommandFailedError as error:
        if _UNKNOWN_ID in error.stderr:
            return ""
        raise SlurmUnavailableError(str(error), value=words[0]) from error


def _environment() -> dict[str, str]:
    """Copy this process's environment without variables that change the commands' output.

    Inside a Slurm job the job's own variables are dropped too: sbatch would pass them to the new
    job.
    """
    inside = "SLURM_JOB_ID" in os.environ
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_"))
        and not (inside and _belongs_to_job(name))
    }
    # Without SLURM_BITSTR_LEN squeue cuts `1234_[…]` after 32 characters.
    return {**kept, "LC_ALL": "C", "SLURM_BITSTR_LEN": "0"}


def _belongs_to_job(name: str) -> bool:
    of_site = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
    return name.startswith("SLURM_") and not name.startswith(of_site)


def show(entity: str) -> str:
    """Return `scontrol show` of all entities of a kind: config, partition or node."""
    words = ("scontrol", "--all", "--oneliner", "show", entity)
    return run_slurm(words, timeout=QUERY_SECONDS)


def job_states(
    ids: Collection[str], *, on_skipped: Callable[[str], None] = lambda line: None
) -> dict[str, SlurmJob]:
    """Return the states of all these jobs: one squeue, and sacct for those it does not know.

    An array task that is cancelled while it waits leaves squeue at once; only accounting can
    tell it from one that ended more than MinJobAge ago. Without accounting both are `lost`.
    Lines that are not in the requested format go to `on_skipped`.
    """
    rows, skipped = read_queue(_queue(tasks_by_job(ids)))
    jobs = jobs_by_id(rows, ids)
    missing = set(ids) - jobs.keys()
    if missing and skipped:
        raise SlurmUnavailableError(
            f"squeue printed {skipped[0]!r}, which is not in the requested format, and nothing "
            f"about job {min(missing)}.",
            value=skipped[0],
        )
    for line in skipped:
        on_skipped(line)
    if missing and _accounting(os.environ.get("SLURM_CONF", "")):
        jobs |= _accounted(missing, arrays=_arrays(rows), on_skipped=on_skipped)
        missing -= jobs.keys()
    return jobs | {job_id: _lost(job_id) for job_id in missing}


def _lost(job_id: str) -> SlurmJob:
    reason = "unknown to Slurm: cancelled while waiting, or ended too long ago"
    return SlurmJob(job_id, "lost", "", reason)


def _queue(bases: Collection[str]) -> str:
    """Query squeue for these jobs and arrays, ended ones included.

    With --me slurmctld sends this user's jobs; without it, the jobs of all users.
    """
    if not bases:
        return ""
    jobs = ",".join(bases)
    selection = [f"--jobs={jobs}"] if len(jobs) < LONGEST_ARGUMENT_BYTES else []
    form = ("--noheader", f"--Format={_QUEUE_FORMAT}", "--states=all")
    return query_slurm(("squeue", "--me", *form, *selection))


def _arrays(rows: Iterable[SlurmJob]) -> set[str]:
    return {base for base, array, _ in (row.id.partition("_") for row in rows) if array}


@functools.cache
def _accounting(_slurm_conf: str) -> bool:
    """Return True if this cluster has accounting; queried once."""
    return has_accounting(read_config(query_slurm(("scontrol", "show", "config"))))


def _accounted(
    ids: Collection[str], *, arrays: Collection[str], on_skipped: Callable[[str], None]
) -> dict[str, SlurmJob]:
    """Query sacct; a task missing there, of a known array, was cancelled before it started."""
    rows: list[SlurmJob] = []
    for part in _parts(list(tasks_by_job(ids))):
        words = ("sacct", "--allocations", "--parsable2", "--noheader")
        query = ("--format=JobID,State,ExitCode", f"--jobs={','.join(part)}")
        accounted, skipped = read_accounting(query_slurm((*words, *query)))
        rows += accounted
        for line in skipped:
            on_skipped(line)
    jobs = jobs_by_id(rows, ids)
    known = _arrays(rows) | set(arrays)
    for job_id in set(ids) - jobs.keys():
        if job_id.partition("_")[0] in known:
            jobs[job_id] = SlurmJob(job_id, "cancelled", "CANCELLED", "before it started")
    return jobs


def submit_script(script: str, *, options: Sequence[str]) -> str:
    """Submit a batch script with these options of sbatch; return the id of the job or array."""
    words = ("sbatch", "--parsable", *options)
    text = run_slurm(words, timeout=SUBMIT_SECONDS, stdin=script)
    job_id = text.strip().rpartition("\n")[2].partition(";")[0].strip()
    if not job_id.isdigit():
        raise UnclearReplyError(
            f"sbatch printed {text.strip()!r} where a job id was expected.",
            value=text.strip(),
            remedy="A site's wrapper of sbatch may print to standard output: it should use stderr.",
        )
    return job_id


def refusal(script: str) -> str | None:
    """Return why Slurm would refuse the script, from `sbatch --test-only`; None: it would not."""
    try:
        run_slurm(("sbatch", "--test-only"), timeout=QUERY_SECONDS, stdin=script)
    except (CommandFailedError, QueueFullError) as error:
        text = error.stderr if isinstance(error, CommandFailedError) else str(error)
        return " ".join(
            line.removeprefix("sbatch: error: ").removeprefix("allocation failure: ")
            for line in text.splitlines()
        )
    except SlurmUnavailableError:
        return None
    return None


def cancel_jobs(ids: Sequence[str]) -> None:
    """Cancel all these jobs in one call; jobs that have ended are ignored."""
    _scancel(ids)


def cancel_waiting_jobs(ids: Sequence[str]) -> None:
    """Cancel those of these jobs that have not started."""
    _scancel(ids, "--state=PENDING")


def stop_steps(ids: Sequence[str]) -> None:
    """Send SIGTERM to the steps of these jobs, and not to their batch scripts."""
    _scancel(ids, "--signal=TERM")


def _scancel(ids: Sequence[str], *options: str) -> None:
    jobs = [
        f"{base}_[{compress_tasks(tasks)}]" if tasks else base
        for base, tasks in tasks_by_job(ids).items()
    ]
    for part in _parts(jobs):
        try:
            run_slurm(("scancel", *options, *part), timeout=QUERY_SECONDS)
        except CommandFailedError as error:
            complaints = [line for line in error.stderr.splitlines() if not _GONE.search(line)]
            if complaints or not error.stderr:
                raise SlurmUnavailableError(str(error), value="scancel") from error


def jobs_named(name: str) -> list[str]:
    """Return the ids of this user's jobs and arrays of exactly this name, ended ones included."""
    words = ["squeue", "--me", "--noheader", "--states=all", "--format=%F|%j"]
    if "," not in name:  # squeue reads a comma as a list separator
        words.append(f"--name={name}")
    rows = (line.partition("|") for line in query_slurm(words).splitlines())
    bases = (base.strip() for base, _, job_name in rows if job_name == name)
    return list(dict.fromkeys(base for base in bases if base.isdigit()))


def _parts(words: Sequence[str]) -> Iterator[list[str]]:
    """Split the words into as few parts as fit a command line."""
    part: list[str] = []
    size = 0
    for word in words:
        if part and size + len(word) >= LONGEST_ARGUMENT_BYTES:
            yield part
            part, size = [], 0
        part.append(word)
        size += len(word) + 1
    if part:
        yield part
