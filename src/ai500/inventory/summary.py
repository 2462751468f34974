"""Descriptions as a person reads them: a node, and many nodes as the few kinds they are of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai500.core.schema import encode
from ai500.core.units import human_bytes, human_si
from ai500.inventory.description import Accelerator, NodeDescription, State
from ai500.inventory.views import merged
from ai500.records import run_folder
from ai500.records.run_folder import RunFolder

NOT_FOUND = "not found"
_OF_ONE_NODE = ("hostname", "before", "after", "software.scheduler")
_ROUNDED = ("memory_bytes", "bytes")
"""Two nodes of one kind differ by what their firmware keeps for itself."""

Row = tuple[str, str]


@dataclass(frozen=True)
class Kind:
    """Nodes that are described alike."""

    hostnames: tuple[str, ...]
    description: NodeDescription
    differences: tuple[tuple[str, str, str], ...]
    """Name, value here, value of the first kind; empty for that one itself."""


def recorded_nodes(run: RunFolder) -> list[NodeDescription]:
    """The nodes that trained, each as the last trial on it left it."""
    latest: dict[str, NodeDescription] = {}
    for trial in sorted(run.path.glob("trials/*")):
        views: dict[str, list[NodeDescription]] = {}
        for path in sorted(trial.glob("systems/*.json")):
            one = run_folder.read(NodeDescription, path)
            views.setdefault(one.hostname, []).append(one)
        latest |= {host: merged(seen) for host, seen in views.items()}
    return list(latest.values())


def kinds(nodes: Sequence[NodeDescription]) -> list[Kind]:
    """The nodes grouped, the most frequent kind first, with what sets the others apart."""
    groups: dict[tuple[tuple[str, str], ...], list[NodeDescription]] = {}
    for node in sorted(nodes, key=lambda one: one.hostname):
        groups.setdefault(tuple(sorted(compared(node).items())), []).append(node)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    first = dict(ordered[0][0]) if ordered else {}
    return [
        Kind(
            hostnames=tuple(member.hostname for member in members),
            description=members[0],
            differences=tuple(_differences(first, dict(key))),
        )
        for key, members in ordered
    ]


def compared(node: NodeDescription) -> dict[str, str]:
    """Dotted name → value of all that nodes of one kind have in common."""
    return {
        name: value
        for name, value in _flat(encode(node))
        if not name.startswith((*_OF_ONE_NODE, "software.environment.AI500_"))
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
        ours, theirs = other.get(name, NOT_FOUND), reference.get(name, NOT_FOUND)
        if ours != theirs:
            yield name, ours, theirs


def totals(nodes: Sequence[NodeDescription]) -> list[Row]:
    """The cluster in a few lines; a sum over nodes of which one does not know is not known."""
    accelerators: dict[str, int] = {}
    for node in nodes:
        for one in node.accelerators:
            accelerators[one.name] = accelerators.get(one.name, 0) + 1
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
    """A node, section by section."""
    software = node.software
    return [
        ("hardware", [*_hardware(node), *(_accelerator(one) for one in node.accelerators)]),
        ("storage and network", [*_disks(node), *_interfaces(node)]),
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
        ("environment that changes results", _environment(software.environment)),
        ("clocks and throttling", _states(node)),
    ]


def _hardware(node: NodeDescription) -> list[Row]:
    processors = node.processors
    hertz = processors.highest_hertz
    caches = ", ".join(f"{level} {human_bytes(size)}" for level, size in processors.caches.items())
    numa = "; ".join(
        f"{one.number}: CPUs {one.processors}, "
        + (NOT_FOUND if one.memory_bytes is None else human_bytes(one.memory_bytes))
        for one in processors.numa
    )
    return [
        ("machine", shown(node.machine)),
        ("hypervisor", node.virtual or "none found"),
        ("CPU", shown(processors.model)),
        ("sockets", shown(processors.sockets)),
        ("cores", shown(processors.cores)),
        ("logical processors", shown(processors.threads)),
        ("highest clock", NOT_FOUND if hertz is None else f"{human_si(hertz)}Hz"),
        ("caches", caches or NOT_FOUND),
        ("NUMA nodes", numa or NOT_FOUND),
        ("vector instructions", " ".join(processors.instructions) or NOT_FOUND),
        ("memory", NOT_FOUND if node.memory_bytes is None else human_bytes(node.memory_bytes)),
        *((f"links {i}" if i else "links", line) for i, line in enumerate(node.accelerator_links)),
        *([] if node.accelerators else [("accelerators", NOT_FOUND)]),
    ]


def _accelerator(one: Accelerator) -> Row:
    parts = [one.name]
    if one.memory_bytes is not None:
        parts.append(human_bytes(one.memory_bytes))
    if one.highest_clock_hertz is not None:
        parts.append(f"up to {human_si(one.highest_clock_hertz)}Hz")
    if one.power_limit_watts is not None:
        parts.append(f"limit {one.power_limit_watts:g} W")
    parts += [part for part in (one.bus, one.driver and f"driver {one.driver}") if part]
    parts += [f"{count} {kind}" for kind, count in one.links.items()]
    return f"accelerator {one.index}", ", ".join(parts)


def _disks(node: NodeDescription) -> list[Row]:
    turning = {True: "rotating", False: "solid state", None: "kind not found"}
    return [
        (
            f"disk {one.name}",
            f"{one.model or 'model not found'}, "
            + (NOT_FOUND if one.bytes is None else human_bytes(one.bytes))
            + f", {turning[one.rotational]}",
        )
        for one in node.disks
    ] or [("disks", NOT_FOUND)]


def _interfaces(node: NodeDescription) -> list[Row]:
    return [
        (
            one.name,
            f"{one.kind}, {one.state or 'state not found'}, "
            + (
                "speed not found"
                if one.bits_per_second is None
                else f"{human_si(one.bits_per_second)}bit/s"
            )
            + (f", driver {one.driver}" if one.driver else ""),
        )
        for one in node.interfaces
    ] or [("network", NOT_FOUND)]


def _environment(variables: Mapping[str, str]) -> list[Row]:
    return list(variables.items()) or [("variables", "none set")]


def _states(node: NodeDescription) -> list[Row]:
    """Of a run before and after; of a node that was only looked at, as it is."""
    if node.after is None:
        return [(name.strip(), value) for name, value in state_rows("", node.before)]
    return [*state_rows("before", node.before), *state_rows("after", node.after)]


def state_rows(when: str, state: State) -> list[Row]:
    """Clocks and throttling at one moment."""
    clock = state.processor_hertz
    rows = [
        (f"load {when}", NOT_FOUND if state.load is None else f"{state.load:g}"),
        (f"governor {when}", ", ".join(state.governors) or NOT_FOUND),
        (
            f"CPU clocks {when}",
            NOT_FOUND if clock is None else f"{human_si(clock[0])}Hz to {human_si(clock[1])}Hz",
        ),
        (f"CPU throttled {when}", _times(state.processor_throttled)),
    ]
    for one in state.accelerators:
        hertz = NOT_FOUND if one.clock_hertz is None else f"{human_si(one.clock_hertz)}Hz"
        heat = "" if one.celsius is None else f", {one.celsius:g} °C"
        slowed = f", slowed by {', '.join(one.throttled_by)}" if one.throttled_by else ""
        rows.append((f"accelerator {one.index} {when}", f"{hertz}{heat}{slowed}"))
    return rows


def _times(count: int | None) -> str:
    return NOT_FOUND if count is None else f"{count:,} times since the node started"


def shown(value: object) -> str:
    """A value, or that there is none."""
    return NOT_FOUND if value is None else str(value)
