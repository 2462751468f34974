"""Processor time and memory of `ai500 project` up to 100,000 accelerators.

    python benchmarks/projection_cost.py [--run docs/examples/h200] [--command]

One model over all accelerators, in every communication mode on every shipped system: the most
expensive question there is. Then the whole command, without and with `--sweep` (`--command`: only
that). Seconds are of all processes together: on an idle machine the time is no longer.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from ai500.projection import application, platform
from ai500.projection.model import Projector, Settings

SCALES = (1_000, 10_000, 100_000)
MODES = ("all_reduce", "hierarchical", "torus_2d", "butterfly", "double_binary_tree",
         "parameter_server")  # fmt: skip
SECONDS_GOAL, BYTES_GOAL = 60.0, 4e9


def processor_seconds() -> float:
    """Return the user and system time of this process and of those that ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, default=Path("docs/examples/h200"))
    parser.add_argument("--command", action="store_true", help="only the whole command")
    options = parser.parse_args()
    run = options.run
    work = application.read(run)
    worst = 0.0
    for name in () if options.command else platform.SHIPPED:
        system = platform.read(name)
        for mode in MODES:
            seconds = []
            for scale in SCALES:
                begin = processor_seconds()
                whole = scale - scale % system.accelerators_per_node
                Projector(work, system, Settings(mode=mode)).project(
                    accelerators=whole, degree=whole, whole_epochs=False
                )
                seconds.append(processor_seconds() - begin)
            worst = max(worst, seconds[-1])
            print(f"{name:<18} {mode:<19}" + "".join(f"{value:>8.1f} s" for value in seconds),
                  flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for words in ((), ("--sweep",)):
            begin = processor_seconds()
            command = [sys.executable, "-m", "ai500", "project", "--system", "frontier", "--run",
                       str(run), "--accelerators", "100000", "--out", folder, *words]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True)
            taken = processor_seconds() - begin
            worst = max(worst, taken)
            print(f"ai500 project --accelerators 100000 {' '.join(words)}: {taken:.1f} s")
    own, children = (
        resource.getrusage(who).ru_maxrss * 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(
        f"most processor seconds at 100,000: {worst:.1f}; "
        f"memory {own / 1e9:.2f} + {children / 1e9:.2f} GB"
    )
    if worst > SECONDS_GOAL or own + children > BYTES_GOAL:
        raise SystemExit(f"goal missed: at most {SECONDS_GOAL:.0f} s and {BYTES_GOAL / 1e9:.0f} GB")
    print("goal met")


if __name__ == "__main__":
    main()
