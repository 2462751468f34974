"""Limits of a quality of service (QOS), which slurmdbd keeps: read by sacctmgr, held to a plan."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Mapping, Sequence

from ai500.config import Config
from ai500.core.errors import AI500Error
from ai500.core.units import human_seconds
from ai500.jobs.schedulers.slurm_commands import QUERY_SECONDS, run_slurm
from ai500.jobs.schedulers.slurm_output import seconds_of
from ai500.records import MemberMapping, Plan, QosLimits

RESOURCES = {"cpu": "CPUs", "gres/gpu": "GPUs", "node": "nodes"}
"""Names of Slurm's trackable resources that a plan counts."""
_FIELDS = ("Name", "MaxTRES", "MaxTRESPU", "GrpTRES", "MaxJobsPU", "MaxWall")
_SACCTMGR = ("sacctmgr", "--noheader", "--parsable2", "show")


def read_limits(config: Config, *, partition_qos: str | None) -> tuple[QosLimits, ...]:
    """Read the limits of the job's QOS and of the partition's; none if sacctmgr does not tell."""
    try:
        own = config.slurm.qos or _default_qos(config.slurm.account)
        names = dict.fromkeys(name for name in (own, partition_qos) if name)
        words = [*_SACCTMGR, "qos", "where", f"name={','.join(names)}"]
        rows = run_slurm([*words, f"format={','.join(_FIELDS)}"], timeout=QUERY_SECONDS)
    except AI500Error:
        return ()  # a site may hide its accounting: `sbatch --test-only` still judges
    return tuple(limits_from(rows))


def _default_qos(account: str | None) -> str:
    words = [*_SACCTMGR, "assoc", "where", f"user={getpass.getuser()}"]
    words += [f"account={account}"] if account else []
    rows = run_slurm([*words, "format=DefaultQOS"], timeout=QUERY_SECONDS).split()
    return rows[0] if rows else "normal"


def limits_from(rows: str) -> Iterator[QosLimits]:
    """Parse sacctmgr's rows."""
    for row in rows.splitlines():
        cells = row.split("|")
        if len(cells) == len(_FIELDS):
            name, per_job, per_user, group, jobs, wall = cells
            yield QosLimits(
                name=name,
                per_job=_counts(per_job),
                per_user=_counts(per_user),
                group=_counts(group),
                jobs_per_user=int(jobs) if jobs.isdecimal() else None,
                max_seconds=seconds_of(wall),
            )


def _counts(text: str) -> dict[str, int]:
    """Parse `cpu=8,gres/gpu=4,mem=10G`; keep the resources that a plan counts."""
    pairs = re.findall(r"([\w/]+)(?::\w+)?=(\d+)(?=,|$)", text)
    return {name: int(count) for name, count in pairs if name in RESOURCES}


def conflicts(config: Config, plan: Plan, *, cpus_per_slot: int) -> Iterator[str]:
    """Yield the limits of a QOS that the plan exceeds."""
    if plan.cluster is None:
        return
    first_wave = [entry for entry in plan.mapping if entry.wave == plan.mapping[0].wave]
    at_once = _needs(plan, first_wave, cpus_per_slot)
    members = first_wave if config.slurm.start == "gang" else first_wave[:1]
    job = _needs(plan, members, cpus_per_slot)
    for qos in plan.cluster.limits.qos:
        named = f"QOS {qos.name}"
        for limit, option, needed, scope in (
            (qos.per_job, "MaxTRESPerJob", job, "a job"),
            (qos.per_user, "MaxTRESPerUser", at_once, "a user"),
            (qos.group, "GrpTRES", at_once, "all its jobs together"),
        ):
            for resource, most in limit.items():
                if needed.get(resource, 0) > most:
                    effect = (
                        "it would never start" if option == "MaxTRESPerJob"
                        else "members would wait for each other"
                    )  # fmt: skip
                    yield (
                        f"{named} allows {scope} {most} {RESOURCES[resource]} ({option}), the plan "
                        f"takes {needed[resource]} at once: {effect}. Set another slurm.qos, or "
                        "a smaller system.scale."
                    )
        if (
            config.slurm.start == "array"
            and qos.jobs_per_user is not None
            and qos.jobs_per_user < len(first_wave)
        ):
            yield (
                f"{named} allows a user {qos.jobs_per_user} running jobs (MaxJobsPerUser), the "
                f"plan runs {len(first_wave)} at once: set slurm.start = 'gang', which is one job, "
                "or another slurm.qos."
            )
        limit_seconds = seconds_of(config.slurm.time_limit or "")
        if limit_seconds and qos.max_seconds and limit_seconds > qos.max_seconds:
            yield (
                f"{named} allows a job {human_seconds(qos.max_seconds)} (MaxWall), and "
                f"slurm.time_limit is {config.slurm.time_limit}: set at most that, or another "
                "slurm.qos."
            )


def _needs(plan: Plan, entries: Sequence[MemberMapping], cpus_per_slot: int) -> Mapping[str, int]:
    """Count the resources that these members take at the same time."""
    shares = {
        (share.node, slot) for entry in entries for share in entry.shares for slot in share.slots
    }
    counts = {"cpu": len(shares) * cpus_per_slot, "node": len({node for node, _ in shares})}
    return counts | ({"gres/gpu": len(shares)} if plan.device != "cpu" else {})
