"""Tasks: one record for each member with everything that its worker needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ai500.config import Config
from ai500.core.errors import DataError
from ai500.parallel import sharing
from ai500.parallel.parallelism_controller import members_by_node, share_nodes
from ai500.records import OFFICIAL_CONVENTION, BootstrapRecord, Placement, Plan, Slot, Task
from ai500.records.run_folder import RunFolder


def member_tasks(
    run: RunFolder,
    plan: Plan,
    *,
    trial: int,
    seed: int,
    bootstraps: Sequence[BootstrapRecord],
    placements: Sequence[Placement],
    config: Config,
    entry_point: str,
) -> list[Task]:
    """Return the tasks of all members of one trial, in order."""
    root = run.path.resolve()
    placed = {placement.node: placement for placement in placements}
    on_node = _node_members(plan, start=config.slurm.start)
    process = {m: group for group in sharing.groups(plan.mapping, plan.sharing) for m in group}
    slots = {(node.name, slot.index): slot for node in plan.nodes for slot in node.slots}
    tasks = []
    for member in range(plan.ensemble_size):
        placement = placed[plan.mapping[member].shares[0].node]
        tasks.append(
            Task(
                run=str(root),
                trial=trial,
                member=member,
                seed=seed,
                workload=plan.workload,
                definition=plan.definition,
                hyperparameters=plan.hyperparameters,
                parallel=plan.parallel,
                communication=plan.communication,
                parallel_degree=plan.parallel_degree,
                steps_per_epoch=_steps_per_epoch(plan, bootstraps[member]),
                slots=_slots(plan, member, slots),
                bootstrap=str(root / bootstraps[member].path),
                store=placement.store,
                staged=placement.folder,
                stage=plan.stage and placement.folder is None,
                scratch=config.data.scratch,
                node_members=on_node[member],
                folder=str(RunFolder(root).trial(trial).member(member).path),
                checkpoint_seconds=config.train.checkpoint_minutes * 60,
                convention=OFFICIAL_CONVENTION,
                meter_seconds=config.run.meter_seconds,
                process_members=process[member] if len(process[member]) > 1 else (),
                search=plan.search,
                entry_point=entry_point,
                framework=plan.framework,
                bootstrap_sha256=bootstraps[member].sha256,
                own_code=plan.own_code,
            )
        )
    return tasks


def _steps_per_epoch(plan: Plan, bootstrap: BootstrapRecord) -> int:
    """Count the whole batches of a member's bootstrap (a poisson one varies in size)."""
    steps = bootstrap.drawn // plan.global_batch_size
    if steps == 0:
        raise DataError(
            f"member {bootstrap.member} drew {bootstrap.drawn} samples, less than one step of "
            f"{plan.global_batch_size}.",
            key="train.batch_size",
            value=plan.global_batch_size,
            remedy="Set a smaller train.batch_size.",
        )
    return steps


def _node_members(plan: Plan, *, start: str) -> list[tuple[int, ...]]:
    """Return for each member those mapped to its node; a job array does not fix the nodes."""
    if plan.cluster is not None and start == "array":
        shared = share_nodes(plan.mapping)
        return [() if shared else (mapping.member,) for mapping in plan.mapping]
    by_node = members_by_node(plan.mapping)
    return [tuple(by_node[mapping.shares[0].node]) for mapping in plan.mapping]


def _slots(plan: Plan, member: int, slots: Mapping[tuple[str, int], Slot]) -> tuple[Slot, ...]:
    """Return a member's slots; on a cluster a job sees only its own, numbered from 0."""
    shares = plan.mapping[member].shares
    if plan.cluster is not None:
        kind = plan.device
        # A node of a member that straddles nodes may get up to all of its slots.
        count = max(len(share.slots) for share in shares)
        # Members that share accelerators see all of the node's.
        visible = shares[0].slots if plan.members_per_accelerator > 1 else range(count)
        names = [kind if kind == "cpu" else f"{kind}:{index}" for index in visible]
        return tuple(Slot(index, name, cores=()) for index, name in enumerate(names))
    return tuple(slots[share.node, index] for share in shares for index in share.slots)
