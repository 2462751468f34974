"""The stages that prepare a trial's data: the store, the bootstraps, the copies on the nodes.

`stages.py` calls them in order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ai500.bagging.data_sampler import Sampler
from ai500.core import plugins
from ai500.core.errors import DataError
from ai500.data.bootstrap import recorded_counts, save_bootstrap
from ai500.data.open_store import open_store as open_folder
from ai500.data.store import Store
from ai500.frameworks.script_data import ScriptFolder, open_script_data
from ai500.jobs.schedulers import load_scheduler
from ai500.parallel import placement
from ai500.parallel.parallelism_controller import members_by_node
from ai500.pipeline.session import Session
from ai500.records import BootstrapRecord, Placement, Plan, TrialRecord, run_folder
from ai500.records.run_folder import TrialFolder
from ai500.workloads.class_data import generate_store


def begin_trial(session: Session, number: int, *, seed: int, store: Store) -> None:
    """Record the trial's seed and data; refuse to resume a trial on other data."""
    trial = session.run.trial(number)
    if not trial.trial.exists():
        session.log.emit("trial_start", trial=number, seed=seed)
        run_folder.write(
            trial.trial, TrialRecord(trial=number, seed=seed, store_sha256=store.sha256)
        )
    record = run_folder.read(TrialRecord, trial.trial)
    if record.store_sha256 != store.sha256:
        raise DataError(
            f"{store.path}: its SHA-256 is {store.sha256}; trial {number} began with "
            f"{record.store_sha256}.",
            key="store_sha256",
            value=store.sha256,
            path=store.path,
            remedy="Restore that store, or start a new run.",
        )


def open_store(session: Session) -> Store:
    """Open the user's store, or the class's own, which is generated once and cached."""
    plan, path = session.plan, session.config.data.path
    class_name = registered_name(plan)
    if path is not None:
        is_script = plan.framework.kind == "script"
        store = open_script_data(Path(path)) if is_script else open_folder(Path(path))
    elif class_name is None:
        store = ScriptFolder(Path(plan.framework.folder or "."))
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
    return plan.problem_class if custom is None else custom.base


def sample(session: Session, trial: TrialFolder, *, seed: int) -> list[BootstrapRecord]:
    """Draw and write the repeat counts of each member's bootstrap (Data Sampler, V3 Fig. 4)."""
    if trial.bootstraps.exists():
        return run_folder.read_all(BootstrapRecord, trial.bootstraps)
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
    run_folder.write(trial.bootstraps, records)
    return records


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
        session.observer.stage(f"staging data on {node.name}")
        placements.append(
            placement.on_node(
                store,
                node=node.name,
                counts=[recorded_counts(session.run.path, bootstraps[m]) for m in members],
                folder=_scratch(session) / trial.path.name,
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


def remove_staged(placements: Sequence[Placement]) -> None:
    """Remove a finished trial's copies: the next trial has other bootstraps."""
    for placed in placements:
        if placed.folder is not None:
            placement.remove(Path(placed.folder).parent)


def _scratch(session: Session) -> Path:
    return placement.scratch_folder(session.run.path, stated=session.config.data.scratch)
