"""The roofline of a real Slurm cluster: kernels on a node, links inside nodes and between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.records import run_folder
from ai500.roofline.links import node_bandwidth
from ai500.roofline.records import RooflineRecord
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import Submit


@pytest.mark.long
def test_one_job_measures_kernels_and_links(
    cluster: Cluster, submit: Submit, shared_folder: Path
) -> None:
    out = shared_folder / "a roofline.json"
    command = submit(
        cluster, "roofline", "--scheduler", "slurm", "--out", out, "--precision", "fp32",
        "--seconds", "2", "--set", "system.nodes=2", "--set", "system.cores_per_slot=1",
    )  # fmt: skip
    assert command.wait(400) == 0, command.err + _log(out)
    record = run_folder.read(RooflineRecord, out)
    assert record.complete
    assert record.system.hostname in cluster.names
    assert {result.kernel for result in record.kernels} == {"gemm", "conv"}
    assert record.unavailable == ()
    scopes = {(link.scope, link.kind) for link in record.links}
    assert len(scopes) == 4
    inside, between = (
        {(link.ranks, link.groups) for link in record.links
         if link.scope == scope and link.kind == "all_reduce"}
        for scope in ("inside_node", "between_nodes")
    )  # fmt: skip
    assert inside == {(2, 1)}  # the two ranks of a node
    assert between == {(2, 2)}  # a rank of each node, twice side by side
    assert node_bandwidth(record, "between_nodes")
    assert out.with_suffix(".svg").exists()
    assert "between nodes" in command.out


def _log(out: Path) -> str:
    log = out.with_suffix(".job") / "log.txt"
    return log.read_text() if log.exists() else "no log"
