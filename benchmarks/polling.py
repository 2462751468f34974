"""Requests to slurmctld while an ensemble is followed, counted by its own `sdiag`.

    python benchmarks/polling.py [--members 200 2000] [--nodes 16] [--seconds 60]

A real Slurm of virtual nodes (tests/support/slurm/cluster.py) with the real job controller; the
members sleep, so that nothing changes. All are submitted; as many run as the nodes hold, four each.
Each size is followed both ways of `scheduler.follow`. Judged: the number of requests does not
depend on the members, none is for the whole job table, and events need none for jobs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":  # the repository's root, for the tests' cluster
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tests.jobs.test_polling import requests
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import until
from tests.support.slurm.sleepers import released, sleeping_ensemble

WHOLE_TABLE = "REQUEST_JOB_INFO"
CPUS = 4


def main() -> int:
    """Print the requests of each size and way; return 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[200, 2000])
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ai500-polling-", dir="/var/tmp"))
    counted: dict[str, list[dict[str, int]]] = {"queries": [], "events": []}
    try:
        with Cluster(folder / "cluster", nodes=options.nodes, cpus=CPUS) as cluster:
            os.environ.update(cluster.environment)
            for members in options.members:
                for follow, counts in counted.items():
                    run = folder / f"{members} {follow}"
                    run.mkdir()
                    counts.append(
                        count(run, cluster, members, follow=follow, seconds=options.seconds)
                    )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    of_jobs = {way: [_of_jobs(each) for each in counts] for way, counts in counted.items()}
    claims = {
        "none for the whole job table": not any(
            WHOLE_TABLE in each for counts in counted.values() for each in counts
        ),
        # A query may begin just before or after the count.
        "as many for all sizes": max(of_jobs["queries"]) - min(of_jobs["queries"]) <= 1,
        "none for jobs by events": not any(of_jobs["events"]),
    }
    for claim, holds in claims.items():
        print(f"{'holds ' if holds else 'FAILED'}  {claim}")
    return 0 if all(claims.values()) else 1


def count(
    folder: Path, cluster: Cluster, members: int, *, follow: str, seconds: float
) -> dict[str, int]:
    """Count the requests of so many seconds in which nothing changes."""
    running = CPUS * len(cluster.names)
    settings = {
        "scheduler.follow": follow, "system.scale": min(running, members),
        "system.accelerators_per_node": CPUS, "scheduler.poll_seconds": None,
    }  # fmt: skip
    ensemble = sleeping_ensemble(folder, python=sys.executable, members=members, **settings)
    with released(ensemble):
        until("start", lambda: len(ensemble.events("job_started")) >= running, timeout=900)
        cluster.run("sdiag", "--reset")
        queries = ensemble.queries
        time.sleep(seconds)
        requested, queries = requests(cluster), ensemble.queries - queries
        shown = {name: n for name, n in sorted(requested.items()) if name.startswith("REQUEST_")}
        print(f"{members:,} members, {follow}: {queries} queries in {seconds:.0f} s: {shown}")
        cluster.run("scancel", "--user=root", "--state=PENDING", timeout=300)
    ensemble.wait(timeout=900)
    return requested


def _of_jobs(requested: dict[str, int]) -> int:
    return sum(n for name, n in requested.items() if name.startswith("REQUEST_JOB_"))


if __name__ == "__main__":
    sys.exit(main())
