"""Records of a system description; None: not found, never guessed."""

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
    """Cache level, such as `L2`, → total bytes of all instances."""
    numa: tuple[NumaNode, ...] = ()
    instructions: tuple[str, ...] = ()
    """Instruction-set extensions for vector and matrix arithmetic."""


@dataclass(frozen=True, slots=True)
class NumaNode:
    """Memory and its local logical processors."""

    number: int
    processors: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator, as reported by its driver."""

    index: int
    name: str
    uuid: str | None = None
    """Identity of the device; its index depends on the devices a process may see."""
    memory_bytes: int | None = None
    driver: str | None = None
    firmware: str | None = None
    highest_clock_hertz: float | None = None
    highest_memory_clock_hertz: float | None = None
    power_limit_watts: float | None = None
    bus: str | None = None
    """Host bus, such as `PCIe 5.0 ×16`."""
    links: dict[str, int] = field(default_factory=dict)
    """Kind of direct link, such as `NVLink`, → number of active links."""
    link_peaks: dict[str, float] = field(default_factory=dict)
    """Kind of link, `PCIe` too, → theoretical bytes per second in each direction, of all links."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A block device."""

    name: str
    model: str | None
    bytes: int | None
    rotational: bool | None


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface or port."""

    name: str
    kind: str
    """Link layer: `ethernet`, `infiniband`, …"""
    state: str | None
    bits_per_second: float | None
    driver: str | None


@dataclass(frozen=True, slots=True)
class Software:
    """Operating system, libraries, container and environment."""

    operating_system: str | None = None
    kernel: str | None = None
    c_library: str | None = None
    python: str | None = None
    libraries: dict[str, str | None] = field(default_factory=dict)
    container: str | None = None
    """Container runtime, as far as it can be detected; None: no container detected."""
    scheduler: dict[str, str] = field(default_factory=dict)
    """Slurm's environment variables of the job."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables that change results: those of NCCL, UCX, OMP, CUDA, XLA, …"""


@dataclass(frozen=True, slots=True)
class State:
    """Clocks and throttling of a node at one moment."""

    wall: float
    load: float | None = None
    """Load average of the last minute, in runnable processes."""
    governors: tuple[str, ...] = ()
    processor_hertz: tuple[float, float] | None = None
    """Lowest and highest clock of the logical processors, in hertz."""
    processor_throttled: int | None = None
    """Number of thermal throttle events of all cores since boot."""
    accelerators: tuple[AcceleratorState, ...] = ()


@dataclass(frozen=True, slots=True)
class AcceleratorState:
    """Clocks and throttling of an accelerator at one moment."""

    index: int
    clock_hertz: float | None = None
    memory_clock_hertz: float | None = None
    celsius: float | None = None
    throttled_by: tuple[str, ...] = ()
    """The driver's reasons for a clock below the maximum; empty: none."""


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One node: hardware, software, and its state before and after training."""

    hostname: str
    machine: str | None
    """Manufacturer and model."""
    virtual: str | None
    """Hypervisor; None: none detected."""
    processors: Processors
    memory_bytes: int | None
    accelerators: tuple[Accelerator, ...]
    accelerator_links: tuple[str, ...]
    """Lines of the driver's matrix of links among accelerators and network cards."""
    disks: tuple[Disk, ...]
    interfaces: tuple[Interface, ...]
    software: Software
    before: State
    after: State | None = None
