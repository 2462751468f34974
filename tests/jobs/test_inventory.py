"""Each node of a real cluster describes itself."""

from __future__ import annotations

import json
import sys

from tests.support.slurm.cluster import Cluster


def test_every_node_describes_itself(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "ai500", "system", "--scheduler", "slurm"]
    description = json.loads(cluster.run(*command, "--json"))
    assert sorted(node["hostname"] for node in description["nodes"]) == cluster.names
    jobs = {node["software"]["scheduler"]["SLURM_JOB_ID"] for node in description["nodes"]}
    assert len(jobs) == 1  # one step over all of them
    shown = cluster.run(*command)
    assert "identical nodes" in shown or ", ".join(cluster.names) in shown
