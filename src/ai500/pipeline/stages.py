"""The stages of a run in order. This is the only file that knows it.

    Config → Plan → Bootstrap[M] → Placement → Job[M] → TrainRecord[M] → EnsembleResult → Score
           → Finding[] → Report

Each stage takes records and leaves a record in the run folder. `resume` repeats neither bootstraps
nor finished members nor complete trials; placement, aggregation, score and report are redone. The
stages that prepare the data are in `data_stages.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from ai500 import config as configuration
from ai500.bagging.job_controller import JobController, log_tail
from ai500.bagging.tasks import member_tasks
from ai500.config import Config, to_toml
from ai500.core import __version__, events, schema
from ai500.core.atomic import write_text
from ai500.core.errors import (
    AI500Error,
    Disconnected,
    EnvironmentLacksError,
    JobError,
    RunCancelledError,
    RunDetachedError,
)
from ai500.core.interrupts import uninterrupted
from ai500.core.randomness import Stream, derive
from ai500.data.store import Store
from ai500.inventory import machine as system
from ai500.jobs.schedulers import load_scheduler
from ai500.jobs.trial_jobs import preview, python_of, scheduler_context
from ai500.parallel import sharing
from ai500.pipeline import planning
from ai500.pipeline.data_stages import (
    begin_trial,
    collect_placements,
    on_data,
    open_store,
    place,
    registered_name,
    remove_staged,
    sample,
)
from ai500.pipeline.reporting import write_report
from ai500.pipeline.scoring import score_run
from ai500.pipeline.session import Observer, Session
from ai500.records import (
    BootstrapRecord,
    JobRecord,
    Plan,
    Score,
    System,
    Task,
    TrialScore,
    run_folder,
)
from ai500.records.run_folder import RunFolder
from ai500.workloads.class_data import class_source


def make_plan(config: Config) -> tuple[System, Plan]:
    """Plan a configuration, on this machine or on the cluster that the scheduler describes."""
    machine = system.describe()
    cluster = load_scheduler(config.scheduler.kind).survey(config)
    return machine, planning.make_plan(config, machine, cluster)


def prepare(config: Config, path: Path) -> RunFolder:
    """Plan a configuration in a new run folder. A plan that can't run leaves no folder behind."""
    machine, plan = make_plan(config)
    _check_local(plan, machine)
    preview(RunFolder(path), config, plan)  # refuses a container that can't be started
    class_name = registered_name(plan)
    if config.data.path is None and class_name is not None:
        class_source(plan.workload, class_name)
    run = RunFolder.create(path)
    write_text(run.config, to_toml(config))
    run_folder.write(run.system, machine)
    run_folder.write(run.plan, plan)
    run.begin(version=__version__)
    return run


def execute(run: RunFolder, observer: Observer, *, detach: bool = False) -> Score:
    """Run every stage that is not done yet, to the score and the report."""
    try:
        with run.locked():
            session = Session(
                run=run,
                config=configuration.load(run.config),
                plan=run_folder.read(Plan, run.plan),
                log=events.EventLog(run.events),
                observer=observer,
                detach=detach,
            )
            score, failures = _execute(session)
    except (KeyboardInterrupt, Disconnected):
        events.EventLog(run.events).emit("run_cancelled")
        raise RunCancelledError(
            "cancelled; finished work is kept.",
            path=run.path,
            remedy=f"Continue with: ai500 resume {run.path}",
        ) from None
    if failures:
        raise JobError("\n\n".join(failures), path=run.path)
    return score


def _execute(session: Session) -> tuple[Score, list[str]]:
    """Run all trials, then score and report the run; also return a text for each failed member."""
    run = session.run
    run.cancel_request.unlink(missing_ok=True)
    session.log.emit("run_start", pid=os.getpid(), version=__version__)
    failures: list[str] = []
    for number in range(1, session.plan.trials + 1):
        failures += run_trial(session, number)
    score = score_run(run)
    session.log.emit("run_end", flops=score.flops, vflops=score.vflops)
    session.observer.stage("report")
    write_report(run)
    return score, failures


