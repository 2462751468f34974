"""Error of simulating a part of a large member's nodes that stands for all (projection/traffic.py).

    python benchmarks/projection_folding.py [--nodes 2048] [--only torus]

Every communication mode on the shipped systems and on three-dimensional tori: seconds of the part
that a projection simulates, over those of a simulation of all nodes. A torus whose sides are equal
is the worst case of its folding, and a number of nodes that fills no block another. Exit code 1 if
an error is beyond the bound that docs/projection.md states.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from ai500.projection import platform, simulator, traffic

MODES = ("all_reduce", "hierarchical", "torus_2d", "double_binary_tree", "butterfly",
         "parameter_server")  # fmt: skip
BYTES, RANKS = 100e6, 8
"""Buffer, and ranks of a node."""
TORUS_NODES = (1728, 2048, 2053)
"""12 × 12 × 12, 16 × 16 × 8, and a prime number."""
BOUND, TORUS_BOUND = 0.05, 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=2048, help="of the shipped systems")
    parser.add_argument("--only", help="name of a system, or torus")
    options = parser.parse_args()
    systems = {name: platform.read(name) for name in platform.SHIPPED}
    torus = replace(systems["frontier"], rails=1, topology=platform.Topology("torus"))
    cases = [(name, system, options.nodes, BOUND) for name, system in systems.items()]
    cases += [("torus", torus, nodes, TORUS_BOUND) for nodes in TORUS_NODES]
    missed = []
    for name, system, count, bound in cases:
        if options.only not in (None, name):
            continue
        nodes = [rank // RANKS for rank in range(RANKS * count)]
        folded = platform.folded_nodes(system, count)
        for mode in MODES:
            part, whole = (
                simulator.collective_seconds(
                    system,
                    nodes,
                    [traffic.rounds(mode, nodes, buffer=BYTES, library=True, most_nodes=most)],
                )[0]
                for most in (folded, None)
            )
            error = part / whole - 1
            print(f"{name:<18} {folded:>5} of {count:<5} {mode:<19}{error:>+7.1%}", flush=True)
            if abs(error) > bound:
                missed.append(f"{name}, {count} nodes, {mode}")
    if missed:
        raise SystemExit(f"error beyond the bound: {'; '.join(missed)}")
    print(f"all within {BOUND:.0%}, on a torus within {TORUS_BOUND:.0%}")


if __name__ == "__main__":
    main()
