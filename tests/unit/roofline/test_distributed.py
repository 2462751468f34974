"""A run over several nodes under the distributed model (V2 §6.3): every number by hand.

Each rank has 1 TFLOPS of CONV FP32. Between nodes an all-reduce of two ranks moves 100 MB/s from
each, two such side by side on each node: a node sends 200 MB/s. A step sends a byte over each class
of links for every 5,200 operations.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ai500.operations.shipped import shipped_operations
from ai500.records import Plan, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.roofline import page as pages
from ai500.roofline.place_run import place_run
from ai500.roofline.records import KernelTime, LinkTime, RooflineRecord, RunPlacement
from ai500.roofline.traffic import nodes_of_ranks
from tests.support.synthetic_roofline import synthetic_roofline
from tests.support.synthetic_run import Shape, write_synthetic_run

OPERATIONS = shipped_operations("image_classification", "smoke", "aiperf")
PLACED = shipped_operations("image_classification", "smoke", "matmul")
assert OPERATIONS is not None
assert PLACED is not None
STEP_OPERATIONS = 4 * 32 * PLACED.per_sample
"""Four ranks of 32 images, by the convention that ceilings have."""
SENT = STEP_OPERATIONS / 5200
"""Bytes of a step on each class of links."""
INSIDE = LinkTime("all_reduce", "inside_node", 2, 1, 10**8, 0.05, 5)
BETWEEN = LinkTime("all_reduce", "between_nodes", 2, 2, 10**8, 1.0, 5)


def roofline(*links: LinkTime) -> RooflineRecord:
    kernels = (KernelTime("conv", "fp32", "any", 10**12, 1.0, 5),)
    return synthetic_roofline(kernels=kernels, links=links or (INSIDE, BETWEEN), peaks=())


def two_nodes_of_two(path: Path, *, members: int = 1) -> RunFolder:
    """Each member on 2 nodes × 2 ranks, whose collectives counted what they sent."""
    shape = Shape(members, degree=4, nodes=2 * members, slots=2, operations=OPERATIONS)
    run = write_synthetic_run(path, shape)
    count_traffic(run, members=members)
    return run


def count_traffic(run: RunFolder, *, members: int) -> None:
    for member in range(members):
        file = run.trial(1).member(member).record
        record = run_folder.read(TrainRecord, file)
        sent = {"inside_node": SENT * record.steps, "between_nodes": SENT * record.steps}
        communication = {
            "mode": "all_reduce",
            "precision": "fp32",
            "bytes": "counted",
            "traffic": sent,
        }
        parallel = record.effective["parallel"] | {"communication": communication}
        run_folder.write(file, replace(record, effective=record.effective | {"parallel": parallel}))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return two_nodes_of_two(tmp_path_factory.mktemp("two") / "run")


def advice_of(placement: RunPlacement) -> dict[str, str]:
    return {advice.change: advice.text for advice in placement.placed[0].advice}


def test_a_member_over_two_nodes_is_bound_by_the_links_between_them(run: RunFolder) -> None:
    placement = place_run(run, roofline())
    (member,) = placement.placed
    assert placement.convention == "matmul"
    assert (member.model, member.nodes, member.ranks) == ("distributed", 2, 4)
    assert placement.traffic_source == "counted"
    between, inside = member.links
    assert (between.scope, inside.scope) == ("between_nodes", "inside_node")
    assert between.bytes_per_step == inside.bytes_per_step == pytest.approx(SENT)
    assert between.coi == inside.coi == pytest.approx(5200)
    # A ring through four ranks: each sends 2 × 3/4 of all gradients, two of them to the other node.
    ring = 2 * 1.5 * 4 * OPERATIONS.parameters
    assert between.analytical_bytes_per_step == pytest.approx(ring)
    assert inside.analytical_bytes_per_step == pytest.approx(ring)
    assert between.analytical_coi == pytest.approx(STEP_OPERATIONS / ring)
    assert between.bytes_per_second == pytest.approx(2 * 2 * 100e6)
    assert inside.bytes_per_second == pytest.approx(4 * 2e9)
    # Eq. 6: min(4 × 1 TFLOPS, 400 MB/s × COI), and no lower by the links inside, 8 GB/s × COI.
    assert member.ceiling_flops == pytest.approx(4e12)
    assert member.attainable_flops == pytest.approx(400e6 * 5200)
    assert (member.bound, member.limit) == ("communication", "links between nodes")
    assert member.flops == pytest.approx(31 * 10 * STEP_OPERATIONS / 20)  # epochs of 2 s
    assert "links between nodes" in pages.sentence(member)


def test_what_would_help_over_two_nodes(run: RunFolder) -> None:
    placement = place_run(run, roofline())
    # By node: 4 ranks × 2 × 1/2 of the whole inside; of its half between. 3 → 4 and 3 → 2.
    assert advice_of(placement)["hierarchical all-reduce"] == (
        "hierarchical all-reduce: COI ×1.5, communication still bounds, at most 1.50×"
    )
    # 4 TFLOPS over 2.08 TFLOPS.
    assert advice_of(placement)["FP16 compression"] == (
        "FP16 compression: COI ×2, bound moves to computation, at most 1.92×"
    )
    (member,) = placement.placed
    advice = next(change for change in member.advice if change.change == "hierarchical all-reduce")
    assert advice.setting == 'communication.mode = "hierarchical"'
    assert advice.gain_at_roof == pytest.approx(1.5)
    assert advice.gain_limit == pytest.approx(1.5 * member.attainable_flops / member.flops)


def test_more_traffic_inside_nodes_takes_back_what_hierarchy_gains(run: RunFolder) -> None:
    """Links inside at 4 × 120 MB/s are nearly as low a roof: ×1.2 now, × 3/4 of that after."""
    slow = replace(INSIDE, seconds=1 / 1.2)
    placement = place_run(run, roofline(slow, BETWEEN))
    assert placement.placed[0].limit == "links between nodes"
    text = advice_of(placement)["hierarchical all-reduce"]
    assert text.endswith("nothing to gain: communication bounds")


def test_an_ensemble_has_the_roofs_of_all_its_nodes(tmp_path: Path) -> None:
    member, ensemble = place_run(two_nodes_of_two(tmp_path / "run", members=2), roofline()).placed
    assert (member.nodes, member.ranks) == (2, 4)
    assert (ensemble.model, ensemble.nodes, ensemble.ranks) == ("distributed", 4, 8)
    assert ensemble.ceiling_flops == pytest.approx(8e12)
    assert ensemble.attainable_flops == pytest.approx(2 * 400e6 * 5200)
    assert ensemble.limit == "links between nodes"


def test_links_between_nodes_that_were_not_measured_are_no_roof(run: RunFolder) -> None:
    placement = place_run(run, roofline(INSIDE))
    (member,) = placement.placed
    assert (member.bound, member.limit) == ("not known", "not known")
    assert any("links between nodes carry traffic" in warning for warning in placement.warnings)
    assert "hierarchical all-reduce" not in advice_of(placement)


def test_nodes_with_unequal_shares_of_a_member_are_placed(tmp_path: Path) -> None:
    """Two ranks on one node and one on the next, which no hierarchy can use."""
    shape = Shape(members=2, degree=3, nodes=3, slots=2, operations=OPERATIONS)
    run = write_synthetic_run(tmp_path / "run", shape)
    count_traffic(run, members=2)
    assert nodes_of_ranks(run_folder.read(Plan, run.plan)) == [0, 0, 1]
    placement = place_run(run, roofline())
    assert placement.placed[0].limit == "links between nodes"
    assert "FP16 compression" in advice_of(placement)
    assert "hierarchical all-reduce" not in advice_of(placement)
