"""The nouns of a system description. None: not found; it is never guessed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Processors:
    """The CPUs of a node."""

    model: str | None = None
    vendor: str | None = None
    sockets: int | None = None
    cores: int | None = None
    """Physical cores of all sockets."""
    threads: int | None = None
    """Logical processors that are online."""
    highest_hertz: float | None = None
    caches: dict[str, int] = field(default_factory=dict)
    """Level, such as `L2`, → bytes of all instances together."""
    numa: tuple[NumaNode, ...] = ()
    instructions: tuple[str, ...] = ()
    """Vector and matrix extensions that arithmetic can use."""


@dataclass(frozen=True, slots=True)
class NumaNode:
    """Memory and the logical processors next to it."""

    number: int
    processors: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator as its driver tells."""

    index: int
    name: str
    uuid: str | None = None
    """The device itself, however a process numbers those that it may see."""
    memory_bytes: int | None = None
    driver: str | None = None
    firmware: str | None = None
    highest_clock_hertz: float | None = None
    highest_memory_clock_hertz: float | None = None
    power_limit_watts: float | None = None
    bus: str | None = None
    """Such as `PCIe 5.0 ×16`."""
    links: dict[str, int] = field(default_factory=dict)
    """Kind of direct link, such as `NVLink`, → how many are up."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A block device."""

    name: str
    model: str | None
    bytes: int | None
    rotational: bool | None


@dataclass(frozen=True, slots=True)
class Interface:
    """A way into the network."""

    name: str
    kind: str
    """`ethernet`, `infiniband`, …"""
    state: str | None
    bits_per_second: float | None
    driver: str | None


@dataclass(frozen=True, slots=True)
class Software:
    """What stands between the hardware and the benchmark."""

    operating_system: str | None = None
    kernel: str | None = None
    c_library: str | None = None
    python: str | None = None
    libraries: dict[str, str | None] = field(default_factory=dict)
    container: str | None = None
    """What shows that this is a container; None: nothing does."""
    scheduler: dict[str, str] = field(default_factory=dict)
    """The job as Slurm tells it by the environment."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that change results: those of NCCL, UCX, OMP, CUDA, XLA, …"""


@dataclass(frozen=True, slots=True)
class State:
    """Clocks and throttling at one moment."""

    wall: float
    load: float | None = None
    """Runnable processes, mean of the last minute."""
    governors: tuple[str, ...] = ()
    processor_hertz: tuple[float, float] | None = None
    """Lowest and highest of the logical processors."""
    processor_throttled: int | None = None
    """Times that a core was slowed for its heat since the node started."""
    accelerators: tuple[AcceleratorState, ...] = ()


@dataclass(frozen=True, slots=True)
class AcceleratorState:
    """One accelerator at one moment."""

    index: int
    clock_hertz: float | None = None
    memory_clock_hertz: float | None = None
    celsius: float | None = None
    throttled_by: tuple[str, ...] = ()
    """Reasons the driver gives for a clock below the highest; empty: none."""


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One node: its parts, its software, and its state before and after."""

    hostname: str
    machine: str | None
    """Maker and model."""
    virtual: str | None
    """The hypervisor; None: none was found."""
    processors: Processors
    memory_bytes: int | None
    accelerators: tuple[Accelerator, ...]
    accelerator_links: tuple[str, ...]
    """The driver's own matrix of links among accelerators and network, a line each."""
    disks: tuple[Disk, ...]
    interfaces: tuple[Interface, ...]
    software: Software
    before: State
    after: State | None = None
