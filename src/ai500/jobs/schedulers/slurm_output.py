"""Parse the output of squeue, sacct and `scontrol show config`: pure functions of text.

The formats follow Slurm's sources from 20.11 to 25.05, and are tested on 22.05 with and without
accounting.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ai500.jobs.schedulers import ACTIVE
from ai500.records import JobState

STATES: Final[dict[str, JobState]] = {
    "PENDING": "pending",
    "CONFIGURING": "pending",  # nodes are allocated, but booting
    "POWER_UP_NODE": "pending",
    "EXPEDITING": "pending",
    "REQUEUED": "pending",
    "REQUEUE_FED": "pending",
    "REQUEUE_HOLD": "pending",
    "RESV_DEL_HOLD": "pending",
    "SPECIAL_EXIT": "pending",  # requeued and held, whatever its name says
    "RUNNING": "running",
    "COMPLETING": "running",  # the final state is reported only afterwards
    "RESIZING": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
    "STOPPED": "running",
    "SUSPENDED": "running",
    "UPDATE_DB": "running",
    "COMPLETED": "done",
    "BOOT_FAIL": "failed",
    "DEADLINE": "failed",
    "FAILED": "failed",
    "LAUNCH_FAILED": "failed",
    "NODE_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "PREEMPTED": "failed",
    "RECONFIG_FAIL": "failed",
    "TIMEOUT": "failed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",  # another cluster of the federation took it
}
"""Every job state of squeue and sacct."""
_JOB: Final = r"(\d+(?:[_+](?:\d+|\[[^\]]*\]))?)"
_ROW: Final = re.compile(_JOB + r" *\| *([A-Z_]+) *\|([^|]*)\|([^|]*)\|(.*)")
_ACCOUNTED: Final = re.compile(_JOB + r"\|([A-Z_]+)\+?(?: [^|]*)?\|([^|]*)")  # `CANCELLED by 1000`


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job or an array task, with its state in ai500's terms and in Slurm's."""

    id: str
    state: JobState
    slurm_state: str
    reason: str | None = None
    exit_code: int | None = None
    """Exit code; negative for a job that a signal killed, as in Python's subprocess."""
    restarts: int | None = None


def seconds_of(time_text: str) -> int | None:
    """Convert `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` or `D-HH:MM:SS`; None: no limit."""
    if not time_text[:1].isdigit():  # UNLIMITED, INFINITE, NONE, NOT_SET, Partition_Limit, N/A
        return None
    days, dash, clock = time_text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if dash:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def read_config(text: str) -> dict[str, str]:
    """Parse `Key = value` lines of `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def has_accounting(config: dict[str, str]) -> bool:
    """Return True if the cluster runs slurmdbd, which sacct queries."""
    return "slurmdbd" in config.get("AccountingStorageType", "")


def expand_tasks(text: str) -> Iterator[tuple[int, int, int]]:
    """Parse `0-5,7-20:2%3` → (0, 5, 1), (7, 20, 2): first, last, step."""
    for part in text.partition("%")[0].split(","):
        if match := re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part):
            first, last, step = match.groups()
            yield int(first), int(last or first), int(step or 1)


def compress_tasks(tasks: Iterable[int]) -> str:
    """Format {0, 1, 2, 7} → `0-2,7`."""
    numbers = sorted(set(tasks))
    if not numbers:
        return ""
    breaks = [(a, b) for a, b in pairwise(numbers) if b - a > 1]
    firsts = [numbers[0], *(b for _, b in breaks)]
    lasts = [*(a for a, _ in breaks), numbers[-1]]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True))


def tasks_by_job(ids: Iterable[str]) -> dict[str, set[int]]:
    """Group `12`, `34_5`, `34_6` → {"12": {}, "34": {5, 6}}."""
    by_job: dict[str, set[int]] = defaultdict(set)
    for job_id in ids:
        base, array, task = job_id.partition("_")
        tasks = by_job[base]
        if array:
            tasks.add(int(task))
    return dict(by_job)


def read_queue(text: str) -> tuple[list[SlurmJob], list[str]]:
    """Parse rows `id|state|restarts|exit code|reason` of squeue; return the other lines, too.

    Waiting tasks of an array share a row with an id such as `1234_[5-99%4,120]`. Other lines are
    a site's banners, or a row that was cut off.
    """
    rows: list[SlurmJob] = []
    skipped: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("CLUSTER:"):
            continue
        match = _ROW.fullmatch(line.strip())
        if match is None:
            skipped.append(line)
            continue
        job_id, word, restarts, code, reason = (part.strip() for part in match.groups())
        state = STATES.get(word, "running")
        rows.append(
            SlurmJob(
                id=job_id,
                state=state,
                slurm_state=word,
                reason=None if reason in ("", "None") else reason,
                exit_code=_exit_code(code, state),
                # squeue folds requeued tasks into the row of those that never ran
                restarts=int(restarts) if restarts.isdigit() and "[" not in job_id else None,
            )
        )
    return rows, skipped


def read_accounting(text: str) -> tuple[list[SlurmJob], list[str]]:
    """Parse rows `id|state|exit code` of sacct; return the other lines, too."""
    rows: list[SlurmJob] = []
    skipped: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        match = _ACCOUNTED.fullmatch(line.strip())
        if match is None:
            skipped.append(line)
            continue
        job_id, word, code = match.groups()
        state = STATES.get(word, "failed")
        reason = "known to sacct only" if state in ACTIVE else None
        rows.append(SlurmJob(job_id, state, word, reason, _exit_code(code, state)))
    return rows, skipped


def jobs_by_id(rows: Iterable[SlurmJob], ids: Collection[str]) -> dict[str, SlurmJob]:
    """Assign rows to those of `ids` that they describe.

    Tasks that squeue folds into one row share it, and the cost is linear in rows and tasks:
    100,000 tasks may wait, and each poll assigns all of them.
    """
    tasks = tasks_by_job(ids)
    ids = set(ids)
    jobs: dict[str, SlurmJob] = {}
    for row in rows:
        base, bracket, expression = row.id.partition("_[")
        if not bracket:
            if row.id in ids:
                jobs[row.id] = row
            continue
        for task in _common(expression.rstrip("]"), tasks.get(base, set())):
            jobs[f"{base}_{task}"] = row
    return jobs


def _common(expression: str, tasks: set[int]) -> Iterator[int]:
    """Yield the tasks that the expression names."""
    for first, last, step in expand_tasks(expression):
        span = range(first, last + 1, step)
        small, large = (span, tasks) if len(span) <= len(tasks) else (tasks, span)
        yield from (task for task in small if task in large)


def _exit_code(text: str, state: JobState) -> int | None:
    """Parse `7:0` (sacct, squeue since 23.02) or a wait status such as 1792 (older squeue)."""
    if state in ACTIVE or not text:
        return None
    code, colon, number = text.partition(":")
    if not (code.isdigit() and (number.isdigit() or not colon)):
        return None
    status = int(code)
    returned, killed = (status, int(number)) if colon else ((status >> 8) & 0xFF, status & 0x7F)
    if killed:
        return -killed if killed <= 64 else None  # Slurm uses 125 for "out of memory"
    return returned if returned or state == "done" else None
