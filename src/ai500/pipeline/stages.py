"""The stages in order. This is the only file that knows it.

    Config → Plan → Bootstrap[M] → Placement → Job[M] → TrainRecord[M] → EnsembleResult → Score
           → Finding[] → Report

Each stage takes records and leaves a record in the run folder; one whose record is there is not
run again. Those that bring the data are in `data_stages.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from ai500 import config as configuration
from ai500.automl.history import History
from ai500.automl.search_score import search_result
from ai500.bagging.aggregate import MemberPredictions, aggregate, read_predictions
from ai500.bagging.illustrate import illustrate
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
from ai500.data.bootstrap import recorded_counts
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
    remove_staged,
    sample,
)
from ai500.pipeline.reporting import write_report
from ai500.pipeline.scoring import score_of_trial, score_run
from ai500.pipeline.session import Observer, Session
from ai500.records import (
    BootstrapRecord,
    EnsembleResult,
    JobRecord,
    Plan,
    Score,
    System,
    Task,
    TrialScore,
    run_folder,
)
from ai500.records.run_folder import RunFolder, TrialFolder
from ai500.workloads.class_data import class_source
from ai500.workloads.protocol import load_workload


def make_plan(config: Config) -> tuple[System, Plan]:
    """Config → Plan, on this machine or on the cluster that the scheduler tells of."""
    machine = system.describe()
    cluster = load_scheduler(config.scheduler.kind).survey(config)
    return machine, planning.make_plan(config, machine, cluster)


def prepare(config: Config, path: Path) -> RunFolder:
    """Config → Plan, in a new run folder. A plan that can't run leaves no folder behind."""
    machine, plan = make_plan(config)
    _check_local(plan, machine)
    preview(RunFolder(path), config, plan)  # a container that can't be started is refused here
    if config.data.path is None:
        class_source(plan.workload, plan.problem_class)
    run = RunFolder.create(path)
    write_text(run.config, to_toml(config))
    run_folder.write(run.system, machine)
    run_folder.write(run.plan, plan)
    run.begin(version=__version__)
    return run


def execute(run: RunFolder, observer: Observer, *, detach: bool = False) -> Score:
    """Every stage that is not done yet, to the score and the report."""
    try:
        return _execute(run, observer, detach=detach)
    except (KeyboardInterrupt, Disconnected):
        events.EventLog(run.events).emit("run_cancelled")
        raise RunCancelledError(
            f"cancelled; nothing is lost. Go on with: ai500 resume {run.path}"
        ) from None


def _execute(run: RunFolder, observer: Observer, *, detach: bool) -> Score:
    with run.locked():
        session = Session(
            run=run,
            config=configuration.load(run.config),
            plan=run_folder.read(Plan, run.plan),
            log=events.EventLog(run.events),
            observer=observer,
            detach=detach,
        )
        run.cancel_request.unlink(missing_ok=True)
        session.log.emit("run_start", pid=os.getpid(), version=__version__)
        failures: list[str] = []
        for trial in range(1, session.plan.trials + 1):
            failures += run_trial(session, trial)
        score = score_run(run)
        session.log.emit("run_end", flops=score.flops, vflops=score.vflops)
        observer.stage("report")
        write_report(run)
    if failures:
        raise JobError("\n\n".join(failures))
    return score


def run_trial(session: Session, number: int) -> list[str]:
    """One full trial: sample, place, train, aggregate, score. What failed, in words."""
    trial = session.run.trial(number)
    if session.run.cancel_request.exists():
        raise KeyboardInterrupt
    if trial.score.exists() and run_folder.read(TrialScore, trial.score).complete:
        return []
    seed = derive(session.plan.seed, Stream.TRIAL, number)
    store = open_store(session)
    begin_trial(session, number, seed=seed, store=store)
    bootstraps = sample(session, trial, seed=seed)
    placements = place(session, trial, store=store, bootstraps=bootstraps)
    tasks = member_tasks(
        session.run,
        on_data(session.plan, store),
        trial=number,
        seed=seed,
        bootstraps=bootstraps,
        placements=placements,
        config=session.config,
    )
    failed = train(session, number, tasks=tasks)
    collect_placements(trial)
    if session.plan.search is None:
        session.observer.stage("aggregating predictions and scoring")
        result = combine(session, trial, store=store, bootstraps=bootstraps)
        illustrate(trial, plan=session.plan, samples=store.splits["validation"])
    else:
        session.observer.stage("reading the workers' histories and scoring")
        result = best_found(session, trial)
    session.log.emit("aggregate", trial=number, result=schema.encode(result))
    told = list(events.read(session.run.events))
    run_folder.write(trial.score, score_of_trial(session.run, session.plan, told, number))
    if not failed:
        remove_staged(placements)
    return [_failure(session.run, number, member) for member in failed]


