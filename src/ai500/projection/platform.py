"""A system in TOML: its node, the topology of its network, its file system.

The shape of a topology is fixed, its size follows from the number of nodes: a fat tree gets more
leaf switches (and a third level where the spine's radix is exceeded), a dragonfly more groups, a
torus longer sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from ai500.core import schema
from ai500.core.errors import ConfigError, InputError
from ai500.core.reading import MAX_TOML_BYTES, parse_toml, read_text
from ai500.core.schema import check_known, option
from ai500.inventory.peaks import data_sheets
from ai500.projection.quantities import parse
from ai500.records import run_folder
from ai500.roofline import links
from ai500.roofline.place_run import KERNEL_PRECISION
from ai500.roofline.records import RooflineRecord, Scope, ceilings, links_of, units_of_node

SHIPPED = ("dgx-h100-superpod", "frontier", "cluster-100gbe")
FOLDED_NODES = 1024
"""Nodes of a member that are simulated; a power of two, for the butterfly."""
LEAST_LAYERS = 2
"""Layers of a torus that are simulated at least: messages between them leave a layer."""
SWITCH_LATENCY_SECONDS = 0.5e-6
"""Latency of one more switch on the way and its cable, where a file states none: switches of
InfiniBand and Slingshot forward in 0.1 to 0.4 µs, and light takes 0.1 µs for 20 m of fiber."""
TopologyKind = Literal["fat_tree", "dragonfly", "torus"]


@dataclass(frozen=True, slots=True)
class NodeText:
    """`[node]`: quantities with their unit."""

    accelerator: str = option("", "name of the accelerator, as torch prints it")
    accelerators: int = option(0, "accelerators of a node", minimum=0, less_than=1025)
    measured: str = option("", "JSON of `ai500 roofline` or `ai500 system --json` of a node")
    flops: dict[str, str] = field(default_factory=dict)
    link: str = option("", "bandwidth of one accelerator to the others of its node")
    link_latency: str = option("", "latency of a message inside a node")
    rails: int = option(1, "network ports of a node", minimum=1, less_than=65)
    rail: str = option("", "bandwidth of one port, in each direction")
    rail_latency: str = option("", "latency of a message between two nodes of one switch")
    switch_latency: str = option("", "latency that each further switch on its way adds")
    watts: str = option("", "power of a node under load")


@dataclass(frozen=True, slots=True)
class Topology:
    """Shape of the network between nodes. Upper bounds catch typos before SimGrid builds them."""

    kind: TopologyKind
    leaf: int = option(32, "endpoints of a leaf switch (fat tree)", minimum=1, less_than=100_001)
    uplinks: int = option(
        32, "links of a leaf switch to the spine (fat tree)", minimum=1, less_than=1025
    )
    radix: int = option(64, "ports of a spine switch (fat tree)", minimum=2, less_than=1025)
    rail_optimized: bool = option(False, "a leaf switch holds one rail of its nodes")
    switches: int = option(32, "switches of a group (dragonfly)", minimum=1, less_than=257)
    endpoints: int = option(16, "endpoints of a switch (dragonfly)", minimum=1, less_than=257)
    global_links: int = option(1, "links between two groups (dragonfly)", minimum=1, less_than=1025)
    local_links: int = option(
        1, "links between two switches of a group (dragonfly)", minimum=1, less_than=65
    )
    routing: Literal["adaptive", "minimal"] = option(
        "adaptive", "routes between groups (dragonfly)"
    )
    dimensions: int = option(3, "dimensions (torus)", minimum=1, less_than=9)


@dataclass(frozen=True, slots=True)
class FileSystemText:
    """`[file_system]`: the shared store that members read their data from."""

    bandwidth: str = option("", "read bandwidth of all nodes together")
    node: str = option("", "read bandwidth of one node; default: its network")


@dataclass(frozen=True, slots=True)
class PlatformText:
    """The file."""

    name: str
    nodes: int = option(0, "nodes of the machine", minimum=1, less_than=1_000_001)
    source: str = option("", "where the figures come from")
    node: NodeText = field(default_factory=NodeText)
    topology: Topology = field(default_factory=lambda: Topology("fat_tree"))
    file_system: FileSystemText = field(default_factory=FileSystemText)


@dataclass(frozen=True, slots=True)
class Platform:
    """A system; all quantities in bytes, seconds, FLOPS and watts."""

    name: str
    source: str
    nodes: int
    accelerator: str
    accelerators_per_node: int
    flops: dict[str, float]
    """Precision → FLOPS of one accelerator: measured ceiling, else theoretical peak."""
    flops_measured: bool
    link_bytes_per_second: float
    """Bandwidth of one accelerator inside its node, in each direction."""
    link_latency_seconds: float
    rails: int
    rail_bytes_per_second: float
    rail_latency_seconds: float
    """Latency of a message to a node of the same switch; in a torus, to a neighbour."""
    switch_latency_seconds: float
    """Latency that each further switch adds."""
    topology: Topology
    file_system_bytes_per_second: float | None
    """None: no data is staged."""
    node_read_bytes_per_second: float
    watts_per_node: float | None

    @property
    def accelerators(self) -> int:
        """Accelerators of the whole machine."""
        return self.nodes * self.accelerators_per_node

    @property
    def endpoint_latency_seconds(self) -> float:
        """Latency of a message without that of the links: the ports and the software."""
        links = 1 if self.topology.kind == "torus" else 2
        return self.rail_latency_seconds - links * self.switch_latency_seconds


def read(name: str | Path) -> Platform:
    """Read a file, or a shipped system by its name."""
    folder = Path()
    if str(name) in SHIPPED:
        text = resources.files(__package__).joinpath("systems", f"{name}.toml").read_text("utf-8")
    else:
        path = Path(name)
        if not path.is_file():
            raise InputError(
                f"{name}: no such file, and no shipped system.",
                path=path,
                remedy=f"Name a file, or one of {', '.join(SHIPPED)}.",
            )
        folder, text = path.parent, read_text(path, limit=MAX_TOML_BYTES)
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"{name} is not TOML: {error}", path=name) from error
    return build(schema.decode(PlatformText, table), folder=folder)


def build(text: PlatformText, *, folder: Path) -> Platform:
    """Check a file's content and convert its quantities."""
    node = text.node
    measured = _measured(folder / node.measured) if node.measured else _Measured()
    accelerators = node.accelerators or measured.accelerators
    accelerator = node.accelerator or measured.accelerator
    if not accelerators or not accelerator:
        raise ConfigError(
            "[node] names no accelerator, or not how many a node has.",
            key="node.accelerators",
            remedy="Set node.accelerator and node.accelerators, or node.measured.",
        )
    for precision in node.flops:
        check_known(precision, set(KERNEL_PRECISION.values()), key="node.flops")
    rates = {
        precision: parse(value, "flops", key=f"node.flops.{precision}")
        for precision, value in node.flops.items()
    }
    slots = accelerators if measured.of_cores else 1
    measured_rates = {name: rate / slots for name, rate in measured.flops.items()}
    inside, network = measured.link, measured.network
    rail_latency = _quantity(
        node.rail_latency,
        "latency",
        "node.rail_latency",
        network.latency_seconds if network else None,
    )
    platform = Platform(
        name=text.name,
        source=text.source,
        nodes=text.nodes,
        accelerator=accelerator,
        accelerators_per_node=accelerators,
        flops=measured_rates or rates or known_accelerator(accelerator) or {},
        flops_measured=bool(measured.flops),
        link_bytes_per_second=_quantity(
            node.link, "bandwidth", "node.link", inside.bytes_per_second if inside else None
        ),
        link_latency_seconds=_quantity(
            node.link_latency,
            "latency",
            "node.link_latency",
            inside.latency_seconds if inside else None,
        ),
        rails=node.rails,
        rail_bytes_per_second=_quantity(
            node.rail,
            "bandwidth",
            "node.rail",
            network.bytes_per_second / node.rails if network else None,
        ),
        rail_latency_seconds=rail_latency,
        switch_latency_seconds=_switch_latency(node.switch_latency, whole=rail_latency),
        topology=text.topology,
        file_system_bytes_per_second=(
            parse(text.file_system.bandwidth, "bandwidth", key="file_system.bandwidth")
            if text.file_system.bandwidth
            else None
        ),
        node_read_bytes_per_second=0.0,
        watts_per_node=parse(node.watts, "power", key="node.watts") if node.watts else None,
    )
    all_rails = platform.rails * platform.rail_bytes_per_second
    read_rate = text.file_system.node
    platform = replace(
        platform,
        node_read_bytes_per_second=(
            parse(read_rate, "bandwidth", key="file_system.node") if read_rate else all_rails
        ),
    )
    require_flops(platform)
    shape(platform, platform.nodes)
    return platform


