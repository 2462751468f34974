"""What `scontrol show` prints of nodes, partitions and configuration, as one `Cluster`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ai500.core.errors import ConfigError
from ai500.jobs.schedulers.slurm_text import seconds_of

MIB: Final = 1024 * 1024

_USABLE_BASES: Final = frozenset(
    {"IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED", "RESERVED"}
)
_UNUSABLE_FLAGS: Final = frozenset(
    {
        "DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "EXTERNAL", "FAIL", "FAILING", "FUTURE",
        "INVAL", "INVALID", "INVALID_REG", "MAINT", "MAINTENANCE", "NO_RESPOND", "NOT_RESPONDING",
        "POWER_DOWN", "POWERING_DOWN", "REBOOT", "REBOOT_ISSUED", "UNKNOWN",
    }
)  # fmt: skip
# What 20.11 writes as a sign behind the word; `~` (asleep), `#` (waking) and `-` (planned) are fine
_SIGNS: Final = {
    "*": "NOT_RESPONDING",
    "$": "MAINTENANCE",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "^": "REBOOT_ISSUED",
}


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as `scontrol show node` tells it; CPUs and memory are what jobs may have of it."""

    name: str
    address: str
    cpus: int
    memory_bytes: int | None
    gpus: int
    gpu_type: str | None
    """The one type, or several as `a100+h100`."""
    state: str
    usable: bool
    """Slurm would start a job here, if need be after waking it or when another job has ended."""
    why: str | None
    """Why not, in the administrator's words where there are any."""
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    threads_per_core: int = 1


@dataclass(frozen=True, slots=True)
class Cluster:
    """A partition, and the limits the cluster sets for its jobs."""

    name: str
    partition: str
    nodes: tuple[ClusterNode, ...]
    max_array_size: int
    """The largest index of an array task is one less."""
    max_seconds: int | None
    accounting: bool
    version: str


def read_config(text: str) -> dict[str, str]:
    """`Key = value` lines of `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def has_accounting(config: dict[str, str]) -> bool:
    """Whether sacct has somebody to ask."""
    return "slurmdbd" in config.get("AccountingStorageType", "")


def read_nodes(text: str) -> Iterator[ClusterNode]:
    """Lines of `scontrol --oneliner show node`."""
    for line in text.splitlines():
        fields = _fields(line)
        if "NodeName" not in fields:
            continue
        name, state = fields["NodeName"], fields.get("State", "UNKNOWN")
        gpus, gpu_type = read_gpus(fields.get("Gres", ""))
        memory = int(fields.get("RealMemory", 0)) - int(fields.get("MemSpecLimit", 0))
        usable = is_usable(state)
        yield ClusterNode(
            name=name,
            address=fields.get("NodeAddr", name),
            cpus=int(fields.get("CPUEfctv") or fields.get("CPUTot") or 1),
            threads_per_core=int(fields.get("ThreadsPerCore", 1)),
            memory_bytes=memory * MIB if memory > 1 else None,  # 1 is what nobody configured
            gpus=gpus,
            gpu_type=gpu_type,
            state=state,
            usable=usable,
            why=None if usable else _reason(line) or f"its state is {state}",
            features=_names(fields.get("AvailableFeatures") or fields.get("Features", "")),
            partitions=_names(fields.get("Partitions", "")),
        )


def is_usable(state: str) -> bool:
    """Whether Slurm starts jobs on a node in this state, now or when it has woken or emptied.

    RESERVED counts as usable: the reservation may be the user's own. MAINTENANCE does not.
    """
    words = []
    for word in state.split("+"):
        plain = word.rstrip("*~#!%$@^-")
        words += [plain, *(_SIGNS[sign] for sign in word[len(plain) :] if sign in _SIGNS)]
    return words[0] in _USABLE_BASES and _UNUSABLE_FLAGS.isdisjoint(words)


def read_gpus(gres: str) -> tuple[int, str | None]:
    """`gpu:a100:4(S:0-1),gpu:h100:4,shard:8` → (8, "a100+h100"); other resources don't count."""
    count, types = 0, []
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *parts = entry.strip().split(":")
        if name != "gpu":
            continue
        count += int(parts.pop()) if parts and parts[-1].isdigit() else 1
        types += [part for part in parts if part and part != "no_consume"]
    return count, "+".join(dict.fromkeys(types)) or None


def matches(constraint: str | None, features: Collection[str]) -> bool:
    """Plain names joined by & and |, from left to right as slurmctld takes them.

    Counts, brackets and parentheses concern a job's nodes together, not one node: such an
    expression matches every node here, and Slurm itself has the last word.
    """
    if not constraint or not re.fullmatch(r"[^&|()\[\]*,\s]+(?:[&|][^&|()\[\]*,\s]+)*", constraint):
        return True
    first, *rest = re.split(r"([&|])", constraint)
    result = first in features
    for operator, name in zip(rest[::2], rest[1::2], strict=True):
        has = name in features
        result = (result and has) if operator == "&" else (result or has)
    return result


def cluster_from(
    *, config: str, partitions: str, nodes: str, partition: str | None, constraint: str | None
) -> Cluster:
    """One partition of a cluster, from what `scontrol show` config, partition and node print."""
    settings = read_config(config)
    chosen = _choose_partition(partitions, partition)
    name = chosen["PartitionName"]
    members = [
        node
        for node in read_nodes(nodes)
        if name in node.partitions and matches(constraint, node.features)
    ]
    if (state := chosen.get("State", "UP")) != "UP":
        why = f"partition {name} is {state}"
        members = [replace(node, usable=False, why=node.why or why) for node in members]
    return Cluster(
        name=settings.get("ClusterName", ""),
        partition=name,
        nodes=tuple(members),
        max_array_size=int(settings.get("MaxArraySize", 1001)),
        max_seconds=seconds_of(chosen.get("MaxTime", "")),
        accounting=has_accounting(settings),
        version=settings.get("SLURM_VERSION", ""),
    )


def _choose_partition(text: str, wanted: str | None) -> dict[str, str]:
    known = {
        fields["PartitionName"]: fields
        for line in text.splitlines()
        if "PartitionName" in (fields := _fields(line))
    }
    names = ", ".join(known) or "none"
    if wanted is None:
        for fields in known.values():
            if fields.get("Default") == "YES":
                return fields
        raise ConfigError(
            f"slurm.partition is not set, and this cluster has no default partition. "
            f"Set it to one of: {names}."
        )
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, n=1)
        hint = f'Did you mean "{near[0]}"? ' if near else ""
        raise ConfigError(
            f'slurm.partition = "{wanted}" is not a partition of this cluster. {hint}'
            f"It has: {names}."
        )
    return known[wanted]


def _fields(line: str) -> dict[str, str]:
    """`Key=value` words; the first of a name counts, for free text comes last."""
    fields: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if equals:
            fields.setdefault(key, value)
    return fields


def _reason(line: str) -> str | None:
    """The administrator's words, without the `[who@when]` behind them."""
    found = re.search(r" Reason=(.*?)(?: \[[^\]]*@[^\]]*\]| (?:Comment|Extra)=|$)", line)
    return found[1].strip() or None if found else None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name and name not in ("(null)", "N/A"))
