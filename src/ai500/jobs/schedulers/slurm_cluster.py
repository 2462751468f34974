"""The cluster as `scontrol show` describes it, and the checks of [slurm] against it."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ai500.config import Config, SlurmConfig
from ai500.core.errors import ConfigError, EnvironmentLacksError, setting_error
from ai500.core.units import human_seconds
from ai500.jobs.schedulers import slurm_qos
from ai500.jobs.schedulers.slurm_commands import QUERY_SECONDS, run_slurm, show
from ai500.jobs.schedulers.slurm_output import has_accounting, read_config, seconds_of
from ai500.records import Cluster, JobLimits

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
# Slurm 20.11 appends a sign to the state; `~` (powered down), `#` (powering up) and `-` (planned)
# do not prevent a job from starting.
_SIGNS: Final = {
    "*": "NOT_RESPONDING",
    "$": "MAINTENANCE",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "^": "REBOOT_ISSUED",
}
_RESERVED: Final = ("job-name", "array", "parsable", "wait", "test-only", "wrap")
_RESERVED_LETTERS: Final = {"J": "job-name", "a": "array", "W": "wait"}
_FLAGS: Final = "hHIOQsuvVX"
"""Letters of sbatch's short options without a value, which may stand before another one."""
_TIME: Final = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|-1|infinite|unlimited", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as `scontrol show node` describes it; CPUs that jobs may use."""

    name: str
    cpus: int
    gpus: int
    state: str
    usable: bool
    """True if Slurm can start a job here, now or after power-up or the end of another job."""
    reason: str | None
    """Reason why the node is not usable, in the administrator's words if there are any."""
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    threads_per_core: int = 1
    memory_mib: int | None = None
    """Memory that jobs may use."""
    gpus_by_type: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition with its nodes and the limits for its jobs."""

    name: str
    cluster: str
    """ClusterName of slurm.conf."""
    nodes: tuple[SlurmNode, ...]
    max_array_size: int
    """Largest number of tasks in an array (MaxArraySize)."""
    max_seconds: int | None
    accounting: bool
    version: str
    qos: str | None = None
    """The partition's own QOS."""
    enforces_qos: bool = False
    """True if slurmctld keeps jobs within the limits that slurmdbd has."""
    limits: JobLimits = field(default_factory=JobLimits)
    """Limits of a job, but for those that follow from the nodes."""
    allocates_memory: bool = False


def survey(config: Config) -> Cluster:
    """Describe the usable nodes of the configured partition."""
    slurm = config.slurm
    check_settings(config)
    partition = read_partition(slurm.partition, constraint=slurm.constraint)
    nodes = [of_type(node, slurm.gpu_type) for node in _selected(partition.nodes, slurm)]
    usable = [node for node in nodes if node.usable and (node.gpus or slurm.gpu_type is None)]
    required = config.system.accelerators_per_node
    if config.system.device != "cpu" and required is not None and any(n.gpus for n in usable):
        usable = [node for node in usable if node.gpus >= required]
    unusable = {n.name: n.reason or n.state for n in nodes if not n.usable}
    if slurm.gpu_type is not None and not usable:
        types = sorted({name for node in partition.nodes for name in node.gpus_by_type})
        raise setting_error(
            "slurm.gpu_type",
            slurm.gpu_type,
            f"no usable node of partition {partition.name!r} has such GPUs.",
            f"Its types are: {', '.join(types) or 'none'}.",
        )
    if not usable:
        raise no_node(partition.name, unusable, constraint=slurm.constraint)
    check_time_limit(slurm.time_limit, partition=partition)
    check_uniform(partition.name, usable, device=config.system.device)
    return Cluster(
        name=partition.cluster,
        partition=partition.name,
        nodes=tuple(node.name for node in usable),
        unusable=unusable,
        cpus_per_node=min(node.cpus for node in usable),
        threads_per_core=max(node.threads_per_core for node in usable),
        accelerators_per_node=usable[0].gpus,
        max_array_size=partition.max_array_size,
        max_seconds=partition.max_seconds,
        accounting=partition.accounting,
        version=partition.version,
        limits=replace(
            partition.limits,
            memory_mib_per_node=(
                min((node.memory_mib or 0 for node in usable), default=0) or None
                if partition.allocates_memory
                else None
            ),
            qos=(
                slurm_qos.read_limits(config, partition_qos=partition.qos)
                if partition.accounting and partition.enforces_qos
                else ()
            ),
            gpu_types=tuple(sorted({name for node in usable for name in node.gpus_by_type})),
        ),
    )


