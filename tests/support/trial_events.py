"""Events of a small trial with known times and counts."""

from __future__ import annotations

from typing import Any

from ai500.config import load
from ai500.core.schema import encode
from ai500.pipeline.planning import make_plan
from ai500.records import EnsembleResult, Plan, System

MACHINE = System(
    hostname="here", operating_system="", kernel="", python="", cpu="", cores=2, memory_bytes=None,
    accelerator=None, accelerators=(), libraries={},
)  # fmt: skip
COUNT = {
    "convention": "aiperf",
    "forward_per_sample": 10,
    "backward_per_sample": 20,
    "update_per_step": 5,
    "parameters": 3,
}


def two_member_plan() -> Plan:
    """Return a plan of two members that train two epochs."""
    overrides = {
        "ensemble.size": 2,
        "train.epochs": 2,
        "parallel.degree": 1,
        "system.accelerators_per_node": 2,
        "system.cores_per_slot": 1,
    }
    return make_plan(load(overrides=overrides), MACHINE)


def event(kind: str, at: float, member: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return an event as a worker logs it."""
    record = {
        "event": kind, "monotonic": at, "wall": at + 1000, "host": "a", "boot": "b",
        "trial": 1, "attempt": 1,
    }  # fmt: skip
    if member is not None:
        record["member"] = member
    return record | fields


def member_events(member: int, start: float, *, qualities: tuple[float, float]) -> list[Any]:
    """Return the events of two epochs: ten seconds, 100 images in 4 steps, an evaluation each."""
    events = [event("first_batch", start, member)]
    for epoch, quality in enumerate(qualities, 1):
        at = start + 10 * epoch
        events.append(event("epoch", at - 1, member, epoch=epoch, samples=100, steps=4, loss=1.0))
        events.append(event("quality", at, member, epoch=epoch, quality=quality, samples=50))
    events.append(event("end", start + 20, member, epoch=2))
    events.append(event("operations", start + 25, member, **COUNT))
    return events


def aggregate(quality: float = 0.9, members: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    """Return the event of a trial's aggregated result."""
    result = EnsembleResult(
        complete=members == (0, 1),
        members=members,
        missing=tuple({0, 1} - set(members)),
        member_qualities=tuple(0.8 for _ in members),
        members_mean_quality=0.8,
        ensemble_quality=quality,
        out_of_bag_quality=0.7,
        out_of_bag_samples=10,
    )
    return event("aggregate", 99, result=encode(result))


def trial_events(plan: Plan) -> list[Any]:
    """Return the events of a complete trial of two members."""
    target = plan.definition.target_quality
    return [
        event("trial_start", 0, seed=5),
        *member_events(0, 100, qualities=(0.1, target)),
        *member_events(1, 103, qualities=(0.1, target)),
        aggregate(),
    ]
