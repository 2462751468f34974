"""The stages in order. This is the only file that knows it.

    Config → Plan → Bootstrap[M] → Placement → Job[M] → TrainRecord[M] → EnsembleResult → Score
           → Finding[] → Report

Each stage takes records and leaves a record in the run folder; one whose record is there is not
run again.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import ai500
from ai500 import config as configuration
from ai500 import events, planning, plugins, rundir, schema, system
from ai500.atomic import write_text
from ai500.bagging.aggregate import MemberPredictions, aggregate, read_predictions
from ai500.bagging.data_sampler import Counts, Sampler, load_bootstrap, save_bootstrap
from ai500.bagging.job_controller import JobController, MemberView, log_tail, train_record
from ai500.config import Config
from ai500.data.store import ImageSource, Store
from ai500.data.store_writer import generate
from ai500.errors import DataError, EnvironmentLacksError, JobError
from ai500.metrics.trials import mean_of_trials, score_trial
from ai500.parallel.data_duplicator import duplicate
from ai500.randomness import Stream, derive
from ai500.records import (
    BootstrapRecord,
    EnsembleResult,
    Finding,
    Placement,
    Plan,
    Score,
    Slot,
    System,
    Task,
)
from ai500.report.html import write_report
from ai500.rules import checks as checks  # registers the rules
from ai500.rules.layers import Evidence, judge
from ai500.rundir import RunFolder, TrialFolder


class Observer(Protocol):
    """Who watches a run: the terminal, a test, nobody."""

    def stage(self, text: str) -> None:
        """A stage begins."""

    def progress(self, done: int, total: int) -> None:
        """How far the stage is."""

    def members(self, views: Sequence[MemberView]) -> None:
        """Where the members are."""


class RunCancelledError(JobError):
    """A person ended the run; what was done is kept."""

    exit_code = 130


@dataclass
class Session:
    """One process at work in one run folder."""

    run: RunFolder
    config: Config
    plan: Plan
    log: events.EventLog
    observer: Observer


def prepare(config: Config, path: Path) -> RunFolder:
    """Config → Plan, in a new run folder. A plan that can't run leaves no folder behind."""
    machine = system.describe()
    plan = planning.make_plan(config, machine)
    _check_local(plan, machine)
    if config.data.path is None:
        class_source(plan.workload, plan.problem_class)
    run = RunFolder.create(path, version=ai500.__version__)
    write_text(run.config, configuration.to_toml(config))
    rundir.write(run.system, machine)
    rundir.write(run.plan, plan)
    return run


def execute(run: RunFolder, observer: Observer) -> Score:
    """Every stage that is not done yet, to the score and the report."""
    with run.locked():
        session = Session(
            run=run,
            config=configuration.load(run.config),
            plan=rundir.read(Plan, run.plan),
            log=events.EventLog(run.events),
            observer=observer,
        )
        session.log.emit("run_start", pid=os.getpid(), version=ai500.__version__)
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
    if trial.score.exists() and rundir.read(Score, trial.score).complete:
        return []
    seed = derive(session.plan.seed, Stream.TRIAL, number)
    store = open_store(session)
    if not trial.trial.exists():
        session.log.emit("trial_start", trial=number, seed=seed)
        rundir.write(trial.trial, {"trial": number, "seed": seed})
    bootstraps = sample(session, trial, seed=seed)
    placements = place(session, trial, store=store, bootstraps=bootstraps)
    failed = train(session, number, seed=seed, bootstraps=bootstraps, placements=placements)
    session.observer.stage("aggregating predictions and scoring")
    result = combine(session, trial, store=store, bootstraps=bootstraps)
    session.log.emit("aggregate", trial=number, result=schema.encode(result))
    rundir.write(
        trial.score, score_trial(session.plan, events.read(session.run.events), trial=number)
    )
    if not failed:
        _remove_staged(placements)
    return [_failure(session.run, number, member) for member in failed]


def open_store(session: Session) -> Store:
    """The user's store, or the class's own, generated once and kept in the cache."""
    plan, path = session.plan, session.config.data.path
    if path is not None:
        store = Store.open(Path(path))
    else:
        store = generate_store(plan.workload, plan.problem_class, observer=session.observer)
    if not plan.stage:
        # Staging holds every sample against its digest as it copies it; here nobody would.
        session.observer.stage("verifying the store")
        store.verify(session.observer.progress)
    return store


def class_source(workload_name: str, class_name: str) -> ImageSource:
    """The generator of a class's data, or an error that says how to bring one's own."""
    workload = plugins.workload(workload_name)
    source = workload.source(workload.problem_classes[class_name])
    if source is None:
        raise DataError(
            f"class {class_name} of {workload_name} needs your own data: pack it with "
            "`ai500 data pack SOURCE --out STORE` and pass --data STORE."
        )
    return source


