"""The nodes of a cluster, each asked through Slurm to describe itself."""

from __future__ import annotations

import json
import re

from ai500.config import Config
from ai500.core import schema
from ai500.core.errors import EnvironmentLacksError
from ai500.inventory.description import NodeDescription
from ai500.inventory.node import describe as describe_node
from ai500.jobs.scheduler_context import python_of
from ai500.jobs.schedulers.slurm_commands import run_slurm
from ai500.records import Cluster

LONGEST_WAIT_SECONDS = 600.0
PIECE = 800


def describe(config: Config, cluster: Cluster) -> list[NodeDescription]:
    """Every usable node of the partition, each told by a process on it."""
    count = len(cluster.nodes)
    words = ["srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--mpi=none"]
    words += [f"--partition={cluster.partition}", f"--nodelist={','.join(cluster.nodes)}"]
    slurm = config.slurm
    if cluster.accelerators_per_node and slurm.gpus_per_task:
        # A step sees only what it asked for.
        words.append(f"--gpus-per-node={cluster.accelerators_per_node}")
    chosen = {"account": slurm.account, "qos": slurm.qos, "reservation": slurm.reservation}
    words += [f"--{name}={value}" for name, value in chosen.items() if value is not None]
    words += ["--time=5", "--quiet", python_of(config), "-m", "ai500.jobs.cluster_inventory"]
    found = read_printed(run_slurm(words, timeout=LONGEST_WAIT_SECONDS))
    if len(found) != count:
        raise EnvironmentLacksError(
            f"{len(found)} of {count} nodes described themselves. Is {python_of(config)} with "
            "ai500 there on all of them? See slurm.python."
        )
    return found


def printed(node: NodeDescription) -> list[str]:
    """A description as lines that srun passes on whole: it cuts and mixes longer ones."""
    text = json.dumps(schema.encode(node))
    pieces = [text[first : first + PIECE] for first in range(0, len(text), PIECE)]
    last = len(pieces) - 1
    return [f"{node.hostname} {at}/{last} {piece}" for at, piece in enumerate(pieces)]


def read_printed(text: str) -> list[NodeDescription]:
    """The descriptions in lines of many nodes, in whatever order they came."""
    pieces: dict[str, dict[int, str]] = {}
    whole: dict[str, int] = {}
    for line in text.splitlines():
        match = re.match(r"(\S+) (\d+)/(\d+) (.*)", line)
        if match is not None:
            pieces.setdefault(match[1], {})[int(match[2])] = match[4]
            whole[match[1]] = int(match[3]) + 1
    return [
        schema.decode(NodeDescription, json.loads("".join(parts[at] for at in sorted(parts))))
        for host, parts in pieces.items()
        if len(parts) == whole[host]
    ]


if __name__ == "__main__":  # on a node: describe it, for srun to collect
    print("\n".join(printed(describe_node())))
