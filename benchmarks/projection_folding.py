"""What it costs that a part of a large member's nodes stands for all (projection/traffic.py).

    python benchmarks/projection_folding.py [--nodes 2048] [--part 512]

Every communication mode on the shipped systems and on a torus: seconds of the part, over those of a
simulation of all nodes. About two minutes.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from ai500.projection import platform, simulator, traffic

MODES = ("all_reduce", "hierarchical", "torus_2d", "double_binary_tree", "butterfly",
         "parameter_server")  # fmt: skip
BYTES, RANKS = 100e6, 8
"""Buffer, and ranks of a node."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=2048)
    parser.add_argument("--part", type=int, default=512)
    options = parser.parse_args()
    systems = {name: platform.read(name) for name in platform.SHIPPED}
    torus = platform.Topology("torus")
    systems["torus"] = replace(systems["frontier"], rails=1, topology=torus)
    nodes = [rank // RANKS for rank in range(RANKS * options.nodes)]
    for name, system in systems.items():
        for mode in MODES:
            part, whole = (
                simulator.collective_seconds(
                    system,
                    nodes,
                    [traffic.rounds(mode, nodes, buffer=BYTES, library=True, most_nodes=most)],
                )[0]
                for most in (options.part, options.nodes + 1)
            )
            print(f"{name:<18} {mode:<19}{part / whole - 1:>+7.1%}", flush=True)


if __name__ == "__main__":
    main()
