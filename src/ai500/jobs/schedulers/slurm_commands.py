"""Everything ai500 asks of Slurm's commands: thin calls, each for a whole run at once.

What they print is read in `slurm_text` (jobs) and `slurm_nodes` (the cluster). None goes through
a shell.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from ai500.core.errors import AI500Error, EnvironmentLacksError
from ai500.jobs.schedulers import SchedulerUnavailableError
from ai500.jobs.schedulers.slurm_nodes import (
    Cluster,
    ClusterNode,
    cluster_from,
    has_accounting,
    read_config,
)
from ai500.jobs.schedulers.slurm_text import (
    STATES,
    SlurmJob,
    compress_tasks,
    expand_tasks,
    read_accounting,
    read_queue,
    seconds_of,
    spread,
    tasks_by_job,
)

__all__ = [
    "STATES",
    "Cluster",
    "ClusterNode",
    "SlurmJob",
    "SlurmUnavailableError",
    "cancel_jobs",
    "cancel_waiting_jobs",
    "expand_tasks",
    "job_states",
    "jobs_named",
    "read_cluster",
    "run_slurm",
    "seconds_of",
    "stop_steps",
    "submit_script",
]

QUERY_SECONDS = 120.0
SUBMIT_SECONDS = 300.0  # sbatch itself waits and tries again while slurmctld is busy
LONGEST_ARGUMENT_BYTES = 100 * 1024  # Linux refuses one argument of 128 KiB

_QUEUE_FORMAT = "JobArrayID:0|,State:0|,RestartCnt:0|,exit_code:0|,Reason:0"
_NO_ANSWER = re.compile(
    "unable to contact slurm controller|socket timed out|connection (refused|timed out|reset)"
    "|zero bytes were transmitted|temporarily (unable|unavailable)|standby mode|rate limit exceeded"
    "|no route to host|network is unreachable|munged communication error"
    "|persistent connection|(talking to|connect to) (the )?database",
    re.IGNORECASE,
)
_NO_CONFIGURATION = re.compile("configuration (source|file)", re.IGNORECASE)
_UNKNOWN_ID = "Invalid job id specified"
_GONE = re.compile(f"{_UNKNOWN_ID}|already completing or completed|already finished", re.IGNORECASE)


class SlurmUnavailableError(SchedulerUnavailableError):
    """slurmctld (or slurmdbd) does not answer now: ask again later.

    After `submit_script` the job may exist all the same: look with `jobs_named` first.
    """


class _RefusedError(AI500Error):
    """A command that answered, with a failure."""

    def __init__(self, words: Sequence[str], code: int, said: str) -> None:
        self.said = said
        super().__init__(f"{words[0]} failed with exit code {code}: {said or 'it said nothing'}")


def run_slurm(words: Sequence[str], *, timeout: float, stdin: str = "") -> str:
    """What a Slurm command prints."""
    try:
        done = subprocess.run(
            list(words),
            input=stdin,
            env=_environment(),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
        )
    except FileNotFoundError:
        raise EnvironmentLacksError(
            f"Slurm's command \"{words[0]}\" is not on this machine's PATH. Load the site's module "
            "(often `module load slurm`), or run ai500 on a login node of the cluster."
        ) from None
    except OSError as error:
        raise EnvironmentLacksError(
            f"Slurm's command \"{words[0]}\" can't be started: {error.strerror}."
        ) from error
    except subprocess.TimeoutExpired:
        raise SlurmUnavailableError(
            f"{words[0]} had no answer from Slurm within {timeout:.0f} s. "
            "See `scontrol ping`, and try again later."
        ) from None
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.strip()
    if _NO_ANSWER.search(said):
        raise SlurmUnavailableError(
            f"Slurm does not answer: {said.splitlines()[-1]}. See `scontrol ping`, and try again "
            "later."
        )
    if _NO_CONFIGURATION.search(said):
        raise EnvironmentLacksError(
            f"{words[0]} finds no Slurm configuration here: {said.splitlines()[-1]}. Run ai500 on "
            "a login node of the cluster, or set SLURM_CONF."
        )
    raise _RefusedError(words, done.returncode, said)


def _environment() -> dict[str, str]:
    """This process's environment without what changes the commands' answers.

    In a Slurm job the job's own variables go too: sbatch would hand them on to the new job.
    """
    inside = "SLURM_JOB_ID" in os.environ
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_"))
        and not (inside and _is_of_a_job(name))
    }
    # Without the second, squeue cuts `1234_[…]` after 32 characters
    return {**kept, "LC_ALL": "C", "SLURM_BITSTR_LEN": "0"}


def _is_of_a_job(name: str) -> bool:
    whose = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
    return name.startswith("SLURM_") and not name.startswith(whose)


def read_cluster(*, partition: str | None, constraint: str | None) -> Cluster:
    """A partition (None: the default one) with those of its nodes that match the constraint.

    A constraint with counts, brackets or parentheses keeps all nodes: see `slurm_nodes.matches`.
    """
    stated = os.environ.get("SLURM_CONF")
    if stated and not Path(stated).exists():  # Slurm's commands would wait a minute for it
        raise EnvironmentLacksError(
            f"SLURM_CONF is {stated}, and there is no such file. Run ai500 on a login node of the "
            "cluster, or set SLURM_CONF to its slurm.conf."
        )

    def show(what: str) -> str:
        words = ("scontrol", "--all", "--oneliner", "show", what)
        return run_slurm(words, timeout=QUERY_SECONDS)

    return cluster_from(
        config=show("config"),
        partitions=show("partition"),
        nodes=show("node"),
        partition=partition,
        constraint=constraint,
    )


def job_states(ids: Collection[str]) -> dict[str, SlurmJob]:
    """The states of all these jobs in at most three calls: live ones, ended ones, accounting.

    An array task that is cancelled while it waits vanishes from squeue at once; only accounting
    can tell it from one that ended more than MinJobAge ago. Without, both are `lost`.
    """
    rows = _queue(tasks_by_job(ids))
    found = spread(rows, ids)
    missing = set(ids) - found.keys()
    if missing:
        rows += _queue(tasks_by_job(missing), "--states=all")
        found |= spread(rows, missing)
        missing -= found.keys()
    if missing and _accounting(os.environ.get("SLURM_CONF", "")):
        found |= _accounted(missing, arrays=_arrays(rows))
        missing -= found.keys()
    return found | {job_id: _lost(job_id) for job_id in missing}


def _lost(job_id: str) -> SlurmJob:
    reason = "Slurm does not know it: cancelled while it waited, or ended too long ago"
    return SlurmJob(job_id, "lost", "", reason)


def _queue(bases: Collection[str], *options: str) -> list[SlurmJob]:
    """What squeue tells of these jobs and arrays: by default, of those that have not ended."""
    if not bases:
        return []
    jobs = ",".join(bases)
    which = f"--jobs={jobs}" if len(jobs) < LONGEST_ARGUMENT_BYTES else "--me"
    words = ("squeue", "--noheader", f"--Format={_QUEUE_FORMAT}", which, *options)
    try:
        return list(read_queue(run_slurm(words, timeout=QUERY_SECONDS)))
    except _RefusedError as refused:
        if _UNKNOWN_ID in refused.said:
            return []
        raise


def _arrays(rows: Iterable[SlurmJob]) -> set[str]:
    return {base for base, array, _ in (row.id.partition("_") for row in rows) if array}


@functools.cache
def _accounting(_slurm_conf: str) -> bool:
    """Whether this cluster has accounting; asked once."""
    words = ("scontrol", "show", "config")
    return has_accounting(read_config(run_slurm(words, timeout=QUERY_SECONDS)))


def _accounted(wanted: Collection[str], *, arrays: Collection[str]) -> dict[str, SlurmJob]:
    """What sacct tells. A task it lacks, of an array that is known, never started: cancelled."""
    rows: list[SlurmJob] = []
    for part in _parts(list(tasks_by_job(wanted))):
        words = ("sacct", "--allocations", "--parsable2", "--noheader")
        what = ("--format=JobID,State,ExitCode", f"--jobs={','.join(part)}")
        rows += read_accounting(run_slurm((*words, *what), timeout=QUERY_SECONDS))
    found = spread(rows, wanted)
    known = _arrays(rows) | set(arrays)
    for job_id in set(wanted) - found.keys():
        if job_id.partition("_")[0] in known:
            found[job_id] = SlurmJob(job_id, "cancelled", "CANCELLED", "before it started")
    return found


def submit_script(script: str, *, options: Sequence[str]) -> str:
    """Submit a batch script with these options of sbatch; the id of the job or array."""
    words = ("sbatch", "--parsable", *options)
    text = run_slurm(words, timeout=SUBMIT_SECONDS, stdin=script)
    job_id = text.strip().rpartition("\n")[2].partition(";")[0].strip()
    if not job_id.isdigit():
        raise AI500Error(
            f"sbatch answered {text.strip()!r} where a job id was expected. "
            "A site's own wrapper of sbatch may print to its output: it should use stderr."
        )
    return job_id


def cancel_jobs(ids: Sequence[str]) -> None:
    """Cancel all these jobs in one call; those that are gone are fine."""
    _scancel(ids)


def cancel_waiting_jobs(ids: Sequence[str]) -> None:
    """Cancel those of these jobs that have not started."""
    _scancel(ids, "--state=PENDING")


def stop_steps(ids: Sequence[str]) -> None:
    """SIGTERM to the steps of these jobs, and not to their scripts."""
    _scancel(ids, "--signal=TERM")


def _scancel(ids: Sequence[str], *options: str) -> None:
    wanted = [
        f"{base}_[{compress_tasks(tasks)}]" if tasks else base
        for base, tasks in tasks_by_job(ids).items()
    ]
    for part in _parts(wanted):
        try:
            run_slurm(("scancel", *options, *part), timeout=QUERY_SECONDS)
        except _RefusedError as refused:
            complaints = [line for line in refused.said.splitlines() if not _GONE.search(line)]
            if complaints or not refused.said:
                raise


def jobs_named(name: str) -> list[str]:
    """The ids of this user's jobs and arrays with exactly this name, ended ones included."""
    words = ["squeue", "--me", "--noheader", "--states=all", "--format=%F|%j"]
    if "," not in name:  # squeue takes a comma for a list
        words.append(f"--name={name}")
    found = (line.partition("|") for line in run_slurm(words, timeout=QUERY_SECONDS).splitlines())
    return list(dict.fromkeys(base.strip() for base, _, told in found if told == name))


def _parts(words: Sequence[str]) -> Iterator[list[str]]:
    """The words in as few parts as fit a command line."""
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
