"""The `Framework` protocol: the plugin point for a framework that trains members.

A framework turns a member's task file into a process on each of the member's nodes. Events, record,
checkpoint and predictions come back as files: docs/worker-contract.md.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ai500.config import Config
from ai500.core import plugins
from ai500.core.errors import AI500Error, ConfigError, EnvironmentLacksError
from ai500.parallel.topology import ranks_on_nodes
from ai500.records import Task, run_folder
from ai500.records.run_folder import MemberFolder

# Frameworks besides PyTorch with a backend that comes with ai500, by the names of their packages.
# Tests hold their updates equal to torch's.
OTHER_FRAMEWORKS = ("jax", "tensorflow", "mindspore")
RENDEZVOUS_SECONDS = 300.0  # a shared file system may show a new file late


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The position of this node among those of a member."""

    index: int
    count: int
    node: str
    job: str
    """Identifier of this start of the job; a requeued job has a new one."""
    ranks: tuple[int, ...] = ()
    """Ranks on each node of a member that straddles nodes [D17]; empty: equally many on each."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> NodePlace:
        """Read Slurm's variables; without them this is the only node."""
        job = environ.get("SLURM_JOB_ID", f"pid{os.getpid()}")
        step, restart = environ.get("SLURM_STEP_ID", "0"), environ.get("SLURM_RESTART_COUNT", "0")
        return cls(
            index=int(environ.get("SLURM_NODEID", "0")),
            count=int(environ.get("SLURM_STEP_NUM_NODES", "1")),
            node=environ.get("SLURMD_NODENAME", socket.gethostname()),
            job=f"{job}.{restart}.{step}",
            ranks=ranks_on_nodes(environ),
        )

    def first_rank(self, task: Task) -> int:
        """Return the number of this node's first rank."""
        return sum(self.ranks[: self.index]) if self.ranks else self.index * self.local_ranks(task)

    def local_ranks(self, task: Task) -> int:
        """Return the number of the member's ranks on this node."""
        if self.ranks:
            if len(self.ranks) != self.count or sum(self.ranks) != task.parallel_degree:
                raise AI500Error(
                    f"member {task.member} has P_degree {task.parallel_degree}; Slurm gave its "
                    f"{self.count} nodes {', '.join(map(str, self.ranks))} tasks.",
                    key="parallel_degree",
                    value=self.ranks,
                    remedy="Start it with `ai500 run`.",
                )
            return self.ranks[self.index]
        ranks, rest = divmod(task.parallel_degree, self.count)
        if rest:
            raise AI500Error(
                f"member {task.member} has P_degree {task.parallel_degree}, which is not a "
                f"multiple of its {self.count} nodes.",
                key="parallel_degree",
                value=task.parallel_degree,
                remedy="Start it with `ai500 run`.",
            )
        return ranks


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The address at which the ranks of a member that spans nodes connect."""

    job: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Choices of the configuration that a framework can train with; None: any."""

    parallel_modes: tuple[str, ...] | None = None
    precisions: tuple[str, ...] | None = None
    devices: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """Command that runs a member's ranks on one node."""

    words: tuple[str, ...]
    starts_ranks: bool = False
    """True: its child processes are the ranks and receive the signals, as with torchrun."""
    temporary: Path | None = None
    """Folder that the command makes, to be removed when it has ended."""


class Framework(Protocol):
    """A framework that trains members: what it can do, and the command of its worker."""

    name: str
    """Name in configurations: `framework.kind = "…"`."""
    capabilities: Capabilities
    reads_staged_data: bool
    """True where its worker reads a node's copy of the samples; False: the shared store only."""

    def check(self, config: Config) -> None:
        """Raise ConfigError or EnvironmentLacksError where it can't run a configuration."""

    def command(self, task: Task, *, folder: MemberFolder, place: NodePlace) -> WorkerCommand:
        """Build the command that trains the member's ranks on this node."""


def load_framework(name: str) -> Framework:
    """Load the framework of that name, built in or from another package."""
    loaded: Framework = plugins.load("framework", name, key="framework.kind")
    return loaded


def check_framework(config: Config, *, device: str, precision: str) -> Framework:
    """Return the configured framework; refuse what it can't do, with the reason."""
    framework = load_framework(config.framework.kind)
    able = framework.capabilities
    for key, value, choices in (
        ("parallel.mode", config.parallel.mode, able.parallel_modes),
        ("train.precision", precision, able.precisions),
        ("system.device", device, able.devices),
    ):
        if choices is not None and value not in choices:
            raise ConfigError(
                f"{key} = {value!r}: framework.kind = {framework.name!r} can do "
                f"{', '.join(choices)}.",
                key=key,
                value=value,
                remedy=f"Set another {key}, or another framework.kind.",
            )
    framework.check(config)
    return framework


def free_port() -> int:
    """Return a port that no process of this node listens on."""
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def rendezvous(folder: MemberFolder, place: NodePlace) -> Rendezvous:
    """Choose a free port on the first node and publish it to the others in the run folder."""
    if place.index == 0:
        host = os.environ.get("AI500_HEAD", socket.gethostname())
        run_folder.write(folder.rendezvous, Rendezvous(place.job, host, free_port()))
    deadline = time.monotonic() + RENDEZVOUS_SECONDS
    while time.monotonic() < deadline:
        try:
            published = run_folder.read(Rendezvous, folder.rendezvous)
        except AI500Error:
            published = None
        if published is not None and published.job == place.job:
            return published
        time.sleep(0.2)
    raise EnvironmentLacksError(
        f"{folder.rendezvous} did not appear on {place.node} within {RENDEZVOUS_SECONDS:.0f} s.",
        path=folder.rendezvous,
        remedy="Put the run folder on a file system that all nodes share.",
    )


def refuse_unused(config: Config, unused: Mapping[str, str]) -> None:
    """Refuse keys without effect: `unused` maps a dotted key to the reason."""
    defaults = Config()
    for key, reason in unused.items():
        section, _, name = key.partition(".")
        value = getattr(getattr(config, section), name)
        if value != getattr(getattr(defaults, section), name):
            raise ConfigError(
                f"{key} = {value!r} has no effect: {reason}.",
                key=key,
                value=value,
                remedy="Leave it out.",
            )
