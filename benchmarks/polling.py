"""Requests to slurmctld while an ensemble is followed, counted by its own `sdiag`.

    python benchmarks/polling.py [--members 200 2000] [--nodes 16] [--seconds 60]

A real Slurm of virtual nodes (tests/support/slurm/cluster.py) with the real job controller; the
members sleep, so that nothing changes. All are submitted; as many run as the nodes hold, four each.
Each size is followed both ways of `scheduler.follow`. Judged: a query is one request for jobs,
whatever the number of members, none is for the whole job table, and events need none.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":  # the repository's root, for the tests' cluster
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tests.jobs.test_polling import requests
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import until
from tests.support.slurm.sleepers import released, sleeping_ensemble

WHOLE_TABLE = "REQUEST_JOB_INFO"
CPUS = 4


@dataclass(frozen=True)
class Requests:
    """Requests that slurmctld had from one way of following."""

    follow: str
    queries: int
    """Queries of the job controller."""
    by_type: dict[str, int]

    @property
    def of_jobs(self) -> int:
        """Number of requests for jobs."""
        return sum(n for name, n in self.by_type.items() if name.startswith("REQUEST_JOB_"))


def main() -> int:
    """Print the requests of each size and way; return 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[200, 2000])
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ai500-polling-", dir="/var/tmp"))
    counted: list[Requests] = []
    try:
        with Cluster(folder / "cluster", nodes=options.nodes, cpus=CPUS) as cluster:
            os.environ.update(cluster.environment)
            for members in options.members:
                for follow in ("queries", "events"):
                    run = folder / f"{members} {follow}"
                    run.mkdir()
                    counted.append(
                        count(run, cluster, members, follow=follow, seconds=options.seconds)
                    )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    claims = {
        "none for the whole job table": not any(WHOLE_TABLE in each.by_type for each in counted),
        # A query may begin just before or after the count.
        "one for jobs in each query": all(
            abs(each.of_jobs - each.queries) <= 1 for each in counted
        ),
        "no query by events": not any(each.queries for each in counted if each.follow == "events"),
    }
    for claim, holds in claims.items():
        print(f"{'holds ' if holds else 'FAILED'}  {claim}")
    return 0 if all(claims.values()) else 1


def count(folder: Path, cluster: Cluster, members: int, *, follow: str, seconds: float) -> Requests:
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
    return Requests(follow, queries, requested)


if __name__ == "__main__":
    sys.exit(main())
