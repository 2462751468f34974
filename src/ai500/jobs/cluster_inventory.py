"""Describe the nodes of a cluster: `srun` starts this module on each of them."""

from __future__ import annotations

import json
import re

from ai500.config import Config
from ai500.core import schema
from ai500.core.errors import EnvironmentLacksError
from ai500.inventory.description import NodeDescription
from ai500.inventory.node import describe as describe_node
from ai500.jobs.schedulers.slurm_commands import run_slurm
from ai500.jobs.trial_jobs import python_of
from ai500.records import Cluster

LONGEST_WAIT_SECONDS = 600.0
PIECE_SIZE = 800  # characters: srun cuts and interleaves longer lines


def describe(config: Config, cluster: Cluster) -> list[NodeDescription]:
    """Describe every usable node of the partition, by a process on it."""
    count = len(cluster.nodes)
    words = ["srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--mpi=none"]
    words += [f"--partition={cluster.partition}", f"--nodelist={','.join(cluster.nodes)}"]
    slurm = config.slurm
    if cluster.accelerators_per_node and slurm.gpus_per_task:
        # A step sees only the GPUs that it requested.
        words.append(f"--gpus-per-node={cluster.accelerators_per_node}")
    options = {"account": slurm.account, "qos": slurm.qos, "reservation": slurm.reservation}
    words += [f"--{name}={value}" for name, value in options.items() if value is not None]
    words += ["--time=5", "--quiet", python_of(config), "-m", "ai500.jobs.cluster_inventory"]
    nodes = read_printed(run_slurm(words, timeout=LONGEST_WAIT_SECONDS))
    if len(nodes) != count:
        raise EnvironmentLacksError(
            f"only {len(nodes)} of {count} nodes returned a description.",
            key="slurm.python",
            value=python_of(config),
            remedy=f"Check that {python_of(config)} with ai500 is on all nodes, or set "
            "slurm.python.",
        )
    return nodes


def printed(node: NodeDescription) -> list[str]:
    """Split a description into lines that srun forwards unbroken."""
    text = json.dumps(schema.encode(node))
    pieces = [text[first : first + PIECE_SIZE] for first in range(0, len(text), PIECE_SIZE)]
    last = len(pieces) - 1
    return [f"{node.hostname} {index}/{last} {piece}" for index, piece in enumerate(pieces)]


def read_printed(text: str) -> list[NodeDescription]:
    """Join the lines of many nodes, in any order, into descriptions."""
    pieces: dict[str, dict[int, str]] = {}
    expected: dict[str, int] = {}
    for line in text.splitlines():
        match = re.match(r"(\S+) (\d+)/(\d+) (.*)", line)
        if match is not None:
            pieces.setdefault(match[1], {})[int(match[2])] = match[4]
            expected[match[1]] = int(match[3]) + 1
    return [
        schema.decode(NodeDescription, json.loads("".join(parts[index] for index in sorted(parts))))
        for host, parts in pieces.items()
        if len(parts) == expected[host]
    ]


if __name__ == "__main__":  # on a node, started by srun, which collects the output
    print("\n".join(printed(describe_node())))
