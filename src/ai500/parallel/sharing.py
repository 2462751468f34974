"""Members that share an accelerator [D11]: in one process where that is possible, or in several.

One process interleaves the members' steps, each captured once in a CUDA graph and replayed on a
stream of its own, so that the accelerator computes several small steps at once. That needs steps
that can be captured; all others run in processes that share the device, and the plan gives the
reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ai500.core.errors import ConfigError
from ai500.core.events import Event
from ai500.records import Field, MemberMapping, OwnCode, Sharing
from ai500.workloads.protocol import Workload

# Precisions whose whole step is the same every time. With a loss scale the host has to read after
# each step whether it overflowed.
CAPTURABLE_PRECISIONS = ("fp32", "tf32", "mixed-bf16")


def decide(
    requested: str,
    workload: Workload,
    *,
    members_per_accelerator: int,
    parallel_degree: int,
    device: str,
    precision: str,
    fields: Sequence[Field] = (),
    framework: str = "pytorch",
    own_code: OwnCode | None = None,
) -> Sharing:
    """Decide how members that share an accelerator train; `requested` is ensemble.sharing, `fields`
    are those of the samples."""
    if members_per_accelerator == 1:
        return Sharing("alone")
    if requested == "processes":
        return Sharing("processes", "ensemble.sharing = 'processes'")
    reason = _not_capturable(workload, parallel_degree=parallel_degree, precision=precision)
    if framework != "pytorch":
        reason = f"members of framework {framework} are processes of their own"
    elif own_code is not None and own_code.parts:
        reason = f"whether {own_code.parts[0]} of your own can be captured is not known"
    ragged = [field.name for field in fields if field.ragged]
    if not reason and ragged:
        reason = f"the batches of the ragged field {ragged[0]!r} have no fixed shapes"
    if requested == "process" and reason:
        raise ConfigError(
            f"ensemble.sharing = 'process': {reason}.",
            key="ensemble.sharing",
            value=requested,
            remedy="Set ensemble.sharing = 'auto': members then share the device as processes "
            "(decision D11).",
        )
    if requested == "auto" and not reason and device != "cuda":
        reason = f"one process for all needs CUDA graphs, and the device is {device}"
    return Sharing("processes", reason) if reason else Sharing("process")


def _not_capturable(workload: Workload, *, parallel_degree: int, precision: str) -> str:
    """Return why a member's step can't be captured; empty if it can."""
    if parallel_degree > 1:
        return (
            f"a member with P_degree = {parallel_degree} is {parallel_degree} processes by itself"
        )
    if not getattr(workload, "capturable", False):
        return (
            f"the step of {workload.name} has no fixed shapes or draws random numbers, so it can't "
            "be captured in a CUDA graph"
        )
    if precision not in CAPTURABLE_PRECISIONS:
        return (
            f"a whole step in {precision} can't be captured in a CUDA graph, only in "
            f"{', '.join(CAPTURABLE_PRECISIONS)}"
        )
    return ""


def groups(mapping: Iterable[MemberMapping], sharing: Sharing) -> list[tuple[int, ...]]:
    """Return the members of each process, in the order of their first members."""
    processes: dict[object, list[int]] = {}
    for mapped in mapping:
        shared = (mapped.wave, mapped.shares) if sharing.mode == "process" else mapped.member
        processes.setdefault(shared, []).append(mapped.member)
    return [tuple(members) for members in processes.values()]


def describe_sharing(sharing: Sharing, members: int) -> str:
    """Describe the decision for the terminal and the report."""
    if sharing.mode == "alone":
        return "each member has its accelerators for itself"
    if sharing.mode == "process":
        return f"one process trains the {members} members of an accelerator, interleaving steps"
    return f"{members} processes share each accelerator: {sharing.reason}"


def describe_strategies(events: Sequence[Event], *, trial: int) -> list[str]:
    """Describe each step strategy that a process of the trial chose, with the milliseconds of a
    step of every member in each strategy that it timed, the fastest first."""
    sentences: dict[str, str] = {}
    for event in events:
        if event["event"] != "shared_process" or event.get("trial") != trial:
            continue
        fastest_first = sorted(event["milliseconds"].items(), key=lambda timing: timing[1])
        timings = [f"{name} {milliseconds:g} ms" for name, milliseconds in fastest_first]
        text = ", ".join(timings) or "no alternative on this device"
        sentences.setdefault(event["strategy"], f"Step strategy: {event['strategy']} ({text}).")
    return list(sentences.values())