def _selected(nodes: Sequence[SlurmNode], slurm: SlurmConfig) -> list[SlurmNode]:
    """Return the nodes of the reservation, if one is set, without excluded ones."""
    chosen = list(nodes)
    if slurm.exclude is not None:
        excluded = set(host_names(slurm.exclude))
        chosen = [node for node in chosen if node.name not in excluded]
    if slurm.reservation is not None:
        reserved = set(reserved_nodes(show("reservation"), slurm.reservation))
        chosen = [node for node in chosen if node.name in reserved]
    return chosen


def host_names(expression: str) -> list[str]:
    """Expand `n[3-5],n9` as Slurm does."""
    words = ("scontrol", "show", "hostnames", expression)
    return run_slurm(words, timeout=QUERY_SECONDS).split()


def reserved_nodes(text: str, name: str) -> list[str]:
    """Return the nodes of a reservation, from the output of `scontrol show reservation`."""
    reservations = {
        fields["ReservationName"]: fields
        for line in text.splitlines()
        if "ReservationName" in (fields := _fields(line))
    }
    if name not in reservations:
        raise setting_error(
            "slurm.reservation",
            name,
            "not a reservation of this cluster.",
            f"It has: {', '.join(reservations) or 'none'}.",
        )
    return host_names(reservations[name].get("Nodes", ""))


def of_type(node: SlurmNode, gpu_type: str | None) -> SlurmNode:
    """Count only the GPUs of this type, if one is set."""
    if gpu_type is None:
        return node
    count = node.gpus_by_type.get(gpu_type, 0)
    return replace(node, gpus=count, gpus_by_type={gpu_type: count} if count else {})


def read_partition(name: str | None, *, constraint: str | None) -> Partition:
    """Query a partition (None: the default one) and those of its nodes that match the constraint.

    A constraint with counts, brackets or parentheses keeps all nodes: see `matches`.
    """
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).exists():  # Slurm's commands would wait a minute for it
        raise EnvironmentLacksError(
            f"SLURM_CONF is {conf}, and there is no such file.",
            key="SLURM_CONF",
            path=conf,
            remedy="Run ai500 on a login node of the cluster, or set SLURM_CONF to its slurm.conf.",
        )
    return partition_from(
        config=show("config"),
        partitions=show("partition"),
        nodes=show("node"),
        name=name,
        constraint=constraint,
    )


def partition_from(
    *, config: str, partitions: str, nodes: str, name: str | None, constraint: str | None
) -> Partition:
    """Parse a partition from the output of `scontrol show` config, partition and node."""
    settings = read_config(config)
    fields = _choose_partition(partitions, name)
    name = fields["PartitionName"]
    matching = [
        node
        for node in read_nodes(nodes)
        if name in node.partitions and matches(constraint, node.features)
    ]
    if (state := fields.get("State", "UP")) != "UP":
        reason = f"partition {name} is {state}"
        matching = [replace(node, usable=False, reason=node.reason or reason) for node in matching]
    return Partition(
        name=name,
        cluster=settings.get("ClusterName", ""),
        nodes=tuple(matching),
        max_array_size=int(settings.get("MaxArraySize", 1001)),
        max_seconds=seconds_of(fields.get("MaxTime", "")),
        accounting=has_accounting(settings),
        qos=None if fields.get("QoS", "N/A") == "N/A" else fields["QoS"],
        enforces_qos="limits" in settings.get("AccountingStorageEnforce", "").lower(),
        limits=_job_limits(settings, fields),
        allocates_memory="MEMORY" in settings.get("SelectTypeParameters", "").upper(),
        version=settings.get("SLURM_VERSION", ""),
    )


def _job_limits(settings: Mapping[str, str], partition: Mapping[str, str]) -> JobLimits:
    """Read the limits of a job; the partition's defaults replace the cluster's."""
    memory = [
        (_count(source.get("DefMemPerCPU", "")), _count(source.get("DefMemPerNode", "")))
        for source in (partition, settings)
    ]
    cpu, node = next(filter(any, memory), (None, None))
    gpu = re.search(r"DefMemPerGPU=(\d+)", partition.get("JobDefaults", ""))
    return JobLimits(
        default_mib_per_cpu=cpu,
        default_mib_per_node=None if cpu else node,
        default_mib_per_gpu=int(gpu[1]) if gpu else None,
        default_seconds=seconds_of(partition.get("DefaultTime", "")),
        max_nodes=_count(partition.get("MaxNodes", "")),
        exclusive=partition.get("OverSubscribe", "") == "EXCLUSIVE",
    )


