"""What of a configuration a Slurm cluster can't do, said before anything is submitted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ai500.config import Config
from ai500.core.errors import ConfigError, EnvironmentLacksError
from ai500.core.units import human_seconds
from ai500.jobs.schedulers import slurm_commands as commands

_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|-1|infinite|unlimited", re.IGNORECASE)


def check_settings(config: Config) -> None:
    """What is wrong on every cluster."""
    slurm = config.slurm
    texts = {
        "setup": slurm.setup, "sbatch": slurm.sbatch, "srun": slurm.srun,
        "partition": (slurm.partition or "",), "account": (slurm.account or "",),
        "qos": (slurm.qos or "",), "time_limit": (slurm.time_limit or "",),
        "constraint": (slurm.constraint or "",), "reservation": (slurm.reservation or "",),
    }  # fmt: skip
    for key, values in texts.items():
        if any("\n" in value or "\0" in value for value in values):
            raise ConfigError(f"slurm.{key}: a line break would end the line. Use one item a line.")
    if slurm.time_limit is not None and not _TIME.fullmatch(slurm.time_limit):
        raise ConfigError(
            f"slurm.time_limit = {slurm.time_limit!r} is no time that Slurm knows. Write "
            "'2:00:00' for two hours, '1-12:00:00' for a day and a half, '90' for 90 minutes."
        )
    if config.ensemble.members_per_accelerator > 1 and slurm.start == "array":
        raise ConfigError(
            "ensemble.members_per_accelerator > 1 with slurm.start = 'array': Slurm gives an "
            "accelerator to one job alone. Set slurm.start = 'gang' (decision D11)."
        )


def check_time_limit(time_limit: str | None, *, partition: commands.Cluster) -> None:
    """A job's limit is no longer than the partition's."""
    limit, longest = commands.seconds_of(time_limit or ""), partition.max_seconds
    if limit is not None and longest is not None and limit > longest:
        raise ConfigError(
            f"slurm.time_limit = {time_limit!r} is longer than the "
            f"{human_seconds(longest)} that partition {partition.partition!r} allows. "
            "Members go on from their checkpoint in another job: set a shorter one."
        )


def check_uniform(
    partition: str, nodes: Sequence[commands.ClusterNode], *, device: str | None
) -> None:
    """The nodes have equally many accelerators."""
    counts = sorted({node.gpus for node in nodes})
    if device != "cpu" and len(counts) > 1:
        raise ConfigError(
            f"the nodes of partition {partition!r} have different numbers of accelerators "
            f"({', '.join(map(str, counts))}). Choose some with slurm.constraint, or set "
            "system.accelerators_per_node."
        )


def no_node(
    partition: str, unusable: Mapping[str, str], *, constraint: str | None
) -> EnvironmentLacksError:
    """No node is left, because of these states or of the constraint."""
    which = f" with slurm.constraint = {constraint!r}" if constraint else ""
    shown = [f"{name}: {why}" for name, why in list(unusable.items())[:3]]
    states = ", ".join(shown) + (", …" if len(unusable) > 3 else "")
    return EnvironmentLacksError(
        f"partition {partition!r} has no node{which} that can be used now"
        f"{f' ({states})' if states else ''}. Choose another slurm.partition or "
        "slurm.constraint, or ask the site."
    )
