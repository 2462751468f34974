"""Cost of the Data Sampler at the papers' size: 1 281 167 samples, up to 1000 members.

    python benchmarks/sampler.py

Each ensemble runs in a process of its own for its peak memory. Members are drawn, written as
manifests to a temporary folder and overwritten. Growth is judged by processor time, which other
processes do not affect.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ai500.bagging.data_sampler import SAMPLERS
from ai500.data.bootstrap import epoch_order, save_bootstrap

SAMPLES = 1_281_167
ENSEMBLES = (125, 250, 500, 1000)


@dataclass(frozen=True)
class Cost:
    members: int
    seconds: float
    draw_cpu_seconds: float
    save_cpu_seconds: float
    memory_growth_bytes: int
    manifest_bytes: int

    @property
    def cpu_seconds(self) -> float:
        return self.draw_cpu_seconds + self.save_cpu_seconds


def peak_memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(algorithm: str, members: int) -> Cost:
    """Draw and save the bootstraps of one ensemble."""
    before_bytes = peak_memory_bytes()
    start_time = time.perf_counter()
    draw_cpu_seconds = save_cpu_seconds = 0.0
    manifest_bytes = 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "member.bootstrap"
        for member in range(members):
            start = time.process_time()
            counts = SAMPLERS[algorithm].draw(SAMPLES, seed=0, member=member)
            drawn = time.process_time()
            save_bootstrap(file, counts, algorithm=algorithm, seed=0, member=member)
            draw_cpu_seconds += drawn - start
            save_cpu_seconds += time.process_time() - drawn
            manifest_bytes += file.stat().st_size
    return Cost(
        members=members,
        seconds=time.perf_counter() - start_time,
        draw_cpu_seconds=draw_cpu_seconds,
        save_cpu_seconds=save_cpu_seconds,
        memory_growth_bytes=peak_memory_bytes() - before_bytes,
        manifest_bytes=manifest_bytes,
    )


def measure_order() -> float:
    """Return the seconds for the order of one epoch of one member."""
    counts = SAMPLERS["bootstrap"].draw(SAMPLES, seed=0, member=0)
    start = time.perf_counter()
    epoch_order(counts, seed=0, member=0, epoch=0)
    return time.perf_counter() - start


def show(algorithm: str, costs: list[Cost], console: Console) -> None:
    table = Table(title=f"{algorithm}: {SAMPLES:,} samples")
    for heading in (
        "members",
        "seconds",
        "draw CPU ms/member",
        "save CPU ms/member",
        "peak memory growth MB",
        "manifest bytes/member",
        "bits/sample",
    ):
        table.add_column(heading, justify="right")
    for cost in costs:
        table.add_row(
            str(cost.members),
            f"{cost.seconds:.2f}",
            f"{cost.draw_cpu_seconds / cost.members * 1e3:.2f}",
            f"{cost.save_cpu_seconds / cost.members * 1e3:.2f}",
            f"{cost.memory_growth_bytes / 1e6:.1f}",
            f"{cost.manifest_bytes / cost.members:,.0f}",
            f"{cost.manifest_bytes * 8 / cost.members / SAMPLES:.3f}",
        )
    console.print(table)
    first = costs[0]
    for cost in costs[1:]:
        times = cost.members / first.members
        console.print(
            f"  time({cost.members}) / time({first.members}) / {times:.0f} = "
            f"{cost.cpu_seconds / first.cpu_seconds / times:.3f} by processor time, "
            f"{cost.seconds / first.seconds / times:.3f} by the clock (1 is linear)"
        )


def main() -> None:
    console = Console(width=120)
    # One process per ensemble: the peak memory of a process never decreases.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for algorithm in SAMPLERS:
            pool.apply(measure, (algorithm, 10))
            costs = [pool.apply(measure, (algorithm, members)) for members in ENSEMBLES]
            show(algorithm, costs, console)
        console.print(f"order of one epoch: {pool.apply(measure_order) * 1e3:.0f} ms per member")


if __name__ == "__main__":
    main()
