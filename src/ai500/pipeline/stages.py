"""The stages of a run in order. This is the only file that knows it.

    Config → Plan → Bootstrap[M] → Placement → Job[M] → TrainRecord[M] → EnsembleResult → Score
           → Finding[] → Report

Each stage takes records and leaves a record in the run folder. `resume` repeats neither bootstraps
nor finished members nor complete trials; placement, aggregation, score and report are redone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from ai500 import config as configuration
from ai500.bagging.data_sampler import Sampler
from ai500.bagging.job_controller import JobController, log_tail
from ai500.bagging.member_views import MemberView
from ai500.bagging.tasks import member_tasks
from ai500.config import Config, to_toml
from ai500.core import __version__, errors, events, plugins, schema
from ai500.core.atomic import explaining_write_errors, write_text
from ai500.core.interrupts import uninterrupted
from ai500.core.randomness import Stream, derive
from ai500.core.shell import quoted
from ai500.core.source import checkout_of, source_sha256
from ai500.data.bootstrap import recorded_counts, save_bootstrap
from ai500.data.open_store import open_store as open_folder
from ai500.data.store import Store
from ai500.frameworks.array_checkpoint import check_framework
from ai500.frameworks.script_data import ScriptFolder, open_script_data
from ai500.inventory import machine as system
from ai500.jobs.schedulers import load_scheduler
from ai500.jobs.trial_jobs import conflicts, preview, scheduler_context
from ai500.parallel import placement, sharing
from ai500.parallel.parallelism_controller import members_by_node
from ai500.pipeline import planning
from ai500.pipeline.leftovers import remove_temporary_files
from ai500.pipeline.programs import Program, program_of
from ai500.pipeline.scoring import scored_evidence, write_report
from ai500.records import (
    BootstrapRecord,
    JobRecord,
    Placement,
    Plan,
    Score,
    System,
    Task,
    TrialRecord,
    TrialScore,
    run_folder,
)
from ai500.records.run_folder import RunFolder, TrialFolder
from ai500.records.worker_exit import exit_remedy
from ai500.workloads.class_data import class_source, generate_store


class Observer(Protocol):
    """Receiver of a run's progress, such as the terminal or a test."""

    def stage(self, text: str) -> None:
        """Note that a stage begins."""

    def progress(self, done: int, total: int) -> None:
        """Note how many parts of the present stage are done."""

    def members(self, views: Sequence[MemberView]) -> None:
        """Show the progress of the members."""


class Silent:
    """An observer that shows nothing."""

    def stage(self, text: str) -> None:
        """Ignore that a stage begins."""

    def progress(self, done: int, total: int) -> None:
        """Ignore how far the stage is."""

    def members(self, views: Sequence[MemberView]) -> None:
        """Ignore where the members are."""


@dataclass
class Session:
    """Everything that the stages of a run share."""

    run: RunFolder
    config: Config
    plan: Plan
    log: events.EventLog
    observer: Observer
    detach: bool = False
    """Leave as soon as the members are submitted."""

    @property
    def program(self) -> Program:
        """Program of the run: an ensemble or a search."""
        return program_of(self.plan)


def survey_and_plan(config: Config) -> tuple[System, Plan]:
    """Plan a configuration, on this machine or on the cluster that the scheduler describes."""
    machine = system.describe()
    cluster = load_scheduler(config.scheduler.kind).survey(config)
    return machine, planning.make_plan(config, machine, cluster)


def prepare(config: Config, path: Path) -> RunFolder:
    """Plan a configuration in a new run folder. A plan that can't run leaves no folder behind."""
    machine, plan = survey_and_plan(config)
    _check_local(plan, machine)
    preview(RunFolder(path), config, plan)  # refuses a container that can't be started
    class_name = registered_name(plan)
    if config.data.path is None and class_name is not None:
        class_source(plan.workload, class_name)
    with RunFolder.creating(
        path, version=__version__, source_sha256=source_sha256(), checkout=checkout_of()
    ) as new:
        write_text(new.config, to_toml(config))
        run_folder.write(new.system, machine)
        run_folder.write(new.plan, plan)
    return RunFolder(path)


def _change_site_options(run: RunFolder, overrides: Mapping[str, object]) -> None:
    """Write the run's configuration with other site options, and log what changed."""
    config = configuration.changed_site_options(run.config, dict(overrides))
    write_text(run.config, to_toml(config))
    events.EventLog(run.events).emit("settings_changed", settings=dict(overrides))