def train(session: Session, number: int, *, tasks: Sequence[Task]) -> list[int]:
    """Job Controller: all members to their ends; the members that failed."""
    plan, run, config = session.plan, session.run, session.config
    kind = load_scheduler(plan.scheduler)
    store = Path(tasks[0].store)
    controller = JobController(
        run,
        trial=number,
        tasks=tasks,
        shares={one.member: one.shares for one in plan.mapping},
        scheduler=kind.make(scheduler_context(run, config, plan, trial=number, store=store)),
        python=python_of(config),
        log=session.log,
        max_retries=config.scheduler.max_retries,
        poll_seconds=config.scheduler.poll_seconds,
    )
    of = f" {number} of {plan.trials}" if plan.trials > 1 else ""
    session.log.emit("sharing", trial=number, **schema.encode(plan.sharing))
    if plan.sharing.how != "alone":
        session.observer.stage(sharing.describe_sharing(plan.sharing, plan.members_per_accelerator))
    doing = "training the ensemble" if plan.search is None else "searching architectures"
    session.observer.stage(f"{doing}{', trial' + of if of else ''}")
    try:
        controller.start()
        if session.detach:
            raise Disconnected
        return controller.run(session.observer.members)
    except BaseException as error:
        # A job that outlives this process is ended only when a person says so.
        if kind.outlives_controller and not isinstance(error, KeyboardInterrupt):
            _leave(session, controller, error)
            raise
        session.observer.stage("cancelling: members write their checkpoints")
        with uninterrupted():
            controller.cancel()
        raise


def _leave(session: Session, controller: JobController, error: BaseException) -> None:
    """Say that the jobs go on; a folder that can't be written now must not hide why."""
    controller.leave()
    with contextlib.suppress(AI500Error):
        session.log.emit("controller_detached", reason=type(error).__name__)
    if isinstance(error, Disconnected):
        raise RunDetachedError(
            f"the members' jobs go on by themselves. Follow them with: ai500 resume "
            f"{session.run.path}"
        ) from None


def combine(
    session: Session, trial: TrialFolder, *, store: Store, bootstraps: Sequence[BootstrapRecord]
) -> EnsembleResult:
    """Aggregate the predictions of the members that finished."""
    plan = session.plan
    finished = [
        MemberPredictions(
            member=member,
            validation=read_predictions(trial.member(member).validation),
            out_of_bag=read_predictions(trial.member(member).out_of_bag),
            counts=recorded_counts(session.run.path, bootstraps[member]),
        )
        for member in range(plan.ensemble_size)
        if trial.member(member).record.exists()
    ]
    if not finished:
        number = int(trial.path.name)
        raise JobError("every member failed; the first:\n\n" + _failure(session.run, number, 0))
    result = aggregate(
        finished,
        workload=load_workload(plan.workload),
        validation_labels=store.splits["validation"].labels,
        train_labels=store.splits["train"].labels,
        ensemble_size=plan.ensemble_size,
        out_of_bag_limit=plan.definition.out_of_bag_samples,
    )
    run_folder.write(trial.ensemble, result)
    return result


def best_found(session: Session, trial: TrialFolder) -> EnsembleResult:
    """In place of an aggregation: the best model of each worker of a search that ended."""
    size = session.plan.ensemble_size
    finished = [member for member in range(size) if trial.member(member).record.exists()]
    if not finished:
        number = int(trial.path.name)
        raise JobError("every worker failed; the first:\n\n" + _failure(session.run, number, 0))
    history = History(trial.path / "members")
    result = search_result(history, finished=finished, ensemble_size=size)
    run_folder.write(trial.ensemble, result)
    return result


def _check_local(plan: Plan, machine: System) -> None:
    """The local scheduler has this machine and no other."""
    foreign = [node.name for node in plan.nodes if node.name != machine.hostname]
    if plan.scheduler == "local" and foreign:
        raise EnvironmentLacksError(
            f"scheduler.kind = 'local' runs on this machine alone; the plan has {len(plan.nodes)} "
            f"nodes ({foreign[0]}, …). Leave system.nodes out, or use `ai500 plan` only."
        )


def _failure(run: RunFolder, trial: int, member: int) -> str:
    folder, jobs = run.trial(trial).member(member), run.trial(trial).jobs
    again = f"`ai500 resume {run.path}` repeats it and only it."
    states = {job.member: job.state for job in run_folder.read_all(JobRecord, jobs)}
    if states.get(member) == "cancelled":
        return f"member {member} of trial {trial} was cancelled. {again}"
    return (
        f"member {member} of trial {trial} failed; the end of {folder.log}:\n\n"
        f"{log_tail(folder)}\n\n{again}"
    )
