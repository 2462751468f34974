"""Members that share an accelerator [D11]: in one process where that is possible, or in several.

One process takes the members' steps in turn, each recorded once and replayed on a stream of its
own, so that the accelerator computes several small steps at once. That needs steps that can be
recorded; all others run in processes that share the device, and the plan says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ai500.core.errors import ConfigError
from ai500.core.events import Event
from ai500.records import Mapping, Sharing
from ai500.workloads.protocol import Workload

RECORDABLE_PRECISIONS = ("fp32", "tf32", "mixed-bf16")
"""Those whose whole step is the same every time: a loss scale changes, and whether a step has
overflowed is asked for by the host."""


def decide(
    wish: str,
    workload: Workload,
    *,
    members_per_accelerator: int,
    parallel_degree: int,
    device: str,
    precision: str,
) -> Sharing:
    """How members that share an accelerator train, and why so."""
    if members_per_accelerator == 1:
        return Sharing("alone")
    if wish == "processes":
        return Sharing("processes", "ensemble.sharing = 'processes'")
    reason = _why_not_recorded(workload, parallel_degree=parallel_degree, precision=precision)
    if wish == "process" and reason:
        raise ConfigError(
            f"ensemble.sharing = 'process': {reason}. Set ensemble.sharing = 'auto': members then "
            "share the device as processes (decision D11)."
        )
    if wish == "auto" and not reason and device != "cuda":
        reason = f"one for all of them needs CUDA graphs, and the device is {device}"
    return Sharing("processes", reason) if reason else Sharing("process")


def _why_not_recorded(workload: Workload, *, parallel_degree: int, precision: str) -> str:
    if parallel_degree > 1:
        return (
            f"a member with P_degree = {parallel_degree} is {parallel_degree} processes by itself"
        )
    if not getattr(workload, "capturable", False):
        return (
            f"the step of {workload.name} has no fixed shapes or draws random numbers, so members "
            "can't be recorded side by side"
        )
    if precision not in RECORDABLE_PRECISIONS:
        return (
            f"a whole step in {precision} can't be recorded, only in "
            f"{', '.join(RECORDABLE_PRECISIONS)}"
        )
    return ""


def groups(mapping: Iterable[Mapping], sharing: Sharing) -> list[tuple[int, ...]]:
    """The members of each process, in the order of their first ones."""
    found: dict[object, list[int]] = {}
    for one in mapping:
        key = (one.wave, one.shares) if sharing.mode == "process" else one.member
        found.setdefault(key, []).append(one.member)
    return [tuple(members) for members in found.values()]


def describe_sharing(sharing: Sharing, members: int) -> str:
    """For the terminal and the report."""
    if sharing.mode == "alone":
        return "each member has its accelerators for itself"
    if sharing.mode == "process":
        return f"one process trains the {members} members of an accelerator, step by step in turn"
    return f"{members} processes share each accelerator: {sharing.reason}"


def describe_strategies(told: Sequence[Event], *, trial: int) -> list[str]:
    """What the trial on the device chose, once for each choice: the fastest first, with the
    milliseconds that a step of every member took."""
    found: dict[str, str] = {}
    for event in told:
        if event["event"] != "shared_process" or event.get("trial") != trial:
            continue
        tried = sorted(event["milliseconds"].items(), key=lambda one: one[1])
        times = ", ".join(f"{name} {milliseconds:g} ms" for name, milliseconds in tried)
        left_out = [f"{name} not tried: {why}" for name, why in event["not_tried"].items()]
        text = "; ".join([times, *left_out]) if times else "nothing to choose from"
        found.setdefault(event["strategy"], f"Step strategy: {event['strategy']} ({text}).")
    return list(found.values())