def execute(
    run: RunFolder,
    observer: Observer,
    *,
    detach: bool = False,
    overrides: Mapping[str, object] = MappingProxyType({}),
) -> Score:
    """Run every stage that is not done yet, to the score and the report.

    `overrides` change site options of the run first.
    """
    try:
        with run.locked():
            if overrides:
                _change_site_options(run, overrides)
            session = Session(
                run=run,
                config=configuration.load(run.config),
                plan=run_folder.read(Plan, run.plan),
                log=events.EventLog(run.events),
                observer=observer,
                detach=detach,
            )
            score, failures = _execute(session)
    except (KeyboardInterrupt, errors.Disconnected):
        events.EventLog(run.events).emit("run_cancelled")
        raise errors.RunCancelledError(
            "cancelled; finished work is kept.",
            path=run.path,
            remedy=f"Continue with: ai500 resume {quoted(run.path)}",
        ) from None
    if failures:
        raise errors.JobError("\n\n".join(failures), path=run.path)
    return score


def _execute(session: Session) -> tuple[Score, list[str]]:
    """Run all trials, then score and report the run; also return a text for each failed member."""
    run = session.run
    run.cancel_request.unlink(missing_ok=True)
    remove_temporary_files(run)
    session.log.emit("run_start", pid=os.getpid(), version=__version__)
    failures: list[str] = []
    for number in range(1, session.plan.trials + 1):
        failures += run_trial(session, number)
    evidence = scored_evidence(run)
    score = evidence.score
    session.log.emit("run_end", flops=score.flops, vflops=score.vflops)
    session.observer.stage("report")
    write_report(run, evidence)
    return score, failures


def run_trial(session: Session, number: int) -> list[str]:
    """Run one trial: sample, place, train, aggregate, score. Return a text for each failure."""
    run, plan, trial = session.run, session.plan, session.run.trial(number)
    if run.cancel_request.exists():
        raise KeyboardInterrupt
    if _is_finished(session, number):
        return []
    if trial.trial.exists():
        session.program.recover(run, plan, trial=number, log=session.log)
    seed = derive(plan.seed, Stream.TRIAL, number)
    store = open_store(session)
    begin_trial(session, number, seed=seed, store=store)
    check_checkpoints(session, number)
    tasks = prepare_members(session, number, seed=seed, store=store)
    failed = train(session, number, tasks=tasks)
    collect_placements(trial)
    session.observer.stage(session.program.aggregation)
    aggregate(session, number, store=store)
    recorded = list(events.read_checked(run.events))
    score = session.program.score_trial(run, plan, number, events=recorded)
    run_folder.write(trial.score, score)
    if not failed:
        remove_staged(tasks)
    return [_failure(session, number, member) for member in failed]


def train_members(
    run: RunFolder, chosen: Collection[tuple[int, int]], observer: Observer
) -> list[str]:
    """Train these members, (trial, member), and no others; return a text for each failure."""
    failures: list[str] = []
    with run.locked():
        session = Session(
            run=run,
            config=configuration.load(run.config),
            plan=run_folder.read(Plan, run.plan),
            log=events.EventLog(run.events),
            observer=observer,
        )
        session.log.emit("run_start", pid=os.getpid(), version=__version__)
        for number in sorted({trial for trial, _ in chosen}):
            seed = derive(session.plan.seed, Stream.TRIAL, number)
            store = open_store(session)
            begin_trial(session, number, seed=seed, store=store)
            tasks = [
                # Members that shared their process with others are alone here.
                dataclasses.replace(task, process_members=())
                for task in prepare_members(session, number, seed=seed, store=store)
                if (number, task.member) in chosen
            ]
            failed = train(session, number, tasks=tasks)
            failures += [_failure(session, number, member) for member in failed]
            remove_staged(tasks)
        session.log.emit("run_end")
    return failures


def _is_finished(session: Session, number: int) -> bool:
    """Return True if a trial has a complete score, and no record lacks that a stage has written.

    `ai500 score` writes a score from the events alone: it says nothing of the other records.
    """
    trial, members = session.run.trial(number), range(session.plan.ensemble_size)
    written = [trial.score, trial.ensemble, *(trial.member(m).record for m in members)]
    if not all(path.exists() for path in written):
        return False
    complete = run_folder.read(TrialScore, trial.score).complete
    return complete and "aggregate" in _logged(session, number)


def _logged(session: Session, number: int) -> set[str]:
    """Return the kinds of events that the run's log has of a trial."""
    recorded = events.read_checked(session.run.events)
    return {event["event"] for event in recorded if event.get("trial") == number}


def begin_trial(session: Session, number: int, *, seed: int, store: Store) -> None:
    """Record the trial's seed and data; refuse to resume a trial on other data."""
    trial = session.run.trial(number)
    if not trial.trial.exists() or "trial_start" not in _logged(session, number):
        session.log.emit("trial_start", trial=number, seed=seed)
    if not trial.trial.exists():
        run_folder.write(
            trial.trial, TrialRecord(trial=number, seed=seed, store_sha256=store.sha256)
        )
    record = run_folder.read(TrialRecord, trial.trial)
    if record.store_sha256 != store.sha256:
        raise errors.DataError(
            f"{store.path}: its SHA-256 is {store.sha256}; trial {number} began with "
            f"{record.store_sha256}.",
            key="store_sha256",
            value=store.sha256,
            path=store.path,
            remedy="Restore that store, or start a new run.",
        )


