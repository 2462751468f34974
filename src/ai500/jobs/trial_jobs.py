"""The jobs of one trial: their specifications, their scheduler, and those already submitted."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from ai500 import config as configuration
from ai500.config import Config
from ai500.core import plugins, slot_locks
from ai500.core.errors import ConfigError, setting_error
from ai500.core.source import PACKAGE
from ai500.jobs.launchers import Container, Launcher
from ai500.jobs.reports import VARIABLE
from ai500.jobs.schedulers import (
    ACTIVE,
    JobSpec,
    JobStatus,
    Scheduler,
    SchedulerContext,
    load_scheduler,
    slurm_commands,
    slurm_conflicts,
)
from ai500.parallel import sharing
from ai500.records import JobRecord, NodeSlots, Plan, run_folder
from ai500.records.run_folder import RunFolder, TrialFolder

CONTAINER_VARIABLES = (
    "AI500_MEMBER", "AI500_ATTEMPT", "AI500_HEAD", "AI500_BARRIER", "AI500_TASKS_PER_NODE",
    VARIABLE, slot_locks.VARIABLE,
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID", "SLURM_STEP_NUM_NODES",
    "SLURM_RESTART_COUNT", "SLURM_CPUS_PER_TASK", "SLURMD_NODENAME", "JOB_ID", "SGE_TASK_ID",
    "OMP_NUM_THREADS", "PYTHONUNBUFFERED", "TMPDIR",
    "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_DEBUG", "NCCL_IB_HCA",
)  # fmt: skip
"""Variables passed into a container by name, for runtimes that do not pass all of them."""


def scheduler_context(
    run: RunFolder, config: Config, plan: Plan, *, trial: int, store: Path | None
) -> SchedulerContext:
    """Assemble the context of a trial's scheduler; `store` is None while it is unknown."""
    return SchedulerContext(
        config=config,
        plan=plan,
        trial=run.trial(trial).path.resolve(),
        name=_job_name(run, trial),
        launcher=_launcher(run, config, plan, store=store),
    )


def python_of(config: Config) -> str:
    """Return the interpreter that the jobs run, on the node or in its container."""
    if config.container.image is not None:
        return config.container.python
    stated = {"slurm": config.slurm.python, "grid_engine": config.grid_engine.python}
    return stated.get(config.scheduler.kind) or sys.executable


def job_spec(
    trial: TrialFolder,
    *,
    members: tuple[int, ...],
    attempt: int,
    shares: tuple[NodeSlots, ...],
    python: str,
    reports: bool = False,
) -> JobSpec:
    """Specify the job of one process: the node agent, with its first member in the environment.

    With `reports` its members report their starts and ends to the controller.
    """
    member = members[0]
    return JobSpec(
        members=members,
        attempt=attempt,
        command=(python, "-m", "ai500.jobs.node_agent", str(trial.path.resolve())),
        environment={
            "AI500_MEMBER": str(member),
            "AI500_ATTEMPT": str(attempt),
            "PYTHONPATH": _source_path(),
            # The worker raises the number of threads where the slot has more cores.
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "PYTHONUNBUFFERED": "1",
            **({VARIABLE: "1"} if reports else {}),
        },
        log=trial.member(member).log,
        shares=shares,
    )


def preview(run: RunFolder, config: Config, plan: Plan) -> list[tuple[str, str]]:
    """Return the scripts that the first trial would submit, as (name, text)."""
    trial = run.trial(1)
    jobs = [
        job_spec(
            trial,
            members=group,
            attempt=1,
            shares=plan.mapping[group[0]].shares,
            python=python_of(config),
            reports=config.scheduler.follow == "events",
        )
        for group in sharing.groups(plan.mapping, plan.sharing)
    ]
    context = scheduler_context(run, config, plan, trial=1, store=None)
    return load_scheduler(plan.scheduler).preview(context, jobs)


def conflicts(config: Config, plan: Plan) -> list[str]:
    """Return what prevents the plan from running as it says, with the fix."""
    return list(slurm_conflicts.conflicts(config, plan)) if plan.scheduler == "slurm" else []


def refusal(plan: Plan, scripts: Sequence[tuple[str, str]]) -> list[str]:
    """Return why Slurm would refuse the first script, if it says so."""
    if plan.scheduler != "slurm" or not scripts:
        return []
    reason = slurm_commands.refusal(scripts[0][1])
    return [f"sbatch --test-only: {reason}"] if reason else []


