"""Scaling of a search with its workers, and idle time of accelerators between two trainings.

    python benchmarks/automl.py [--class smoke] [--workers 1 2] [--minutes 1] [--repeats 1]
        [--at 1.5e12 2.6e12]

Runs searches of equal duration with each number of workers: `smoke` with one core each, other
classes with one accelerator each. Compared: operations in that time, by one counting convention.
Two workers should do about twice the operations of one, if the machine has the cores (their number
and load are printed). Also printed: the idle share between trainings; and of each search its first
round's error and the best one after so many operations (`--at`), which do not depend on the
machine's load as those after a time do: a class's largest error is chosen by them.
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


def run_search(
    problem_class: str, workers: int, *, minutes: float, seed: int, folder: Path
) -> Score:
    """Run one search to its end with the command line."""
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
    arguments = [
        argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")
    ]
    run = folder / f"{workers}-{seed}"
    command = [sys.executable, "-m", "ai500", "run", "--out", str(run), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return run_folder.read(Score, RunFolder(run).score)


def error_after(score: Score, operations: float) -> str:
    """Return the best error that a search of one trial reached in so many operations."""
    search = score.trials[0].search
    assert search is not None
    if score.operations + score.validation_operations < operations:
        return "not reached"
    errors = [point.error for point in search.improvements if point.operations <= operations]
    return f"{errors[-1]:.3f}" if errors else "no model yet"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--class", dest="problem_class", default="smoke")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--at", type=float, nargs="*", default=[])
    options = parser.parse_args()
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"{options.problem_class}: {cores} cores, load {load:.1f}; {options.minutes:g} min each")
    print(f"{'workers':>7}  {'operations':>12}  {'ratio':>6}  {'models':>6}  {'idle':>6}  error")
    first: float | None = None
    with tempfile.TemporaryDirectory(prefix="ai500-automl-") as folder:
        for workers in options.workers:
            scores = [
                run_search(
                    options.problem_class,
                    workers,
                    minutes=options.minutes,
                    seed=seed,
                    folder=Path(folder),
                )
                for seed in range(1, options.repeats + 1)
            ]
            operations = fmean(score.operations + score.validation_operations for score in scores)
            first = first or operations
            searches = [score.search for score in scores if score.search is not None]
            print(
                f"{workers:>7}  {operations:>12.4g}  {operations / first:>6.2f}  "
                f"{fmean(search.models for search in searches):>6.1f}  "
                f"{fmean(search.idle_between_trainings for search in searches):>6.2%}  "
                f"{fmean(score.ensemble_quality for score in scores):.3f}",
                flush=True,
            )
            for seed, score in enumerate(scores, 1):
                assert score.search is not None
                errors = [f"{error_after(score, at)} at {at:.3g}" for at in options.at]
                print(
                    f"  seed {seed}: first round {score.search.initial_error:.3f}; "
                    + "; ".join([*errors, f"{score.ensemble_quality:.3f} at the end"]),
                    flush=True,
                )


if __name__ == "__main__":
    main()
