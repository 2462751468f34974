"""`python -m ai500.inventory`: this node as JSON in short numbered lines, for srun to collect."""

from __future__ import annotations

from ai500.inventory.cluster import printed
from ai500.inventory.node import describe

if __name__ == "__main__":
    print("\n".join(printed(describe())))
