"""Whether a plan can run on Slurm as it says: what cannot is named, with its fix."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ai500.config import Config
from ai500.core.units import human_seconds
from ai500.jobs.schedulers import slurm_qos
from ai500.jobs.schedulers.slurm import cpus_per_slot, memory_mib_per_slot
from ai500.jobs.schedulers.slurm_output import seconds_of
from ai500.records import Cluster, Plan

NODE_OPTIONS = ("--nodelist", "-w", "--exclude", "-x", "--nodefile", "-F")


def conflicts(config: Config, plan: Plan) -> Iterator[str]:
    """Yield what prevents the plan from running as it says."""
    if plan.cluster is None:
        return
    yield from _whole_nodes(config, plan, plan.cluster)
    yield from _cpus(config, plan, plan.cluster)
    yield from _memory(config, plan, plan.cluster)
    yield from _nodes(config, plan, plan.cluster)
    yield from _time(config, plan.cluster)
    yield from slurm_qos.conflicts(config, plan, cpus_per_slot=cpus_per_slot(plan, config))
    if config.slurm.gpu_type is None and len(plan.cluster.limits.gpu_types) > 1:
        types = ", ".join(plan.cluster.limits.gpu_types)
        yield (
            f"the nodes have GPUs of several types ({types}), and members would run on any of "
            "them: set slurm.gpu_type. A result of mixed types is no official one."
        )
    for option in config.slurm.sbatch:
        if option.partition("=")[0].split()[:1] and (
            option.split()[0].partition("=")[0] in NODE_OPTIONS
        ):
            yield (
                f"slurm.sbatch has {option!r}, and the plan counts the nodes that it leaves out: "
                "set slurm.exclude, slurm.constraint or slurm.reservation instead."
            )


def _members_per_node(plan: Plan) -> int:
    """Return the number of members of one wave that the plan puts on one node, at most."""
    counts: dict[tuple[str, int], int] = {}
    for place in plan.mapping:
        for share in place.shares:
            key = (share.node, place.wave)
            counts[key] = counts.get(key, 0) + 1
    return max(counts.values())


def _slots_per_job(config: Config, plan: Plan) -> int:
    """Return the slots that a job takes on one node, at most."""
    share = max(len(share.slots) for place in plan.mapping for share in place.shares)
    return (
        share
        if config.slurm.start == "array"
        else min(len(plan.nodes[0].slots), share * _members_per_node(plan))
    )


def _whole_nodes(config: Config, plan: Plan, cluster: Cluster) -> Iterator[str]:
    members = _members_per_node(plan)
    whole = config.slurm.exclusive or cluster.limits.exclusive
    if config.slurm.start == "array" and whole and members > 1:
        reason = (
            "slurm.exclusive = true"
            if config.slurm.exclusive
            else f"partition {cluster.partition} (OverSubscribe=EXCLUSIVE)"
        )
        yield (
            f"{reason} gives each member whole nodes, and the plan puts {members} members on one: "
            "set slurm.start = 'gang'"
            + (", or slurm.exclusive = false." if config.slurm.exclusive else ".")
        )


def _cpus(config: Config, plan: Plan, cluster: Cluster) -> Iterator[str]:
    slots, cpus = len(plan.nodes[0].slots), cpus_per_slot(plan, config)
    if slots * cpus > cluster.cpus_per_node and slots > 1:
        yield (
            f"{slots} slots of {cpus} CPUs are more than the {cluster.cpus_per_node} CPUs of a "
            f"node: set slurm.cpus_per_accelerator to at most {cluster.cpus_per_node // slots}."
        )


def _memory(config: Config, plan: Plan, cluster: Cluster) -> Iterator[str]:
    limits = cluster.limits
    if limits.memory_mib_per_node is None:
        return
    slots, cpus = _slots_per_job(config, plan), cpus_per_slot(plan, config)
    per_slot = memory_mib_per_slot(plan, config.slurm)
    if per_slot is not None:
        taken, source = per_slot * slots, f"slurm.memory = {config.slurm.memory or per_slot}"
    elif limits.default_mib_per_gpu is not None and plan.device != "cpu":
        taken, source = limits.default_mib_per_gpu * slots, "the site's DefMemPerGPU"
    elif limits.default_mib_per_cpu is not None:
        taken, source = limits.default_mib_per_cpu * cpus * slots, "the site's DefMemPerCPU"
    else:
        taken, source = limits.default_mib_per_node or 0, "the site's DefMemPerNode"
    jobs = _members_per_node(plan) if config.slurm.start == "array" else 1
    room = limits.memory_mib_per_node // max(1, taken)
    if room < jobs:
        share = limits.memory_mib_per_node // len(plan.nodes[0].slots)
        yield (
            f"{source} takes {taken} MiB of a node's {limits.memory_mib_per_node} MiB for each "
            f"job: {room} of {jobs} jobs fit on a node at a time. Set slurm.memory to at most "
            f"'{share}M'."
        )


def _nodes(config: Config, plan: Plan, cluster: Cluster) -> Iterator[str]:
    most = cluster.limits.max_nodes
    per_member = max(len(place.shares) for place in plan.mapping)
    gang = len({share.node for place in plan.mapping for share in place.shares})
    if most is not None and per_member > most:
        yield (
            f"a member takes {per_member} nodes, and partition {cluster.partition} allows "
            f"{most} (MaxNodes): choose another slurm.partition, or a smaller parallel.degree."
        )
    elif most is not None and config.slurm.start == "gang" and gang > most:
        yield (
            f"the gang takes {gang} nodes, and partition {cluster.partition} allows {most} "
            "(MaxNodes): set slurm.start = 'array', or choose another slurm.partition."
        )


def _time(config: Config, cluster: Cluster) -> Iterator[str]:
    stated = seconds_of(config.slurm.time_limit or "")
    limit = stated if stated is not None else cluster.limits.default_seconds or cluster.max_seconds
    signal = config.slurm.checkpoint_signal_seconds
    if limit is None or limit > signal:
        return
    source = "slurm.time_limit" if stated is not None else "the partition's default time limit"
    minutes = math.ceil((signal + 60) / 60)
    yield (
        f"{source} is {human_seconds(limit)}, and members stop {signal} s before it "
        "(slurm.checkpoint_signal_seconds): they would never train. Set slurm.time_limit to at "
        f"least '{minutes}', or a shorter slurm.checkpoint_signal_seconds."
    )