def _count(text: str) -> int | None:
    """Read a number; UNLIMITED and 0 mean that there is none."""
    return int(text) or None if text.isdigit() else None


def read_nodes(text: str) -> Iterator[SlurmNode]:
    """Parse lines of `scontrol --oneliner show node`."""
    for line in text.splitlines():
        fields = _fields(line)
        if "NodeName" not in fields:
            continue
        state = fields.get("State", "UNKNOWN")
        usable = is_usable(state)
        yield SlurmNode(
            name=fields["NodeName"],
            cpus=int(fields.get("CPUEfctv") or fields.get("CPUTot") or 1),
            threads_per_core=int(fields.get("ThreadsPerCore", 1)),
            gpus=sum((types := read_gpus(fields.get("Gres", ""))).values()),
            gpus_by_type={name: count for name, count in types.items() if name},
            memory_mib=_memory(fields),
            state=state,
            usable=usable,
            reason=None if usable else _reason(line) or f"its state is {state}",
            features=_names(fields.get("AvailableFeatures") or fields.get("Features", "")),
            partitions=_names(fields.get("Partitions", "")),
        )


def is_usable(state: str) -> bool:
    """Return True if Slurm starts jobs on a node in this state, now or after power-up or drain.

    RESERVED counts as usable: the reservation may be the user's own. MAINTENANCE does not.
    """
    words = []
    for word in state.split("+"):
        plain = word.rstrip("*~#!%$@^-")
        words += [plain, *(_SIGNS[sign] for sign in word[len(plain) :] if sign in _SIGNS)]
    return words[0] in _USABLE_BASES and _UNUSABLE_FLAGS.isdisjoint(words)


def _memory(fields: Mapping[str, str]) -> int | None:
    total = _count(fields.get("RealMemory", ""))
    return None if total is None else total - int(_count(fields.get("MemSpecLimit", "")) or 0)


def read_gpus(gres: str) -> dict[str, int]:
    """Count the GPUs, and only those: `gpu:a100:4(S:0-1),gpu:2,shard:8` → {"a100": 4, "": 2}."""
    counts: dict[str, int] = {}
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *parts = entry.strip().split(":")
        if name == "gpu":
            number = int(parts.pop()) if parts and parts[-1].isdigit() else 1
            kind = parts[0] if parts else ""
            counts[kind] = counts.get(kind, 0) + number
    return counts


def matches(constraint: str | None, features: Collection[str]) -> bool:
    """Evaluate feature names joined by & and |, from left to right as slurmctld does.

    Counts, brackets and parentheses concern a job's nodes together, not one node: such an
    expression matches every node here, and Slurm applies it.
    """
    if not constraint or not re.fullmatch(r"[^&|()\[\]*,\s]+(?:[&|][^&|()\[\]*,\s]+)*", constraint):
        return True
    first, *rest = re.split(r"([&|])", constraint)
    result = first in features
    for operator, name in zip(rest[::2], rest[1::2], strict=True):
        has = name in features
        result = (result and has) if operator == "&" else (result or has)
    return result


def check_settings(config: Config) -> None:
    """Reject settings of [slurm] that are invalid on every cluster."""
    slurm = config.slurm
    texts = {
        "setup": slurm.setup, "sbatch": slurm.sbatch, "srun": slurm.srun,
        "partition": (slurm.partition or "",), "account": (slurm.account or "",),
        "qos": (slurm.qos or "",), "time_limit": (slurm.time_limit or "",),
        "constraint": (slurm.constraint or "",), "reservation": (slurm.reservation or "",),
        "exclude": (slurm.exclude or "",), "gpu_type": (slurm.gpu_type or "",),
    }  # fmt: skip
    for key, values in texts.items():
        for value in values:
            if "\n" in value or "\0" in value:
                problem = "it contains a line break or a null character."
                raise setting_error(f"slurm.{key}", value, problem, "Write one item per line.")
    for value in slurm.sbatch:
        check_sbatch_option(value)
    if slurm.memory is not None and mebibytes(slurm.memory) is None:
        raise setting_error(
            "slurm.memory",
            slurm.memory,
            "not an amount of memory in Slurm's notation.",
            "Write '32G' or '500M'.",
        )
    if slurm.time_limit is not None and not _TIME.fullmatch(slurm.time_limit):
        raise setting_error(
            "slurm.time_limit",
            slurm.time_limit,
            "not a time in Slurm's format.",
            "Write '2:00:00' for two hours, '1-12:00:00' for 36 hours, '90' for 90 minutes.",
        )
    if config.ensemble.members_per_accelerator > 1 and slurm.start == "array":
        raise setting_error(
            "slurm.start",
            slurm.start,
            "with ensemble.members_per_accelerator > 1, but Slurm allocates an accelerator to one "
            "job only (decision D11).",
            "Set slurm.start = 'gang'.",
        )