def run_trial(session: Session, number: int) -> list[str]:
    """Run one trial: sample, place, train, aggregate, score. Return a text for each failure."""
    run, plan, trial = session.run, session.plan, session.run.trial(number)
    if run.cancel_request.exists():
        raise KeyboardInterrupt
    if trial.score.exists() and run_folder.read(TrialScore, trial.score).complete:
        return []
    seed = derive(plan.seed, Stream.TRIAL, number)
    store = open_store(session)
    begin_trial(session, number, seed=seed, store=store)
    bootstraps = sample(session, trial, seed=seed)
    placements = place(session, trial, store=store, bootstraps=bootstraps)
    tasks = member_tasks(
        run,
        on_data(plan, store),
        trial=number,
        seed=seed,
        bootstraps=bootstraps,
        placements=placements,
        config=session.config,
        program=session.program,
    )
    failed = train(session, number, tasks=tasks)
    collect_placements(trial)
    session.observer.stage(session.program.aggregation)
    aggregate(session, number, store=store, bootstraps=bootstraps)
    recorded = list(events.read(run.events))
    score = session.program.score_trial(plan, recorded, trial, number=number)
    run_folder.write(trial.score, score)
    if not failed:
        remove_staged(placements)
    return [_failure(session, number, member) for member in failed]


def train(session: Session, number: int, *, tasks: Sequence[Task]) -> list[int]:
    """Run all members of a trial to their ends (Job Controller). Return those that failed."""
    plan, run, config = session.plan, session.run, session.config
    kind = load_scheduler(plan.scheduler)
    store = Path(tasks[0].store)
    controller = JobController(
        run,
        trial=number,
        program=session.program,
        tasks=tasks,
        shares={mapping.member: mapping.shares for mapping in plan.mapping},
        scheduler=kind.make(scheduler_context(run, config, plan, trial=number, store=store)),
        python=python_of(config),
        log=session.log,
        max_retries=config.scheduler.max_retries,
        poll_seconds=config.scheduler.poll_seconds,
    )
    session.log.emit("sharing", trial=number, **schema.encode(plan.sharing))
    if plan.sharing.mode != "alone":
        session.observer.stage(sharing.describe_sharing(plan.sharing, plan.members_per_accelerator))
    which = f", trial {number} of {plan.trials}" if plan.trials > 1 else ""
    session.observer.stage(session.program.activity + which)
    try:
        controller.start()
        if session.detach:
            raise Disconnected
        return controller.run(session.observer.members)
    except BaseException as error:
        # A job that outlives this process is ended only at a person's request.
        if kind.outlives_controller and not isinstance(error, KeyboardInterrupt):
            _detach(session, controller, error)
            raise
        session.observer.stage("cancelling: members write their checkpoints")
        with uninterrupted():
            controller.cancel()
        raise


def _detach(session: Session, controller: JobController, error: BaseException) -> None:
    """Detach from jobs that outlive this process; a failing log must not hide the reason."""
    controller.detach()
    with contextlib.suppress(AI500Error):
        session.log.emit("controller_detached", reason=type(error).__name__)
    if isinstance(error, Disconnected):
        raise RunDetachedError(
            "the members' jobs are still running; no controller is attached.",
            path=session.run.path,
            remedy=f"Follow them with: ai500 resume {session.run.path}",
        ) from None


def aggregate(
    session: Session, number: int, *, store: Store, bootstraps: Sequence[BootstrapRecord]
) -> None:
    """Combine the results of the members that finished, and record them (Aggregation)."""
    run, plan, program = session.run, session.plan, session.program
    trial = run.trial(number)
    members = range(plan.ensemble_size)
    finished = [member for member in members if trial.member(member).record.exists()]
    if not finished:
        raise JobError(
            f"every {program.member_noun} failed; the first:\n\n{_failure(session, number, 0)}",
            path=run.path,
        )
    result = program.aggregate(
        run, plan, trial, finished=finished, store=store, bootstraps=bootstraps
    )
    run_folder.write(trial.ensemble, result)
    session.log.emit("aggregate", trial=number, result=schema.encode(result))


def _check_local(plan: Plan, machine: System) -> None:
    """Refuse a plan with other nodes than this machine for the local scheduler."""
    foreign = [node.name for node in plan.nodes if node.name != machine.hostname]
    if plan.scheduler == "local" and foreign:
        raise EnvironmentLacksError(
            f"scheduler.kind = 'local' runs on this machine only; the plan has {len(plan.nodes)} "
            f"nodes ({foreign[0]}, …).",
            key="scheduler.kind",
            value="local",
            remedy="Leave system.nodes out, or use `ai500 plan` only.",
        )


def _failure(session: Session, number: int, member: int) -> str:
    """Describe why a member failed, with the end of its log and the command that repeats it."""
    trial = session.run.trial(number)
    which = f"{session.program.member_noun} {member} of trial {number}"
    remedy = f"`ai500 resume {session.run.path}` repeats only what failed."
    states = {job.member: job.state for job in run_folder.read_all(JobRecord, trial.jobs)}
    if states.get(member) == "cancelled":
        return f"{which} was cancelled. {remedy}"
    folder = trial.member(member)
    return f"{which} failed; the end of {folder.log}:\n\n{log_tail(folder)}\n\n{remedy}"
