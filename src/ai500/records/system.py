"""The system under test: slots, nodes, hosts, cluster."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Slot:
    """One accelerator, or on a CPU-only machine a fixed set of cores [D8]."""

    index: int
    device: str
    """Torch device name, such as `cuda:0` or `cpu`."""
    cores: tuple[int, ...]
    """CPU cores that the process is pinned to; empty: an equal share of its allowed cores."""


@dataclass(frozen=True, slots=True)
class Node:
    """One host and its slots."""

    name: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class System:
    """The system under test, as detected by the machine itself."""

    hostname: str
    operating_system: str
    kernel: str
    python: str
    cpu: str
    cores: int
    memory_bytes: int | None
    accelerator: str | None
    """Torch device type; None without an accelerator."""
    accelerators: tuple[str, ...]
    libraries: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class QosLimits:
    """Limits of one quality of service; resources by Slurm's names: cpu, gres/gpu, node."""

    name: str
    per_job: dict[str, int] = field(default_factory=dict)
    per_user: dict[str, int] = field(default_factory=dict)
    """Most that one user's jobs take at the same time."""
    group: dict[str, int] = field(default_factory=dict)
    """Most that all jobs of the QOS take at the same time."""
    jobs_per_user: int | None = None
    max_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits and defaults of a partition that decide whether a plan can run as it says."""

    memory_mib_per_node: int | None = None
    """Least memory of a node, in MiB; None: Slurm does not allocate memory."""
    default_mib_per_cpu: int | None = None
    default_mib_per_node: int | None = None
    default_mib_per_gpu: int | None = None
    default_seconds: int | None = None
    """Time limit of a job that states none; None: the partition's largest."""
    max_nodes: int | None = None
    """Most nodes of a job."""
    exclusive: bool = False
    """True if the partition gives whole nodes to jobs."""
    gpu_types: tuple[str, ...] = ()
    qos: tuple[QosLimits, ...] = ()
    """Limits of the job's QOS and the partition's, where Slurm enforces them."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster, as reported by the scheduler when the run was planned."""

    name: str
    partition: str
    nodes: tuple[str, ...]
    """Usable nodes, in the scheduler's order."""
    unusable: dict[str, str]
    """Unusable node → reason."""
    cpus_per_node: int
    accelerators_per_node: int
    max_array_size: int
    max_seconds: int | None
    accounting: bool
    version: str
    threads_per_core: int = 1
    limits: JobLimits = JobLimits()