def generate_store(
    workload_name: str, class_name: str, *, observer: Observer, path: Path | None = None
) -> Store:
    """The learnable data of a built-in class, the same bytes on every machine."""
    source = class_source(workload_name, class_name)
    problem_class = plugins.workload(workload_name).problem_classes[class_name]
    name = f"{workload_name}-{class_name}"
    identity = problem_class.store_sha256
    observer.stage("data of the class")
    return generate(
        # Another generator, or the same with other settings, makes another store.
        path or cache_folder() / f"{name}-{hashlib.sha256(repr(source).encode()).hexdigest()[:12]}",
        source,
        name=name,
        classes=[f"class {number}" for number in range(problem_class.classes)],
        splits={
            "train": problem_class.train_samples,
            "validation": problem_class.validation_samples,
        },
        expected_sha256=identity,
        progress=observer.progress,
    )


def sample(session: Session, trial: TrialFolder, *, seed: int) -> list[BootstrapRecord]:
    """Data Sampler: a manifest of repeat counts for each member."""
    if trial.bootstraps.exists():
        return rundir.read_all(BootstrapRecord, trial.bootstraps)
    plan = session.plan
    session.observer.stage("drawing bootstraps")
    sampler: Sampler = plugins.load("sampler", plan.sampler)
    records = []
    trial.bootstrap(0).parent.mkdir(parents=True, exist_ok=True)
    for member in range(plan.ensemble_size):
        counts = sampler.draw(plan.definition.train_samples, seed=seed, member=member)
        path = trial.bootstrap(member)
        head = save_bootstrap(path, counts, algorithm=plan.sampler, seed=seed, member=member)
        records.append(
            BootstrapRecord(
                member=member,
                path=str(path.relative_to(session.run.path)),
                samples=head.samples,
                drawn=head.drawn,
                distinct=head.distinct,
                sha256=head.sha256,
            )
        )
        session.observer.progress(member + 1, plan.ensemble_size)
    rundir.write(trial.bootstraps, records)
    return records


def place(
    session: Session, trial: TrialFolder, *, store: Store, bootstraps: Sequence[BootstrapRecord]
) -> list[Placement]:
    """Data Duplicator: what each node's members need, to its local folder, once per node."""
    plan, placements = session.plan, []
    for node in plan.nodes:
        members = [one.member for one in plan.mapping if node.name in {s.node for s in one.shares}]
        started = time.monotonic()
        folder, samples, size = None, 0, 0
        if plan.stage and members:
            session.observer.stage(f"staging data on {node.name}")
            staged = duplicate(
                store,
                counts=[_counts(session.run, bootstraps[member]) for member in members],
                folder=_scratch(session.config),
                progress=session.observer.progress,
            )
            folder = str(staged.path)
            samples = int(sum(split.count for split in staged.splits.values()))
            size = sum(file.stat().st_size for file in staged.path.iterdir())
        placements.append(
            Placement(
                node=node.name,
                store=str(store.path.resolve()),
                store_sha256=store.sha256,
                folder=folder,
                samples=samples,
                bytes=size,
                seconds=time.monotonic() - started,
            )
        )
    rundir.write(trial.placement, placements)
    return placements


def train(
    session: Session,
    number: int,
    *,
    seed: int,
    bootstraps: Sequence[BootstrapRecord],
    placements: Sequence[Placement],
) -> list[int]:
    """Job Controller: all members to their ends; the members that failed."""
    plan, run = session.plan, session.run
    controller = JobController(
        run,
        trial=number,
        tasks=[
            _task(session, number, member, seed=seed, bootstraps=bootstraps, placements=placements)
            for member in range(plan.ensemble_size)
        ],
        shares={one.member: one.shares for one in plan.mapping},
        scheduler=plugins.load("scheduler", plan.scheduler)(
            members_per_accelerator=plan.members_per_accelerator
        ),
        launcher=plugins.load("launcher", plan.launcher),
        log=session.log,
        max_retries=session.config.scheduler.max_retries,
        poll_seconds=session.config.scheduler.poll_seconds,
    )
    of = f" {number} of {plan.trials}" if plan.trials > 1 else ""
    session.observer.stage(f"training the ensemble{', trial' + of if of else ''}")
    try:
        return controller.run(session.observer.members)
    except KeyboardInterrupt:
        session.observer.stage("cancelling: members write their checkpoints")
        controller.cancel()
        session.log.emit("run_cancelled", trial=number)
        raise RunCancelledError(
            f"cancelled; nothing is lost. Go on with: ai500 resume {run.path}"
        ) from None
    except BaseException:
        controller.cancel()
        raise


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
            counts=_counts(session.run, bootstraps[member]),
        )
        for member in range(plan.ensemble_size)
        if trial.member(member).record.exists()
    ]
    if not finished:
        number = int(trial.path.name)
        raise JobError("every member failed; the first:\n\n" + _failure(session.run, number, 0))
    result = aggregate(
        finished,
        workload=plugins.workload(plan.workload),
        validation_labels=store.splits["validation"].labels,
        train_labels=store.splits["train"].labels,
        ensemble_size=plan.ensemble_size,
        out_of_bag_limit=plan.definition.out_of_bag_samples,
    )
    rundir.write(trial.ensemble, result)
    return result


