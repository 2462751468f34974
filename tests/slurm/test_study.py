"""A study whose points are jobs of a real Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.running import ON_SLURM, Submit, arguments


@pytest.mark.long
def test_repeatability_on_virtual_nodes(
    cluster: Cluster, submit: Submit, shared_store: Path, shared_folder: Path
) -> None:
    words = ("study", "repeatability", "--seeds", "2", "--out", shared_folder / "study")
    command = submit(cluster, *words, *arguments(shared_store, ON_SLURM))
    assert command.wait() == 0, command.err
    result = json.loads((shared_folder / "study" / "result.json").read_text())
    first, second = result["points"]
    assert first["score"]["operations"] == second["score"]["operations"]
    assert first["score"]["seed"] != second["score"]["trials"][0]["seed"]
    # Nobody can look at the nodes beforehand, but their events tell that they are one host.
    assert first["busy_share"] is None
    assert any("nodes are parts of 1 host" in doubt for doubt in first["doubts"])