def mebibytes(text: str) -> int | None:
    """Convert `32G`, `500M`, `500` (MiB) or `1T` as sbatch does; None: not an amount."""
    match = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", text, re.IGNORECASE)
    if match is None or not int(match[1]):
        return None
    factor = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}[match[2].upper()]
    return max(1, int(int(match[1]) * factor))


def check_sbatch_option(text: str) -> None:
    """Reject options that hide a submitted job from its look-up, or its id from the reply."""
    for word in text.split():
        name = word[2:].partition("=")[0] if word.startswith("--") else ""
        short = re.match(rf"-[{_FLAGS}]*([{''.join(_RESERVED_LETTERS)}])", word)
        reserved = [
            option
            for option in _RESERVED
            if name == option or (len(name) > 2 and option.startswith(name) and option != "wait")
        ]
        if short or reserved:
            option = reserved[0] if reserved else _RESERVED_LETTERS[short[1] if short else ""]
            raise setting_error(
                "slurm.sbatch",
                text,
                f"ai500 sets --{option} itself, or needs sbatch without it, to find its jobs "
                "again.",
                "Leave it out.",
            )


def check_time_limit(time_limit: str | None, *, partition: Partition) -> None:
    """Reject a time limit longer than the partition's."""
    limit, longest = seconds_of(time_limit or ""), partition.max_seconds
    if limit is not None and longest is not None and limit > longest:
        raise setting_error(
            "slurm.time_limit",
            time_limit,
            f"longer than the {human_seconds(longest)} that partition {partition.name!r} allows.",
            "Set a shorter one: members resume from their checkpoint in the next job.",
        )


def check_uniform(partition: str, nodes: Sequence[SlurmNode], *, device: str | None) -> None:
    """Reject nodes with different numbers of accelerators."""
    counts = sorted({node.gpus for node in nodes})
    if device != "cpu" and len(counts) > 1:
        raise setting_error(
            "slurm.partition",
            partition,
            f"its nodes have different numbers of accelerators ({', '.join(map(str, counts))}).",
            "Select nodes with slurm.constraint, or set system.accelerators_per_node.",
        )


def no_node(
    partition: str, unusable: Mapping[str, str], *, constraint: str | None
) -> EnvironmentLacksError:
    """Build the error for a partition without a usable node."""
    matching = f" with slurm.constraint = {constraint!r}" if constraint else ""
    shown = [f"{name}: {reason}" for name, reason in list(unusable.items())[:3]]
    states = ", ".join(shown) + (", …" if len(unusable) > 3 else "")
    return EnvironmentLacksError(
        f"partition {partition!r} has no usable node{matching}{f' ({states})' if states else ''}.",
        key="slurm.constraint" if constraint else "slurm.partition",
        value=constraint or partition,
        remedy="Choose another slurm.partition or slurm.constraint, or ask the site.",
    )


def _choose_partition(text: str, name: str | None) -> dict[str, str]:
    partitions = {
        fields["PartitionName"]: fields
        for line in text.splitlines()
        if "PartitionName" in (fields := _fields(line))
    }
    names = ", ".join(partitions) or "none"
    if name is None:
        for fields in partitions.values():
            if fields.get("Default") == "YES":
                return fields
        raise ConfigError(
            "slurm.partition is not set, and this cluster has no default partition.",
            key="slurm.partition",
            remedy=f"Set it to one of: {names}.",
        )
    if name not in partitions:
        near = difflib.get_close_matches(name, partitions, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        problem = "not a partition of this cluster."
        raise setting_error("slurm.partition", name, problem, f"{hint}It has: {names}.")
    return partitions[name]


def _fields(line: str) -> dict[str, str]:
    """Parse `Key=value` words; the first of a name counts, since free text comes last."""
    fields: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if equals:
            fields.setdefault(key, value)
    return fields


def _reason(line: str) -> str | None:
    """Extract the administrator's reason, without the `[user@time]` after it."""
    match = re.search(r" Reason=(.*?)(?: \[[^\]]*@[^\]]*\]| (?:Comment|Extra)=|$)", line)
    return match[1].strip() or None if match else None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name and name not in ("(null)", "N/A"))