def check_checkpoints(session: Session, number: int) -> None:
    """Refuse checkpoints of another framework before a job starts."""
    for member in range(session.plan.ensemble_size):
        folder = session.run.trial(number).member(member)
        check_framework(folder, framework=session.plan.framework.kind)


def open_store(session: Session) -> Store:
    """Open the user's store, or the class's own, which is generated once and cached."""
    plan, path = session.plan, session.config.data.path
    class_name = registered_name(plan)
    if path is not None:
        is_script, folder = plan.framework.kind == "script", Path(path)
        store = open_script_data(folder, run=session.run) if is_script else open_folder(folder)
    elif class_name is None:
        store = ScriptFolder(Path(plan.framework.folder or "."), run=None)
    else:
        session.observer.stage("data of the class")
        store = generate_store(plan.workload, class_name, progress=session.observer.progress)
    store.require_fit(plan.definition)
    if store.preparation is not None:
        session.observer.stage(store.preparation)
        store.prepare(session.observer.progress)
    if not plan.stage:
        # Staging checks the digest of every sample that it copies; without it, check here.
        session.observer.stage("verifying the store")
        store.verify(session.observer.progress)
    return store


def registered_name(plan: Plan) -> str | None:
    """Return the registered class whose data a plan uses; None: its script brings the data."""
    custom = plan.definition.custom
    return plan.definition.name if custom is None else custom.base


def prepare_members(session: Session, number: int, *, seed: int, store: Store) -> list[Task]:
    """Draw the members' bootstraps, place their data, and return what each worker needs."""
    trial = session.run.trial(number)
    bootstraps = sample(session, trial, seed=seed)
    return member_tasks(
        session.run,
        on_data(session.plan, store),
        trial=number,
        seed=seed,
        bootstraps=bootstraps,
        placements=place(session, trial, store=store, bootstraps=bootstraps),
        config=session.config,
        entry_point=session.program.entry_point,
    )


def sample(session: Session, trial: TrialFolder, *, seed: int) -> list[BootstrapRecord]:
    """Draw and write the repeat counts of each member's bootstrap (Data Sampler, V3 Fig. 4)."""
    plan, records = session.plan, []
    if trial.bootstraps.exists():
        records = run_folder.read_all(BootstrapRecord, trial.bootstraps)
        for record in records:
            _restore_bootstrap(session, trial, record, seed=seed)
        return records
    session.observer.stage("drawing bootstraps")
    for member in range(plan.ensemble_size):
        records.append(_draw(session, trial, member, seed=seed))
        session.observer.progress(member + 1, plan.ensemble_size)
    run_folder.write(trial.bootstraps, records)
    return records


def _draw(session: Session, trial: TrialFolder, member: int, *, seed: int) -> BootstrapRecord:
    """Draw and write one member's bootstrap."""
    plan, path = session.plan, trial.bootstrap(member)
    sampler: Sampler = plugins.load("sampler", plan.sampler)
    with explaining_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    counts = sampler.draw(plan.definition.train_samples, seed=seed, member=member)
    head = save_bootstrap(path, counts, algorithm=plan.sampler, seed=seed, member=member)
    return BootstrapRecord(
        member=member,
        path=str(path.relative_to(session.run.path)),
        samples=head.samples,
        drawn=head.drawn,
        distinct=head.distinct,
        sha256=head.sha256,
    )


def _restore_bootstrap(
    session: Session, trial: TrialFolder, record: BootstrapRecord, *, seed: int
) -> None:
    """Draw a bootstrap that was lost or damaged again; refuse one that differs from its record."""
    try:
        recorded_counts(session.run.path, record)
        return
    except errors.DataError as error:
        session.log.emit("bootstrap_redrawn", member=record.member, reason=str(error))
    drawn = _draw(session, trial, record.member, seed=seed)
    if drawn != record:
        raise errors.DataError(
            f"{trial.bootstraps}: the bootstrap of member {record.member} has SHA-256 "
            f"{drawn.sha256}, the run recorded {record.sha256}.",
            key="sha256",
            value=drawn.sha256,
            path=trial.bootstraps,
            remedy="Restore the file from a backup, or start a new run.",
        )


