"""How a search grows with its workers, and how long accelerators wait between two trainings.

    python benchmarks/automl.py [--class smoke] [--workers 1 2] [--minutes 1] [--repeats 1]

Searches with so many workers at once, for the same time: of `smoke` with one core each, of the
other classes with one accelerator each. Judged by operations in that time, counted once however
they were done: two workers should do about twice what one does, where the machine has the cores
(it says how many there are, and their load). Beside it the idle share between trainings.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from ai500.records import Score, run_folder
from ai500.records.run_folder import RunFolder


def searched(problem_class: str, workers: int, *, minutes: float, seed: int, folder: Path) -> Score:
    """One search to its end, as a user starts it."""
    settings: dict[str, object] = {
        "workload": "automl",
        "problem_class": problem_class,
        "automl.minutes": minutes,
        "run.seed": seed,
        "ensemble.size": workers,
        "parallel.degree": 1,
    }
    if problem_class == "smoke":
        settings |= {"system.accelerators_per_node": workers, "system.cores_per_slot": 1}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    run = folder / f"{workers}-{seed}"
    command = [sys.executable, "-m", "ai500", "run", "--out", str(run), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return run_folder.read(Score, RunFolder(run).score)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--class", dest="problem_class", default="smoke")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=1)
    wanted = parser.parse_args()
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"{wanted.problem_class}: {cores} cores, load {load:.1f}; {wanted.minutes:g} min each")
    print(f"{'workers':>7}  {'operations':>12}  {'ratio':>6}  {'models':>6}  {'idle':>6}  error")
    first: float | None = None
    with tempfile.TemporaryDirectory(prefix="ai500-automl-") as folder:
        for workers in wanted.workers:
            scores = [
                searched(
                    wanted.problem_class,
                    workers,
                    minutes=wanted.minutes,
                    seed=seed,
                    folder=Path(folder),
                )
                for seed in range(1, wanted.repeats + 1)
            ]
            done = fmean(score.operations + score.validation_operations for score in scores)
            first = first or done
            told = [score.search for score in scores if score.search is not None]
            print(
                f"{workers:>7}  {done:>12.4g}  {done / first:>6.2f}  "
                f"{fmean(one.models for one in told):>6.1f}  "
                f"{fmean(one.idle_between_trainings for one in told):>6.2%}  "
                f"{fmean(score.ensemble_quality for score in scores):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
