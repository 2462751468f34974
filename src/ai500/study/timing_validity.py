"""Validity of a run's speed: does it measure the machine, or how its cores were shared?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ai500.core.events import Event
from ai500.meters import Meter, Reading, open_meters
from ai500.records import NodeSlots, Plan, System
from ai500.study.records import Conditions

# Fraction of the cores or of an accelerator's time that other processes may use before speeds are
# no longer comparable.
MAX_OTHER_LOAD = 0.1
OBSERVATION_SECONDS = 1.0


def timing_issues(
    plan: Plan,
    machine: System,
    *,
    events: Sequence[Event],
    conditions: Conditions | None,
    measures_sharing: bool = False,
) -> tuple[str, ...]:
    """Return the reasons why the speed is not comparable; empty: it is.

    `measures_sharing`: the study compares members that share an accelerator with those that don't.
    """
    issues = []
    if plan.device == "cpu" and plan.scheduler == "local":
        cores = _cores_at_once(plan)
        if cores >= machine.cores:
            issues.append(
                f"the members use all {machine.cores} cores of the machine, which the controller, "
                "the meters and the operating system share"
            )
    if plan.members_per_accelerator > 1 and not measures_sharing:
        shared = f"{plan.members_per_accelerator} members share each accelerator"
        issues.append(f"{shared} (decision D11)")
    if plan.waves > 1:
        issues.append(
            f"the members run in {plan.waves} waves, because the system holds fewer at once "
            "(decision D13)"
        )
    hosts, nodes = _host_count(events), len({share.node for share in _shares_at_once(plan)})
    if hosts and nodes > hosts:
        issues.append(f"{nodes} nodes are parts of {hosts} host(s), whose cores they share")
    if any(event["event"] == "resumed" for event in events):
        issues.append("it was interrupted and resumed: its time includes the pause")
    core_load = conditions.busy_share if conditions else None
    if core_load is not None and core_load > MAX_OTHER_LOAD:
        issues.append(
            f"other processes kept more than {MAX_OTHER_LOAD:.0%} of the machine's cores "
            "busy just before it started"
        )
    accelerator_load = conditions.accelerator_busy_share if conditions else None
    if plan.device != "cpu" and accelerator_load is not None and accelerator_load > MAX_OTHER_LOAD:
        issues.append(
            f"other processes kept an accelerator busy for more than {MAX_OTHER_LOAD:.0%} "
            "of the time just before it started"
        )
    return tuple(issues)


def observe_conditions(root: Path = Path("/")) -> Conditions:
    """Measure the load by other processes for a second in which the study sleeps."""
    meters, _ = open_meters(root)
    try:
        before = _quantities(meters.get("host"))
        time.sleep(OBSERVATION_SECONDS)
        after = _quantities(meters.get("host"))
        accelerators = [meter for meter in meters.values() if "accelerators" in meter.covers]
        return Conditions(_core_load(before, after), _accelerator_load(accelerators))
    finally:
        for meter in meters.values():
            meter.close()


def _quantities(meter: Meter | None) -> dict[str, float]:
    return {reading.quantity: reading.value for reading in _readings(meter)} if meter else {}


def _readings(meter: Meter) -> Sequence[Reading]:
    try:
        return meter.read()
    except Exception:  # a vendor's library may fail in any way
        return ()


def _core_load(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    if "cpu_total_seconds" not in before or "cpu_total_seconds" not in after:
        return None
    total = after["cpu_total_seconds"] - before["cpu_total_seconds"]
    busy = after["cpu_busy_seconds"] - before["cpu_busy_seconds"]
    return min(1.0, busy / total) if total > 0 else None  # differences of floats may exceed 1


def _accelerator_load(meters: Sequence[Meter]) -> float | None:
    """Return the utilization of the busiest accelerator: the slowest one delays all."""
    readings = (reading for meter in meters for reading in _readings(meter))
    return max(
        (reading.value for reading in readings if reading.quantity == "utilization"), default=None
    )


def _shares_at_once(plan: Plan) -> list[NodeSlots]:
    return [share for member in plan.mapping if member.wave == 0 for share in member.shares]


def _cores_at_once(plan: Plan) -> int:
    size = {(node.name, slot.index): len(slot.cores) for node in plan.nodes for slot in node.slots}
    used = {(share.node, index) for share in _shares_at_once(plan) for index in share.slots}
    return sum(size[slot] for slot in used)


def _host_count(events: Sequence[Event]) -> int:
    """Count the hosts that trained by their boot identifiers: virtual nodes of a host share one."""
    boots = {event.get("boot") for event in events if event["event"] == "first_batch"}
    return len(boots - {None, ""})