def require_flops(platform: Platform) -> None:
    """Refuse an accelerator whose speed is not known."""
    if not platform.flops:
        raise ConfigError(
            f"node.accelerator = {platform.accelerator!r}: its FLOPS are not known; known: "
            f"{', '.join(sheet.name for sheet in data_sheets())}.",
            key="node.accelerator",
            value=platform.accelerator,
            remedy='State them as node.flops.bf16 = "989TFLOPS", or name a node.measured.',
        )


def _switch_latency(text: str, *, whole: float) -> float:
    """Return the latency of a switch: at most half of a message's that passes one."""
    if not text:
        return min(SWITCH_LATENCY_SECONDS, whole / 2)
    stated = parse(text, "latency", key="node.switch_latency")
    if stated > whole / 2:
        raise ConfigError(
            f"node.switch_latency = {text!r} is more than half of node.rail_latency, "
            f"{whole * 1e6:g}us, which contains two links, a switch and both ports.",
            key="node.switch_latency",
            value=text,
        )
    return stated


def _quantity(text: str, kind: Any, key: str, measured: float | None) -> float:
    if text:
        return parse(text, kind, key=key)
    if measured is None:
        raise ConfigError(f"{key} is missing, and was not measured.", key=key)
    return measured


@dataclass(frozen=True)
class _Measured:
    accelerator: str = ""
    accelerators: int = 0
    flops: dict[str, float] = field(default_factory=dict)
    """FLOPS of one accelerator; of a CPU, those of all cores."""
    of_cores: bool = False
    link: links.Fit | None = None
    """One accelerator to the others of its node."""
    network: links.Fit | None = None
    """All ports of a node together."""


