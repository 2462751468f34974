"""Systems in TOML: units, shipped files, impossible topologies."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ai500.core.errors import ConfigError, InputError
from ai500.core.schema import SchemaError
from ai500.projection import platform
from ai500.projection.quantities import parse

CLUSTER = """
name = "test"
nodes = 4
[node]
accelerator = "NVIDIA H200"
accelerators = 2
link = "100GB/s"
link_latency = "1us"
rail = "{rail}"
rail_latency = "2us"
[topology]
kind = "{kind}"
{more}
"""


def write(folder: Path, *, rail: str = "100Gbps", kind: str = "fat_tree", more: str = "") -> Path:
    path = folder / "system.toml"
    path.write_text(CLUSTER.format(rail=rail, kind=kind, more=more))
    return path


@pytest.mark.parametrize(
    ("text", "value"), [("100Gbps", 12.5e9), ("25GB/s", 25e9), ("8Mbit/s", 1e6), ("1e2 MB/s", 1e8)]
)
def test_bits_and_bytes_are_told_apart(text: str, value: float) -> None:
    assert parse(text, "bandwidth", key="node.rail") == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    ["100Gb", "100GB", "100Gb/s", "12GBps", "100", "fast", "-1Gbps", "1e999Gbps", "1e-400GB/s"],
)
def test_ambiguous_and_impossible_bandwidths_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "bandwidth", key="node.rail")
    assert caught.value.key == "node.rail"


def test_a_unit_of_another_quantity_is_named() -> None:
    with pytest.raises(ConfigError, match="unit of latency, not of bandwidth"):
        parse("5us", "bandwidth", key="node.rail")


@pytest.mark.parametrize("name", platform.SHIPPED)
def test_shipped_systems_have_sources_and_grow_to_100_000(name: str) -> None:
    system = platform.read(name)
    assert system.source and system.accelerators >= 1000
    nodes = 100_000 // system.accelerators_per_node
    shape = platform.shape(system, nodes)
    # A dragonfly with adaptive routes is a tree of its groups.
    assert shape["kind"] == "fat_tree"
    assert math.prod(shape["down"]) >= nodes * shape["rails"]


def test_a_torus_is_as_small_as_its_nodes_allow(tmp_path: Path) -> None:
    system = platform.read(write(tmp_path, kind="torus"))
    sides = {nodes: platform.shape(system, nodes)["sides"] for nodes in (100, 97, 2048, 1)}
    assert sides == {100: [5, 5, 4], 97: [5, 5, 4], 2048: [16, 16, 8], 1: [1]}


@pytest.mark.parametrize(
    ("kind", "more", "nodes"),
    [
        ("fat_tree", "leaf = 8\nuplinks = 16", 4),
        ("fat_tree", "leaf = 2\nuplinks = 2\nradix = 4", 100),
        ("dragonfly", "switches = 2\nendpoints = 2\nglobal_links = 2", 100),
    ],
)
def test_impossible_topologies_are_refused(
    tmp_path: Path, kind: str, more: str, nodes: int
) -> None:
    with pytest.raises(ConfigError, match="impossible topology"):
        platform.shape(platform.read(write(tmp_path, kind=kind, more=more)), nodes)


@pytest.mark.parametrize(
    ("kind", "more", "key"),
    [
        ("torus", "dimensions = 50", "topology.dimensions"),
        ("dragonfly", "switches = 100000", "topology.switches"),
        ("fat_tree", "leaf = 100000000", "topology.leaf"),
    ],
)
def test_sizes_that_simgrid_could_not_build_are_refused(
    tmp_path: Path, kind: str, more: str, key: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        platform.read(write(tmp_path, kind=kind, more=more))
    assert caught.value.key == key


def test_a_switch_that_is_larger_than_its_nodes_is_built_for_them(tmp_path: Path) -> None:
    system = platform.read(write(tmp_path, more="leaf = 100000"))
    assert platform.shape(system, 4)["down"] == [4]


def test_a_switch_takes_half_of_a_messages_latency_at_most(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert platform.read(path).switch_latency_seconds == platform.SWITCH_LATENCY_SECONDS
    path.write_text(path.read_text().replace('"2us"', '"2us"\nswitch_latency = "1.1us"'))
    with pytest.raises(ConfigError) as caught:
        platform.read(path)
    assert caught.value.key == "node.switch_latency"
    path.write_text(path.read_text().replace("1.1us", "200ns"))
    system = platform.read(path)
    assert system.endpoint_latency_seconds == pytest.approx(1.6e-6)


def test_flops_of_a_precision_that_is_none_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace("[node]", '[node]\nflops.bf17 = "900TFLOPS"'))
    with pytest.raises(InputError) as caught:
        platform.read(path)
    assert (caught.value.key, caught.value.value) == ("node.flops", "bf17")


def test_an_unknown_accelerator_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace("NVIDIA H200", "Abacus"))
    with pytest.raises(ConfigError) as caught:
        platform.read(path)
    assert (caught.value.key, caught.value.value) == ("node.accelerator", "Abacus")


def test_a_measured_node_gives_speed_and_name(tmp_path: Path) -> None:
    measured = Path(__file__).parents[3] / "docs/examples/h200/roofline.json"
    (tmp_path / "node.json").write_text(json.dumps(json.loads(measured.read_text())["ceilings"]))
    path = write(tmp_path)
    text = path.read_text().replace('accelerator = "NVIDIA H200"\n', 'measured = "node.json"\n')
    path.write_text(text)
    system = platform.read(path)
    assert system.accelerator == "NVIDIA H200"
    assert system.flops_measured and 3e14 < system.flops["bf16"] < 1.1e15


def test_a_described_node_gives_its_accelerators(tmp_path: Path) -> None:
    """`ai500 system --json` of a node; the reason to measure is in the error of its FLOPS."""
    node = {"accelerators": [{"name": "NVIDIA H200"}] * 4, "processors": {"model": "a CPU"}}
    (tmp_path / "node.json").write_text(json.dumps({"notes": {}, "nodes": [node]}))
    path = write(tmp_path)
    text = path.read_text().replace('accelerator = "NVIDIA H200"\naccelerators = 2\n', "")
    path.write_text(text.replace("[node]\n", '[node]\nmeasured = "node.json"\n'))
    system = platform.read(path)
    assert (system.accelerator, system.accelerators_per_node) == ("NVIDIA H200", 4)
    assert not system.flops_measured
    (tmp_path / "node.json").write_text("{}")
    with pytest.raises(InputError) as caught:
        platform.read(path)
    assert caught.value.path == tmp_path / "node.json"


def test_measured_links_give_bandwidth_and_latency_of_a_message(tmp_path: Path) -> None:
    """All-reduces of 2 (n − 1) rounds; between nodes all local ranks share the ports."""
    measured = Path(__file__).parents[3] / "docs/examples/h200/roofline.json"
    record = json.loads(measured.read_text())["ceilings"]

    def link(scope: str, ranks: int, groups: int, size: int, rate: float) -> dict[str, object]:
        sent = groups * 2 * (ranks - 1) / ranks * size
        return {"kind": "all_reduce", "scope": scope, "ranks": ranks, "groups": groups,
                "bytes": size, "seconds": 2 * (ranks - 1) * 4e-6 + sent / rate,
                "samples": 5}  # fmt: skip

    record["links"] = [
        link(*shape, size=size, rate=rate)  # type: ignore[arg-type]
        for shape, rate in ((("inside_node", 8, 1), 200e9), (("between_nodes", 2, 8), 50e9))
        for size in (1000, 10**6, 10**9)
    ]
    (tmp_path / "node.json").write_text(json.dumps(record))
    path = write(tmp_path)
    lines = [line for line in path.read_text().splitlines()
             if line.partition(" ")[0] not in
             ("accelerator", "accelerators", "link", "link_latency", "rail",
              "rail_latency")]  # fmt: skip
    lines.insert(lines.index("[node]") + 1, 'measured = "node.json"\nrails = 4')
    path.write_text("\n".join(lines))
    system = platform.read(path)
    assert system.accelerators_per_node == 8
    assert system.link_bytes_per_second == pytest.approx(200e9)
    assert system.rail_bytes_per_second == pytest.approx(50e9 / 4)
    assert system.link_latency_seconds == pytest.approx(4e-6)
    assert system.rail_latency_seconds == pytest.approx(4e-6)


def test_a_missing_file_names_the_shipped_systems() -> None:
    with pytest.raises(InputError) as caught:
        platform.read("nowhere.toml")
    assert "frontier" in caught.value.remedy
