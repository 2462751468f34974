"""The system under test: slots, nodes, hosts, cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slot:
    """One accelerator, or on a machine without any a fixed set of CPU cores [D8]."""

    index: int
    device: str
    """A torch device name such as `cuda:0` or `cpu`."""
    cores: tuple[int, ...]
    """CPU cores the process is pinned to; empty: its share of those it finds itself on."""


@dataclass(frozen=True, slots=True)
class Node:
    """One host and its slots."""

    name: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class System:
    """The system under test, as far as the machine tells by itself."""

    hostname: str
    operating_system: str
    kernel: str
    python: str
    cpu: str
    cores: int
    memory_bytes: int | None
    accelerator: str | None
    """Device type by torch's name, None without one."""
    accelerators: tuple[str, ...]
    libraries: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the scheduler told of the cluster when the run was planned."""

    name: str
    partition: str
    nodes: tuple[str, ...]
    """Those that can be used, in the scheduler's order."""
    unusable: dict[str, str]
    """Node → why not."""
    cpus_per_node: int
    accelerators_per_node: int
    max_array_size: int
    max_seconds: int | None
    accounting: bool
    version: str
    threads_per_core: int = 1
