"""From a run's plan to the scheduler of one of its trials, the launcher in between included."""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from pathlib import Path

from ai500 import config as configuration
from ai500.config import Config
from ai500.core import plugins
from ai500.core.errors import ConfigError
from ai500.jobs.job_spec import ACTIVE, job_spec, known_jobs
from ai500.jobs.launchers import Container, Launcher
from ai500.jobs.schedulers import JobStatus, Setting, load_scheduler
from ai500.parallel import sharing
from ai500.records import JobRecord, Plan, run_folder
from ai500.records.run_folder import RunFolder

HANDED_THROUGH = (
    "AI500_MEMBER", "AI500_ATTEMPT", "AI500_HEAD", "AI500_BARRIER",
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID", "SLURM_STEP_NUM_NODES",
    "SLURM_RESTART_COUNT", "SLURM_CPUS_PER_TASK", "SLURMD_NODENAME",
    "OMP_NUM_THREADS", "PYTHONUNBUFFERED", "TMPDIR",
    "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_DEBUG", "NCCL_IB_HCA",
)  # fmt: skip
"""Variables that a container is given by name, where its runtime does not pass all of them."""


def setting_of(
    run: RunFolder, config: Config, plan: Plan, *, trial: int, store: Path | None
) -> Setting:
    """What the trial's scheduler is made for; `store` None: it is not known yet."""
    return Setting(
        config=config,
        plan=plan,
        trial=run.trial(trial).path.resolve(),
        name=_job_name(run, trial),
        launcher=_launcher(run, config, plan, store=store),
    )


def python_of(config: Config) -> str:
    """The interpreter that the jobs run, on the node or in its container."""
    if config.container.image is not None:
        return config.container.python
    if config.scheduler.kind == "slurm" and config.slurm.python is not None:
        return config.slurm.python
    return sys.executable


def preview(run: RunFolder, config: Config, plan: Plan) -> list[tuple[str, str]]:
    """The scripts that the first trial would submit, as (name, text)."""
    trial = run.trial(1)
    jobs = [
        job_spec(
            trial,
            members=group,
            attempt=1,
            shares=plan.mapping[group[0]].shares,
            python=python_of(config),
        )
        for group in sharing.groups(plan.mapping, plan.sharing)
    ]
    setting = setting_of(run, config, plan, trial=1, store=None)
    return load_scheduler(plan.scheduler).preview(setting, jobs)


def known_states(run: RunFolder, trial: int) -> dict[int, tuple[JobRecord, JobStatus]]:
    """Of members that had not ended: their jobs and what the scheduler says of them now."""
    config, plan = configuration.load(run.config), run_folder.read(Plan, run.plan)
    setting = setting_of(run, config, plan, trial=trial, store=None)
    scheduler = load_scheduler(plan.scheduler).make(setting)
    known = known_jobs(run.trial(trial), scheduler)
    jobs = {member: job for member, job in known.items() if job.state in ACTIVE}
    told = scheduler.states([job.id for job in jobs.values()])
    scheduler.close()
    return {member: (job, told[job.id]) for member, job in jobs.items()}


def cancel_left_behind(run: RunFolder, trial: int) -> int:
    """End the jobs that a controller left in the queue; how many there were."""
    config, plan = configuration.load(run.config), run_folder.read(Plan, run.plan)
    active = [job.id for job, status in known_states(run, trial).values() if status.state in ACTIVE]
    if active:
        setting = setting_of(run, config, plan, trial=trial, store=None)
        load_scheduler(plan.scheduler).make(setting).cancel(active)
    return len(active)


def _job_name(run: RunFolder, trial: int) -> str:
    """Unlike any other run's, in letters that every scheduler takes."""
    whole = f"{run.path.resolve()}:{trial}".encode()
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", run.path.resolve().name)[:40]
    return f"ai500-{plain}-{hashlib.sha256(whole).hexdigest()[:8]}"


def _launcher(run: RunFolder, config: Config, plan: Plan, *, store: Path | None) -> Launcher:
    container = Container.of(
        config.container,
        folders=_folders(run, config, store=store),
        accelerators=plan.device != "cpu",
        environment=HANDED_THROUGH,
        working_directory=str(run.path.resolve()),
    )
    made: Launcher = plugins.load("launcher", plan.launcher)(container)
    return made


def _folders(run: RunFolder, config: Config, *, store: Path | None) -> tuple[str, ...]:
    """What a job reads and writes: run folder, store, scratch; each once."""
    folders = [str(run.path.resolve())]
    in_container = config.scheduler.launcher != "bare" and config.container.image is not None
    if config.data.stage and in_container:
        folders.append(_scratch_to_mount(config))
    if store is not None:
        folders.append(str(store.resolve()))
    return tuple(dict.fromkeys(folders))


def _scratch_to_mount(config: Config) -> str:
    """Up to the first variable: what that is, only the node knows."""
    stated = config.data.scratch
    if stated is None and load_scheduler(config.scheduler.kind).outlives_controller:
        raise ConfigError(
            "container.image on a cluster: the nodes' scratch folder must be known to be mounted. "
            "Set data.scratch to a folder that every node has, or data.stage = false."
        )
    plain, variable, _ = (stated or tempfile.gettempdir()).partition("$")
    if not plain.strip("/"):
        raise ConfigError(
            f"data.scratch = {stated!r}: a container needs a folder to mount that is known now. "
            "Begin it with one, as in /local/$SLURM_JOB_ID."
        )
    return str(Path(plain).parent if variable and not plain.endswith("/") else Path(plain))
