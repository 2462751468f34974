"""Mutate single expressions of the source at random; print the share that the unit tests detect.

`make mutation MUTANTS=70 SEED=1`. The mutants of a package are drawn with a seed and tested by
those tests that mirror the package and execute the mutated function. A mutant survives if all of
them pass. One that changes no behaviour is listed in `equivalent.toml` with its reason, and not
counted.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.mutation import detection
from tests.mutation.mutants import PACKAGES, SOURCE, Mutant, Package, draw, equivalent


def try_mutants(
    package: Package, sample: list[Mutant], tree: Path, *, work: Path
) -> tuple[int, int]:
    """Print each mutant's fate; return how many were detected, of how many."""
    began, detected = time.monotonic(), 0
    for verdict in detection.judge(package, sample, tree, work=work):
        detected += verdict.detected
        print(f"  {'detected' if verdict.detected else 'SURVIVES'}: {verdict.mutant}", flush=True)
        print(f"    {verdict.reason if verdict.detected else verdict.mutant.key}", flush=True)
    seconds = time.monotonic() - began
    print(f"{package.name}: {detected} of {len(sample)} ({seconds:.0f} s)", flush=True)
    return detected, len(sample)


def main() -> int:
    """Test the mutants and print the shares."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--mutants", type=int, default=70, help="in all, the same of each package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", nargs="*", help="only these")
    parser.add_argument("--list", action="store_true", help="print the mutants, test none")
    arguments = parser.parse_args()
    reviewed = equivalent()
    packages = [p for p in PACKAGES if not arguments.packages or p.name in arguments.packages]
    each = -(-arguments.mutants // len(PACKAGES))
    samples = {package: draw(package, count=each, seed=arguments.seed) for package in packages}
    if arguments.list:
        print(*(mutant for sample in samples.values() for mutant in sample), sep="\n")
        return 0
    detection.preload()
    totals = [0, 0]
    with tempfile.TemporaryDirectory(prefix="ai500-mutation-") as name:
        tree = Path(shutil.copytree(SOURCE, Path(name) / "src"))
        for package, sample in samples.items():
            counted = [mutant for mutant in sample if mutant.key not in reviewed]
            detected, tried = try_mutants(package, counted, tree, work=Path(name))
            totals = [totals[0] + detected, totals[1] + tried]
    left_out = sum(map(len, samples.values())) - totals[1]
    print(
        f"detected: {totals[0]} of {totals[1]} ({totals[0] / totals[1]:.0%}), "
        f"{left_out} equivalent ones not counted, seed {arguments.seed}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