def _measured(path: Path) -> _Measured:
    """Read what `ai500 roofline` or `ai500 system --json` says of a node."""
    value = run_folder.read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path} is neither a roofline nor a system.", path=path)
    if "kernels" not in value:
        return _described(value, path)
    record = run_folder.read(RooflineRecord, path)
    best: dict[str, float] = {}
    # The cores of a CPU are divided among its slots; an accelerator is one by itself.
    of_cores = record.unit == "core"
    for ceiling in ceilings(record):
        rate = ceiling.sustained_flops / (1 if of_cores else record.units)
        best[ceiling.precision] = max(best.get(ceiling.precision, 0.0), rate)
    return _Measured(
        record.system.cpu if of_cores else record.device_name,
        units_of_node(record),
        best,
        of_cores,
        _fit(record, "inside_node"),
        _fit(record, "between_nodes"),
    )


def _described(value: dict[str, Any], path: Path) -> _Measured:
    """Read names from the first node of `ai500 system --json`: it measures nothing."""
    try:
        node = value["nodes"][0]
        names = [str(accelerator["name"]) for accelerator in node["accelerators"]]
        return _Measured(names[0] if names else str(node["processors"]["model"]), len(names) or 1)
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(
            f"{path} is neither a roofline nor a system.",
            path=path,
            remedy="Write it with `ai500 roofline --out FILE` or `ai500 system --json`.",
        ) from error


def _fit(record: RooflineRecord, scope: Scope) -> links.Fit | None:
    """Fit latency of a message and bandwidth to the all-reduces of one class of links.

    An all-reduce of n ranks has 2 (n − 1) messages one after another. Between nodes every local
    rank has one at the same time: the node's ports carry all of them.
    """
    times = links_of(record.links, kind="all_reduce", scope=scope)
    # Inside a node each accelerator has links of its own.
    together = times[0].groups if times and scope == "between_nodes" else 1
    points = [(together * links.sent_bytes(time), time.seconds) for time in times]
    fitted = links.fit(points)
    if fitted is None:
        return None
    rounds = 2 * (times[0].ranks - 1)
    return replace(fitted, latency_seconds=fitted.latency_seconds / rounds)


