"""What each member's worker is told: all it needs to know, in one record."""

from __future__ import annotations

from collections.abc import Sequence

from ai500.errors import DataError
from ai500.planning import OFFICIAL_CONVENTION
from ai500.records import BootstrapRecord, Placement, Plan, Slot, Task
from ai500.rundir import RunFolder


def member_task(
    run: RunFolder,
    plan: Plan,
    *,
    trial: int,
    member: int,
    seed: int,
    bootstraps: Sequence[BootstrapRecord],
    placements: Sequence[Placement],
    checkpoint_seconds: float,
) -> Task:
    """The task of one member of one trial."""
    shares = plan.mapping[member].shares
    placement = next(p for p in placements if p.node == shares[0].node)
    return Task(
        run=str(run.path.resolve()),
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
        slots=_slots(plan, member),
        bootstrap=str((run.path / bootstraps[member].path).resolve()),
        store=placement.store,
        staged=placement.folder,
        folder=str(run.trial(trial).member(member).path.resolve()),
        checkpoint_seconds=checkpoint_seconds,
        convention=OFFICIAL_CONVENTION,
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
