"""Print the lowest declared version of each dependency, as constraints of pip.

    python tests/lowest.py > constraints.txt

Test tools are left out: they run the tests and are no part of `ai500`. torch is left out too: its
lowest version, 2.9, is published as a CPU build on an index of its own, which the project does not
name; the tests take the newest allowed version.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("nvidia", "parquet", "sign")
NOT_PINNED = ("torch",)


def lowest() -> list[str]:
    """Return `name==version` for each dependency, by its `>=`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(each for name in EXTRAS for each in extras[name])]
    pins = []
    for requirement in declared:
        match = re.match(r"([\w-]+)>=([\w.]+)", requirement)
        assert match is not None, f"{requirement}: no lowest version"
        name, version = match.groups()
        if name not in NOT_PINNED:
            pins.append(f"{name}=={version}")
    return pins


if __name__ == "__main__":
    print("\n".join(lowest()))