def score_run(run: RunFolder) -> Score:
    """The run's score and findings, recomputed from the events."""
    plan = rundir.read(Plan, run.plan)
    told = list(events.read(run.events))
    done = sorted({e["trial"] for e in told if e["event"] == "aggregate"})
    if not done:
        raise JobError(f"{run.path} has no finished trial yet: `ai500 resume {run.path}`.")
    trials = [score_trial(plan, told, trial=number) for number in done]
    for number, one in zip(done, trials, strict=True):
        rundir.write(run.trial(number).score, one)
    score = mean_of_trials(trials)
    rundir.write(run.score, score)
    rundir.write(run.findings, find(run, plan, score))
    return score


def find(run: RunFolder, plan: Plan, score: Score) -> list[Finding]:
    """What the rules say of the run."""
    members, placements = [], []
    for one in score.trials:
        assert one.trial is not None
        trial = run.trial(one.trial)
        placements += rundir.read_all(Placement, trial.placement)
        folders = [trial.member(member) for member in range(plan.ensemble_size)]
        members += [train_record(folder) for folder in folders if folder.record.exists()]
    reference = plugins.workload(plan.workload).problem_classes[plan.problem_class]
    return judge(
        Evidence(
            reference=reference, plan=plan, score=score, placements=placements, members=members
        )
    )


def cache_folder() -> Path:
    """Where generated data is kept between runs."""
    if "AI500_CACHE" in os.environ:
        return Path(os.environ["AI500_CACHE"])
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ai500"


def _check_local(plan: Plan, machine: System) -> None:
    """The local scheduler has this machine and no other."""
    foreign = [node.name for node in plan.nodes if node.name != machine.hostname]
    if plan.scheduler == "local" and foreign:
        raise EnvironmentLacksError(
            f"scheduler.kind = 'local' runs on this machine alone; the plan has {len(plan.nodes)} "
            f"nodes ({foreign[0]}, …). Leave system.nodes out, or use `ai500 plan` only."
        )


def _task(
    session: Session,
    number: int,
    member: int,
    *,
    seed: int,
    bootstraps: Sequence[BootstrapRecord],
    placements: Sequence[Placement],
) -> Task:
    plan, run = session.plan, session.run
    shares = plan.mapping[member].shares
    placement = next(p for p in placements if p.node == shares[0].node)
    return Task(
        run=str(run.path.resolve()),
        trial=number,
        member=member,
        seed=seed,
        workload=plan.workload,
        definition=plan.definition,
        hyperparameters=plan.hyperparameters,
        parallel_mode=plan.parallel_mode,
        parallel_degree=plan.parallel_degree,
        steps_per_epoch=_steps_per_epoch(plan, bootstraps[member]),
        slots=_slots(plan, member),
        bootstrap=str((run.path / bootstraps[member].path).resolve()),
        store=placement.store,
        staged=placement.folder,
        folder=str(run.trial(number).member(member).path.resolve()),
        checkpoint_seconds=session.config.train.checkpoint_minutes * 60,
        convention=planning.OFFICIAL_CONVENTION,
    )


def _steps_per_epoch(plan: Plan, bootstrap: BootstrapRecord) -> int:
    """Whole batches of what the member drew (a poisson bootstrap varies in size)."""
    steps = bootstrap.drawn // plan.global_batch_size
    if steps == 0:
        raise DataError(
            f"member {bootstrap.member} drew {bootstrap.drawn} samples, less than one step of "
            f"{plan.global_batch_size}. Set a smaller train.batch_size."
        )
    return steps


def _slots(plan: Plan, member: int) -> tuple[Slot, ...]:
    slots = {(node.name, slot.index): slot for node in plan.nodes for slot in node.slots}
    shares = plan.mapping[member].shares
    return tuple(slots[share.node, index] for share in shares for index in share.slots)


def _counts(run: RunFolder, bootstrap: BootstrapRecord) -> Counts:
    header, counts = load_bootstrap(run.path / bootstrap.path)
    if header.sha256 != bootstrap.sha256:
        raise DataError(
            f"{run.path / bootstrap.path}: SHA-256 of its counts is {header.sha256}, the run "
            f"recorded {bootstrap.sha256}. Start a new run."
        )
    return counts


def _scratch(config: Config) -> Path:
    if config.data.scratch is not None:
        return Path(config.data.scratch)
    return Path(tempfile.gettempdir()) / f"ai500-{getpass.getuser()}"


def _remove_staged(placements: Sequence[Placement]) -> None:
    """A finished trial's copy serves nobody: the next trial has other bootstraps."""
    for placement in placements:
        if placement.folder is not None:
            shutil.rmtree(placement.folder, ignore_errors=True)
            Path(placement.folder).with_suffix(".lock").unlink(missing_ok=True)


def _failure(run: RunFolder, trial: int, member: int) -> str:
    folder = run.trial(trial).member(member)
    return (
        f"member {member} of trial {trial} failed; the end of {folder.log}:\n\n"
        f"{log_tail(folder)}\n\n`ai500 resume {run.path}` repeats it and only it."
    )