def known_accelerator(name: str) -> dict[str, float] | None:
    """Return precision → peak FLOPS; None: the accelerator is not known."""
    return next((dict(sheet.flops) for sheet in data_sheets() if sheet.name == name), None)


def shape(platform: Platform, nodes: int) -> dict[str, Any]:
    """Return the topology with at least this many nodes, as the simulator's worker builds it."""
    topology, endpoints = platform.topology, nodes * platform.rails
    rails = platform.rails
    if topology.rail_optimized:
        # The planes of the rails are alike and carry the same: one of them is simulated.
        endpoints, rails = nodes, 1
    link = {
        "bytes_per_second": platform.rail_bytes_per_second,
        "latency_seconds": platform.switch_latency_seconds,
        "rails": rails,
    }
    if topology.kind == "torus":
        if platform.rails > 1:
            raise _impossible("a torus has one endpoint per node: set node.rails = 1.")
        # SimGrid refuses a second side of one node.
        sides = [side for side in torus_sides(nodes, topology.dimensions) if side > 1] or [1]
        return {"kind": "torus", "sides": sides, **link}
    if topology.kind == "dragonfly":
        whole = max(nodes, platform.nodes) * rails
        return {**_dragonfly(topology, endpoints, rails=rails, whole=whole), **link}
    return {"kind": "fat_tree", **_fat_tree(topology, endpoints), **link}


def torus_sides(nodes: int, dimensions: int) -> list[int]:
    """Return the sides of a torus for so many nodes, descending: 2,048 nodes are 16 × 16 × 8.

    A block without a gap where its sides differ by a factor of two at most, as schedulers allocate
    one; else the smallest block that holds the nodes: the ring through a torus with gaps ends with
    a message over many links.
    """
    side = max(1, math.ceil(round(nodes ** (1 / dimensions), 9)))
    whole = _factors(nodes, dimensions, most=2 * side)
    if whole and whole[0] <= 2 * whole[-1]:
        return whole
    sides = [side] * dimensions
    # Shorten sides while the nodes still fit: 101 nodes are 5 × 5 × 5, 97 of them 5 × 5 × 4.
    for place in reversed(range(dimensions)):
        while sides[place] > 1 and math.prod(sides) // sides[place] * (sides[place] - 1) >= nodes:
            sides[place] -= 1
    return sides


