"""The job of one member: its command and environment, and the jobs that controllers recorded."""

from __future__ import annotations

import os

from ai500.core.source import PACKAGE
from ai500.jobs.schedulers import JobSpec, Scheduler
from ai500.records import JobRecord, Share, run_folder
from ai500.records.run_folder import TrialFolder

ACTIVE = ("pending", "running")


def known_jobs(trial: TrialFolder, scheduler: Scheduler) -> dict[int, JobRecord]:
    """Each member's last job: what controllers recorded, and what they had no time to record."""
    told = run_folder.read_all(JobRecord, trial.jobs) if trial.jobs.exists() else []
    jobs = {job.member: job for job in told}
    for member, job_id in scheduler.submitted_before().items():
        if member not in jobs or jobs[member].id != job_id:
            attempt = jobs[member].attempt + 1 if member in jobs else 1
            jobs[member] = JobRecord(member, job_id, attempt, "pending")
    return jobs


def job_spec(
    trial: TrialFolder,
    *,
    members: tuple[int, ...],
    attempt: int,
    shares: tuple[Share, ...],
    python: str,
) -> JobSpec:
    """The job of one process: the node agent, told by the environment which member it is for;
    of several that train together, the first."""
    member, *others = members
    return JobSpec(
        member=member,
        others=tuple(others),
        attempt=attempt,
        command=(python, "-m", "ai500.jobs.node_agent", str(trial.path.resolve())),
        environment={
            "AI500_MEMBER": str(member),
            "AI500_ATTEMPT": str(attempt),
            "PYTHONPATH": _source_path(),
            # One thread a process unless the slot has more cores: the worker sets the number.
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "PYTHONUNBUFFERED": "1",
        },
        log=trial.member(member).log,
        shares=shares,
    )


def _source_path() -> str:
    """A source tree that is not installed is found by its workers, too."""
    source = PACKAGE.parent
    paths = [] if source.name in ("site-packages", "dist-packages") else [str(source)]
    return os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
