"""Whether a run's speed says anything about a machine, or only how its cores were shared."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ai500.core.events import Event
from ai500.meters import Meter, Reading, open_meters
from ai500.records import Plan, System
from ai500.study.records import Conditions

MOST_BUSY_WITH_OTHERS = 0.1
"""Share of cores or of an accelerator's time that others may use before a comparison of speeds
is one of neighbours."""
LOOK_SECONDS = 1.0


def speed_doubts(
    plan: Plan, machine: System, *, events: Sequence[Event], conditions: Conditions | None
) -> tuple[str, ...]:
    """Reasons in words, none where speed is what it seems."""
    found = []
    if plan.device == "cpu" and plan.scheduler == "local":
        cores = _cores_at_once(plan)
        if cores >= machine.cores:
            found.append(
                f"the members use all {machine.cores} cores of the machine: the controller, the "
                "meters and the operating system have none of their own"
            )
    if plan.members_per_accelerator > 1:
        shared = f"{plan.members_per_accelerator} members share each accelerator"
        found.append(f"{shared} (decision D11)")
    if plan.waves > 1:
        found.append(
            f"the members run in {plan.waves} waves, because the system holds fewer at once "
            "(decision D13)"
        )
    hosts, nodes = _boots(events), _nodes_at_once(plan)
    if hosts and nodes > hosts:
        found.append(f"{nodes} nodes are parts of {hosts} host(s), whose cores they share")
    if any(event["event"] == "resumed" for event in events):
        found.append("it was interrupted and went on: the pause is in its time")
    busy = conditions.busy_share if conditions else None
    if busy is not None and busy > MOST_BUSY_WITH_OTHERS:
        found.append(
            f"other processes kept more than {MOST_BUSY_WITH_OTHERS:.0%} of the machine's cores "
            "busy just before it began"
        )
    taken = conditions.accelerator_busy_share if conditions else None
    if plan.device != "cpu" and taken is not None and taken > MOST_BUSY_WITH_OTHERS:
        found.append(
            f"other processes kept an accelerator busy for more than {MOST_BUSY_WITH_OTHERS:.0%} "
            "of the time just before it began"
        )
    return tuple(found)


def look(root: Path = Path("/")) -> Conditions:
    """How busy others keep this machine: for a second nothing of the study runs."""
    meters, _ = open_meters(root)
    try:
        before = _told(meters.get("host"))
        time.sleep(LOOK_SECONDS)
        after = _told(meters.get("host"))
        accelerators = [one for one in meters.values() if "accelerators" in one.covers]
        return Conditions(_cores_busy(before, after), _busiest(accelerators))
    finally:
        for meter in meters.values():
            meter.close()


def _told(meter: Meter | None) -> dict[str, float]:
    return {one.quantity: one.value for one in _read(meter)} if meter else {}


def _read(meter: Meter) -> Sequence[Reading]:
    try:
        return meter.read()
    except Exception:  # as for the recorder: a vendor's library may fail in any way
        return ()


def _cores_busy(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    if "cpu_total_seconds" not in before or "cpu_total_seconds" not in after:
        return None
    total = after["cpu_total_seconds"] - before["cpu_total_seconds"]
    busy = after["cpu_busy_seconds"] - before["cpu_busy_seconds"]
    return busy / total if total > 0 else None


def _busiest(meters: Sequence[Meter]) -> float | None:
    """Of the run's accelerators: one that is slower holds up all."""
    told = (reading for meter in meters for reading in _read(meter))
    return max((one.value for one in told if one.quantity == "utilization"), default=None)


def _cores_at_once(plan: Plan) -> int:
    size = {(node.name, slot.index): len(slot.cores) for node in plan.nodes for slot in node.slots}
    used = {
        (share.node, index)
        for one in plan.mapping
        if one.wave == 0
        for share in one.shares
        for index in share.slots
    }
    return sum(size[slot] for slot in used)


def _nodes_at_once(plan: Plan) -> int:
    return len({s.node for one in plan.mapping if one.wave == 0 for s in one.shares})


def _boots(events: Sequence[Event]) -> int:
    """Hosts that trained, told apart by their kernels: virtual nodes of one host share one."""
    return len({e.get("boot") for e in events if e["event"] == "first_batch" and e.get("boot")})