def place(
    session: Session, trial: TrialFolder, *, store: Store, bootstraps: Sequence[BootstrapRecord]
) -> list[Placement]:
    """Copy the samples of each node's members to its local folder, once (Data Duplicator)."""
    plan, placements = session.plan, []
    controller_copies = load_scheduler(plan.scheduler).controller_places_data
    node_members = members_by_node(plan.mapping)
    for node in plan.nodes:
        members = node_members.get(node.name, [])
        if not (plan.stage and members and controller_copies):
            placements.append(placement.in_shared_store(store, node=node.name))
            continue
        # Here, not above: variables in data.scratch may be set on the nodes only.
        scratch = placement.scratch_folder(session.run.path, stated=session.config.data.scratch)
        session.observer.stage(f"staging data on {node.name}")
        placements.append(
            placement.on_node(
                store,
                node=node.name,
                counts=[recorded_counts(session.run.path, bootstraps[m]) for m in members],
                folder=scratch / trial.path.name,
                progress=session.observer.progress,
            )
        )
    run_folder.write(trial.placement, placements)
    return placements


def collect_placements(trial: TrialFolder) -> None:
    """Replace the planned placements by those that the jobs recorded, where there are any."""
    files = sorted(trial.path.glob("placements/*.json"))
    if files:
        run_folder.write(trial.placement, [run_folder.read(Placement, file) for file in files])


def on_data(plan: Plan, store: Store) -> Plan:
    """Complete the plan with what follows from its data: the normalization of the channels."""
    normalization = store.normalization()
    if normalization is None:
        return plan
    definition = dataclasses.replace(plan.definition, normalization=normalization)
    return dataclasses.replace(plan, definition=definition)


def remove_staged(tasks: Sequence[Task]) -> None:
    """Remove a finished trial's copies: the next trial has other bootstraps."""
    for folder in {task.staged for task in tasks if task.staged is not None}:
        placement.remove(Path(folder).parent)


def train(session: Session, number: int, *, tasks: Sequence[Task]) -> list[int]:
    """Run all members of a trial to their ends (Job Controller). Return those that failed."""
    plan, run, config = session.plan, session.run, session.config
    kind = load_scheduler(plan.scheduler)
    store = Path(tasks[0].store)

    def note(text: str) -> None:
        session.log.emit("scheduler_note", trial=number, text=text)
        session.observer.stage(text)

    for conflict in conflicts(config, plan):
        note(f"cannot run as planned: {conflict}")
    context = scheduler_context(run, config, plan, trial=number, store=store)
    controller = JobController(
        run,
        config,
        plan,
        trial=number,
        tasks=tasks,
        scheduler=kind.make(dataclasses.replace(context, note=note)),
        log=session.log,
        details_reader=session.program.details_reader,
        note=session.observer.stage,
    )
    session.log.emit("sharing", trial=number, **schema.encode(plan.sharing))
    if plan.sharing.mode != "alone":
        session.observer.stage(sharing.describe_sharing(plan.sharing, plan.members_per_accelerator))
    which = f", trial {number} of {plan.trials}" if plan.trials > 1 else ""
    session.observer.stage(session.program.activity + which)
    try:
        controller.start()
        if session.detach:
            raise errors.Disconnected
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
    with contextlib.suppress(errors.AI500Error):
        session.log.emit("controller_detached", reason=type(error).__name__)
    if isinstance(error, errors.Disconnected):
        raise errors.RunDetachedError(
            "the members' jobs are still running; no controller is attached.",
            path=session.run.path,
            remedy=f"Follow them with: ai500 resume {quoted(session.run.path)}",
        ) from None


def aggregate(session: Session, number: int, *, store: Store) -> None:
    """Combine the results of the members that finished, and record them (Aggregation)."""
    run, plan, program = session.run, session.plan, session.program
    trial = run.trial(number)
    members = range(plan.ensemble_size)
    finished = [member for member in members if trial.member(member).record.exists()]
    if not finished:
        raise errors.JobError(
            f"every {program.member_noun} failed; the first:\n\n{_failure(session, number, 0)}",
            path=run.path,
        )
    result = program.aggregate(run, plan, number, finished=finished, store=store)
    run_folder.write(trial.ensemble, result)
    session.log.emit("aggregate", trial=number, result=schema.encode(result))


def _check_local(plan: Plan, machine: System) -> None:
    """Refuse a plan with other nodes than this machine for the local scheduler."""
    foreign = [node.name for node in plan.nodes if node.name != machine.hostname]
    if plan.scheduler == "local" and foreign:
        raise errors.EnvironmentLacksError(
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
    jobs = {job.member: job for job in run_folder.read_all(JobRecord, trial.jobs)}
    job, folder = jobs.get(member), trial.member(member)
    remedy = exit_remedy(job.cause if job else None, run=str(session.run.path))
    if job is not None and job.state == "cancelled":
        return f"{which} was cancelled. {remedy}"
    cause = f": {job.end}" if job is not None and job.end else ""
    return f"{which} failed{cause}; the end of {folder.log}:\n\n{log_tail(folder)}\n\n{remedy}"