def _factors(product: int, count: int, *, most: int) -> list[int]:
    """Return so many descending factors with the smallest largest one; empty: there are none."""
    if count == 1:
        return [product] if product <= most else []
    least = math.ceil(round(product ** (1 / count), 9))
    for first in range(least, min(product, most) + 1):
        if product % first == 0 and (rest := _factors(product // first, count - 1, most=first)):
            return [first, *rest]
    return []


def folded_nodes(platform: Platform, nodes: int) -> int:
    """Return how many nodes of a member are simulated and stand for all of them.

    A torus is cut along its last side only: how far messages go, and so how many of them share a
    link, follows from the lengths of the sides.
    """
    if platform.topology.kind != "torus" or nodes <= FOLDED_NODES:
        return min(nodes, FOLDED_NODES)
    layer = math.prod(torus_sides(nodes, platform.topology.dimensions)[:-1])
    layers = max(LEAST_LAYERS, math.ceil(FOLDED_NODES / layer))
    # A last layer that is not full stays so: messages around its gap take other ways.
    return min(nodes, (layers - 1) * layer + (nodes % layer or layer))


def part_of(
    platform: Platform, *, nodes: int, used: int
) -> tuple[dict[str, Any], Callable[[int], int]]:
    """Return the topology in which the first `used` of so many nodes send, and their places in it.

    In a fat tree the used leaf switches are spread over the whole tree, so that messages between
    them cross as many levels as in the whole. A torus keeps all sides but its last. The groups of a
    dragonfly are all as near to each other: it is built for the used nodes alone.
    """
    described = shape(platform, nodes)  # refuses what is impossible as a whole
    if used == nodes:
        return described, int
    if platform.topology.kind == "torus":
        *sides, _ = described["sides"]
        return {**described, "sides": [*sides, math.ceil(used / math.prod(sides))]}, int
    if platform.topology.kind == "dragonfly":
        return shape(replace(platform, nodes=max(platform.nodes, nodes)), used), int
    block = max(1, platform.topology.leaf // int(described["rails"]))
    stride = max(1, (nodes // block) // math.ceil(used / block))

    def place(node: int) -> int:
        leaf, local = divmod(node, block)
        return leaf * stride * block + local

    return described, place


def _fat_tree(topology: Topology, endpoints: int) -> dict[str, list[int]]:
    if topology.uplinks > topology.leaf:
        raise _impossible(
            f"topology.uplinks = {topology.uplinks} of a leaf switch with {topology.leaf} "
            "endpoints: more up than down carries nothing more."
        )
    leaves = max(1, math.ceil(endpoints / topology.leaf))
    if leaves == 1:
        return {"down": [min(topology.leaf, endpoints)], "up": [1], "parallel": [1]}
    if leaves <= topology.radix:
        return {"down": [topology.leaf, leaves], "up": [1, topology.uplinks], "parallel": [1, 1]}
    half = topology.radix // 2
    pods = math.ceil(leaves / half)
    if pods > topology.radix:
        most = topology.leaf * half * topology.radix
        raise _impossible(
            f"{endpoints:,} endpoints need {pods} pods; switches of {topology.radix} ports join "
            f"at most {topology.radix} ({most:,} endpoints) in three levels."
        )
    return {
        "down": [topology.leaf, half, pods],
        "up": [1, topology.uplinks, half],
        "parallel": [1, 1, 1],
    }


def _dragonfly(topology: Topology, endpoints: int, *, rails: int, whole: int) -> dict[str, Any]:
    """Return groups for so many endpoints, of a system that has `whole` of them.

    Adaptive: a group sends to others over all its global links, whichever group they lead to. A
    route through a third group takes two of them, so that they carry half of their bandwidth
    (Kim et al., ISCA 2008, worst-case traffic). SimGrid's dragonfly routes minimally: all that one
    group sends to another takes the links between these two.
    """
    group = topology.switches * topology.endpoints
    if group % rails:
        raise _impossible(f"a group of {group} endpoints holds no whole nodes of {rails} rails.")
    groups, all_groups = (max(1, math.ceil(count / group)) for count in (endpoints, whole))
    links = (all_groups - 1) * topology.global_links
    if links > group:  # as many global ports as endpoints
        raise _impossible(
            f"{all_groups} groups need {links} global links of each group; its "
            f"{topology.switches} switches have {group} ports for them."
        )
    if topology.routing == "adaptive":
        if groups == 1:
            return {"kind": "fat_tree", "down": [endpoints], "up": [1], "parallel": [1]}
        shared = max(1, links // 2)
        return {"kind": "fat_tree", "down": [group, groups], "up": [1, shared], "parallel": [1, 1]}
    # SimGrid joins a group to each other one at a switch of its own: where groups are more than
    # switches, a switch stands for several with fewer endpoints each.
    parts = [
        count
        for count in range(1, topology.endpoints + 1)
        if topology.endpoints % count == 0 and topology.switches * count >= groups
    ]
    if not parts:
        raise _impossible(f"{groups} groups are more than a group's {group} endpoints.")
    return {
        "kind": "dragonfly",
        "groups": groups,
        "switches": topology.switches * parts[0],
        "endpoints": topology.endpoints // parts[0],
        "global_links": topology.global_links,
        "local_links": topology.local_links,
    }


def _impossible(problem: str) -> ConfigError:
    return ConfigError(f"impossible topology: {problem}", key="topology")


def endpoint(shape: dict[str, Any], node: int, rail: int) -> int:
    """Return the endpoint of a node's rail.

    In a dragonfly the rails of a node are at different switches of its group, so that a message
    striped over them takes different links.
    """
    rails = int(shape["rails"])
    if shape["kind"] != "dragonfly":
        return node * rails + rail
    group = int(shape["switches"]) * int(shape["endpoints"])
    place, local = divmod(node, group // rails)
    return place * group + rail * (group // rails) + local