def known_jobs(
    trial: TrialFolder, scheduler: Scheduler, *, members: Collection[int]
) -> dict[int, JobRecord]:
    """Return each member's last job, including jobs submitted but not yet recorded."""
    jobs = {job.member: job for job in run_folder.read_jobs(trial, members)}
    for member, job_id in scheduler.submitted_before().items():
        if member not in jobs or jobs[member].id != job_id:
            attempt = jobs[member].attempt + 1 if member in jobs else 1
            jobs[member] = JobRecord(member, job_id, attempt, "pending")
    return jobs


def active_jobs(run: RunFolder, trial: int) -> dict[int, tuple[JobRecord, JobStatus]]:
    """Return the jobs recorded as active, each with its present state in the scheduler."""
    scheduler = _scheduler(run, trial)
    members = range(run_folder.read(Plan, run.plan).ensemble_size)
    known = known_jobs(run.trial(trial), scheduler, members=members)
    jobs = {member: job for member, job in known.items() if job.state in ACTIVE}
    states = scheduler.states([job.id for job in jobs.values()])
    scheduler.close()
    return {member: (job, states[job.id]) for member, job in jobs.items()}


def cancel_orphaned_jobs(run: RunFolder, trial: int) -> int:
    """Cancel the jobs that a controller left in the queue; return their number."""
    active = [job.id for job, status in active_jobs(run, trial).values() if status.state in ACTIVE]
    if active:
        _scheduler(run, trial).cancel(active)
    return len(active)


def _scheduler(run: RunFolder, trial: int) -> Scheduler:
    config, plan = configuration.load(run.config), run_folder.read(Plan, run.plan)
    context = scheduler_context(run, config, plan, trial=trial, store=None)
    return load_scheduler(plan.scheduler).make(context)


def _source_path() -> str:
    """Extend PYTHONPATH so that workers find a source tree that is not installed."""
    source = PACKAGE.parent
    paths = [] if source.name in ("site-packages", "dist-packages") else [str(source)]
    return os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])


def _job_name(run: RunFolder, trial: int) -> str:
    """Build a name unique to the run folder and trial, of characters every scheduler accepts."""
    identity = f"{run.path.resolve()}:{trial}".encode()
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", run.path.resolve().name)[:40]
    return f"ai500-{plain}-{hashlib.sha256(identity).hexdigest()[:8]}"


def _launcher(run: RunFolder, config: Config, plan: Plan, *, store: Path | None) -> Launcher:
    container = job_container(run, config, accelerators=plan.device != "cpu", store=store)
    launcher: Launcher = plugins.load("launcher", plan.launcher)(container)
    return launcher


def job_container(
    run: RunFolder, config: Config, *, accelerators: bool, store: Path | None
) -> Container | None:
    """Add the run's folders and variables to the configured container; None without one."""
    settings = config.container
    if not settings.image:
        return None
    return Container(
        image=settings.image,
        mounts=(*_folders(run, config, store=store), *settings.mounts),
        accelerators=accelerators,
        environment=tuple(dict.fromkeys((*CONTAINER_VARIABLES, *settings.environment))),
        working_directory=str(run.path.resolve()),
        flags=settings.flags,
        runtime=settings.runtime,
        accelerator_flags=settings.accelerator_flags,
    )


def _folders(run: RunFolder, config: Config, *, store: Path | None) -> tuple[str, ...]:
    """List the folders that a job in a container uses: run folder, scratch, store, a script's."""
    folders = [str(run.path.resolve())]
    if config.data.stage and config.scheduler.launcher != "bare":
        folders.append(_scratch_to_mount(config))
    if store is not None:
        folders.append(str(store.resolve()))
    if config.framework.folder is not None:
        folders.append(config.framework.folder)
    return tuple(dict.fromkeys(folders))


def _scratch_to_mount(config: Config) -> str:
    """Return the scratch path up to its first variable, which only the node can expand."""
    scratch = config.data.scratch
    if scratch is None and load_scheduler(config.scheduler.kind).outlives_controller:
        raise ConfigError(
            "container.image is set and data.scratch is not: on a cluster the nodes' scratch "
            "folder must be known to be mounted in the container.",
            key="data.scratch",
            remedy="Set data.scratch to a folder that every node has, or data.stage = false.",
        )
    plain, variable, _ = (scratch or tempfile.gettempdir()).partition("$")
    if not plain.strip("/"):
        raise setting_error(
            "data.scratch",
            scratch,
            "it begins with a variable; a container mounts a folder that is known in advance.",
            "Begin it with a folder, as in /local/$SLURM_JOB_ID.",
        )
    return str(Path(plain).parent if variable and not plain.endswith("/") else Path(plain))
