"""Tables of node descriptions: one node by sections, many nodes grouped by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ai500.core.schema import encode
from ai500.core.units import human_bytes, human_si
from ai500.inventory.description import Accelerator, Interface, NodeDescription, State

NOT_FOUND = "not found"
_NODE_SPECIFIC = ("hostname", "before", "after", "software.scheduler")
_ROUNDED = ("memory_bytes", "bytes")  # the memory reserved by firmware differs between nodes

Row = tuple[str, str]
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """Nodes with the same description."""

    hostnames: tuple[str, ...]
    description: NodeDescription
    differences: tuple[tuple[str, str, str], ...]
    """(name, value, value of the first kind); empty for the first kind."""


def kinds(nodes: Sequence[NodeDescription]) -> list[Kind]:
    """Group the nodes by kind, the most frequent first, with their differences from it."""
    groups: dict[tuple[tuple[str, str], ...], list[NodeDescription]] = {}
    for node in sorted(nodes, key=lambda node: node.hostname):
        groups.setdefault(tuple(sorted(compared(node).items())), []).append(node)
    ordered = sorted(groups.items(), key=lambda entry: -len(entry[1]))
    first = dict(ordered[0][0]) if ordered else {}
    return [
        Kind(
            hostnames=tuple(node.hostname for node in group),
            description=group[0],
            differences=tuple(_differences(first, dict(key))),
        )
        for key, group in ordered
    ]


def compared(node: NodeDescription) -> dict[str, str]:
    """Return dotted name → value of everything that is the same for nodes of one kind."""
    return {
        name: value
        for name, value in _flat(encode(node))
        if not name.startswith((*_NODE_SPECIFIC, "software.environment.AI500_"))
        and not name.endswith(".uuid")
    }


def _flat(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _flat(item, f"{at}[{index}]")
    elif at.endswith(_ROUNDED) and value is not None:
        yield at, f"{value / (1 << 30):.0f} GiB"
    else:
        yield at, NOT_FOUND if value is None else str(value)


def _differences(
    reference: Mapping[str, str], other: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    for name in sorted({*reference, *other}):
        value, expected = other.get(name, NOT_FOUND), reference.get(name, NOT_FOUND)
        if value != expected:
            yield name, value, expected


def totals(nodes: Sequence[NodeDescription]) -> list[Row]:
    """Sum up the cluster; a sum with an unknown term is not found."""
    accelerators: dict[str, int] = {}
    for node in nodes:
        for accelerator in node.accelerators:
            accelerators[accelerator.name] = accelerators.get(accelerator.name, 0) + 1
    named = ", ".join(f"{count:,} × {name}" for name, count in accelerators.items())
    return [
        ("nodes", f"{len(nodes):,}"),
        ("cores", _sum([node.processors.cores for node in nodes], lambda value: f"{value:,}")),
        ("memory", _sum([node.memory_bytes for node in nodes], human_bytes)),
        ("accelerators", named or NOT_FOUND),
    ]


def _sum(values: Sequence[int | None], shown: Any) -> str:
    known = [value for value in values if value is not None]
    return str(shown(sum(known))) if len(known) == len(values) else NOT_FOUND


def sections(node: NodeDescription) -> list[tuple[str, list[Row]]]:
    """Return the tables of a node, by section."""
    software = node.software
    interfaces = list(map(_interface, node.interfaces)) or [("network", NOT_FOUND)]
    environment = list(software.environment.items())
    return [
        ("hardware", [*_hardware(node), *map(_accelerator, node.accelerators)]),
        ("storage and network", [*_disks(node), *interfaces]),
        (
            "software",
            [
                ("operating system", shown(software.operating_system)),
                ("kernel", shown(software.kernel)),
                ("C library", shown(software.c_library)),
                ("Python", shown(software.python)),
                *((name, version or NOT_FOUND) for name, version in software.libraries.items()),
                ("container", software.container or "none found"),
                *software.scheduler.items(),
            ],
        ),
        ("environment that changes results", environment or [("variables", "none set")]),
        ("clocks and throttling", _states(node)),
    ]


def _hardware(node: NodeDescription) -> list[Row]:
    processors = node.processors
    caches = ", ".join(f"{level} {human_bytes(size)}" for level, size in processors.caches.items())
    numa_nodes = "; ".join(
        f"{numa.number}: CPUs {numa.processors}, " + shown(numa.memory_bytes, human_bytes)
        for numa in processors.numa
    )
    return [
        ("machine", shown(node.machine)),
        ("hypervisor", node.virtual or "none found"),
        ("CPU", shown(processors.model)),
        ("sockets", shown(processors.sockets)),
        ("cores", shown(processors.cores)),
        ("logical processors", shown(processors.threads)),
        ("highest clock", shown(processors.highest_hertz, human_hertz)),
        ("caches", caches or NOT_FOUND),
        ("NUMA nodes", numa_nodes or NOT_FOUND),
        ("vector instructions", " ".join(processors.instructions) or NOT_FOUND),
        ("memory", shown(node.memory_bytes, human_bytes)),
        *((f"links {i}" if i else "links", line) for i, line in enumerate(node.accelerator_links)),
        *([] if node.accelerators else [("accelerators", NOT_FOUND)]),
    ]


def _accelerator(device: Accelerator) -> Row:
    parts = [device.name]
    if device.memory_bytes is not None:
        parts.append(human_bytes(device.memory_bytes))
    if device.highest_clock_hertz is not None:
        parts.append(f"up to {human_hertz(device.highest_clock_hertz)}")
    if device.power_limit_watts is not None:
        parts.append(f"limit {device.power_limit_watts:g} W")
    parts += [part for part in (device.bus, device.driver and f"driver {device.driver}") if part]
    parts += [f"{count} {kind}" for kind, count in device.links.items()]
    return f"accelerator {device.index}", ", ".join(parts)


def _disks(node: NodeDescription) -> list[Row]:
    kinds = {True: "rotating", False: "solid state", None: "kind not found"}
    return [
        (
            f"disk {disk.name}",
            f"{disk.model or 'model not found'}, {shown(disk.bytes, human_bytes)}, "
            f"{kinds[disk.rotational]}",
        )
        for disk in node.disks
    ] or [("disks", NOT_FOUND)]


def _interface(interface: Interface) -> Row:
    speed = interface.bits_per_second
    parts = [
        interface.kind,
        interface.state or "state not found",
        "speed not found" if speed is None else f"{human_si(speed)}bit/s",
        *([f"driver {interface.driver}"] if interface.driver else []),
    ]
    return interface.name, ", ".join(parts)


def _states(node: NodeDescription) -> list[Row]:
    """Return the state before and after a run, or the one state of a node without a run."""
    if node.after is None:
        return [(name.strip(), value) for name, value in state_rows("", node.before)]
    return [*state_rows("before", node.before), *state_rows("after", node.after)]


def state_rows(when: str, state: State) -> list[Row]:
    """Return clocks and throttling at one moment; `when` is `before` or `after`."""
    clocks = state.processor_hertz
    throttled = shown(state.processor_throttled, "{:,} times since the node started".format)
    rows = [
        (f"load {when}", shown(state.load, "{:g}".format)),
        (f"governor {when}", ", ".join(state.governors) or NOT_FOUND),
        (
            f"CPU clocks {when}",
            NOT_FOUND if clocks is None else " to ".join(map(human_hertz, clocks)),
        ),
        (f"CPU throttled {when}", throttled),
    ]
    for device in state.accelerators:
        hertz = shown(device.clock_hertz, human_hertz)
        heat = "" if device.celsius is None else f", {device.celsius:g} °C"
        slowed = f", slowed by {', '.join(device.throttled_by)}" if device.throttled_by else ""
        rows.append((f"accelerator {device.index} {when}", f"{hertz}{heat}{slowed}"))
    return rows


def human_hertz(hertz: float) -> str:
    """Format a frequency with a decimal prefix."""
    return f"{human_si(hertz)}Hz"


def shown(value: T | None, text: Callable[[T], str] = str) -> str:
    """Format a value; None is "not found"."""
    return NOT_FOUND if value is None else text(value)
