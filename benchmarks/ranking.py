"""Cost of the list: building a site of 1,000 and of 10,000 entries, reading, and searching it.

    python benchmarks/ranking.py

Entries are synthetic, each with a page of the size of a real submission's. Each site is built in a
process of its own for its peak memory; growth is judged by processor time, which other processes do
not affect. User latency is measured in a real Chromium on the largest list: from a key press in the
search field to the painted list.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":  # the repository's root, for the tests' entries
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table
from tests.support.chromium import ARGUMENTS, CHROMIUM
from tests.support.synthetic_list import entry, judged, ranked, submission

from ai500.ranking.entries import Ranked
from ai500.ranking.site import build

SIZES = (1_000, 10_000)
SUBMISSIONS = 50
MAX_GROWTH = 1.2
MAX_KEY_MILLISECONDS = 100.0

PAINTED = """
  const began = performance.now();
  act();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
"""
TYPE = f"""text => new Promise(done => {{
  const search = document.getElementById('search');
  search.value = text;
  const act = () => search.dispatchEvent(new Event('input', {{ bubbles: true }}));
  {PAINTED}
}})"""
SORT = f"""key => new Promise(done => {{
  const button = document.querySelector(`#list th[data-key="${{key}}"] button`);
  const act = () => button.click();
  {PAINTED}
}})"""
# Action → milliseconds of the page's thread, and until the list was painted, each time.
Latencies = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class Cost:
    """Time and sizes of building a site."""

    entries: int
    seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    list_bytes: int
    site_bytes: int


def submission_body(path: Path) -> str:
    """Return the body of a real submission's page."""
    (read,) = judged(path.parent)
    assert isinstance(read, Ranked), read
    return read.body


def build_site(entries: int, body: str, out: Path) -> Cost:
    """Build one site."""
    start, cpu_start = time.perf_counter(), time.process_time()
    build((ranked(entry(n), body) for n in range(entries)), out, title="Synthetic list")
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    return Cost(
        entries=entries,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        list_bytes=(out / "data" / "list.js").stat().st_size,
        site_bytes=sum(path.stat().st_size for path in out.rglob("*") if path.is_file()),
    )


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its finished children."""
    return sum(os.times()[:4])


def reading_rate(folder: Path) -> float:
    """Return submissions read, recomputed, judged and drawn per second of processor time."""
    for number in range(SUBMISSIONS):
        submission(
            folder, f"{number:03d}", epoch_seconds=1.0 + 0.01 * number, edition="2026-11",
            system_name=f"Synthetic {number}",
        )  # fmt: skip
    start = cpu_seconds()
    results = judged(folder)
    seconds = cpu_seconds() - start
    assert all(isinstance(result, Ranked) for result in results), results
    return len(results) / seconds


class Timer:
    """Runs an action in the page and returns its processor time and the time until painted."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def _cpu_seconds(self) -> float:
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return float(
            next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
        )

    def __call__(self, action: str, argument: str) -> tuple[float, float]:
        before = self._cpu_seconds()
        painted = float(self._page.evaluate(action, argument))
        return 1000 * (self._cpu_seconds() - before), painted


def measure_browser(site: Path) -> tuple[float, Latencies]:
    """Return milliseconds until the full list is shown, and of each action on it."""
    texts = ["s", "sy", "synthetic", "synthetic 0", "mi300", "", "sample a100", "zzz", "", "0012"]
    keys = ["vflops", "system", "flops_per_watt", "edition", "accelerator", "system_scale"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page()
        page.goto(f"{site.as_uri()}/index.html#workload=*&problem_class=*&level=*&every=1")
        ready = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        loaded = float(page.evaluate(ready))
        timer = Timer(page)
        latencies = {"type in the search": [timer(TYPE, text) for text in texts * 2]}
        timer(TYPE, "")
        latencies["sort, first time"] = [timer(SORT, key) for key in keys]
        latencies["sort, again"] = [timer(SORT, key) for key in keys]
        browser.close()
    return loaded, latencies


def main() -> int:
    """Measure and print; return 1 if a goal is missed."""
    console = Console(width=80, highlight=False)
    with tempfile.TemporaryDirectory(prefix="ai500-ranking-") as scratch:
        folder = Path(scratch)
        (folder / "submissions").mkdir()
        rate = reading_rate(folder / "submissions")
        console.print(f"reading: {rate:.1f} submissions (2 members, 3 trials) per CPU second")
        body = submission_body(folder / "submissions" / "000.ai500")
        costs = []
        for size in SIZES:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                costs.append(pool.apply(build_site, (size, body, folder / f"{size}")))
        show_costs(console, costs)
        small, large = costs
        growth = large.cpu_seconds / small.cpu_seconds / (large.entries / small.entries)
        console.print(f"growth of CPU time against linear: {growth:.2f} (aim ≤ {MAX_GROWTH})")
        memory = large.peak_memory_bytes / small.peak_memory_bytes
        console.print(f"growth of peak memory: {memory:.2f}")
        loaded, latencies = measure_browser(folder / f"{large.entries}")
    console.print(f"{large.entries:,} entries: page ready after {loaded:.0f} ms")
    slowest = show_latencies(console, latencies)
    aim = f"aim < {MAX_KEY_MILLISECONDS:.0f} ms"
    console.print(f"from key press to list, slowest: {slowest:.1f} ms of CPU ({aim})")
    return 0 if growth <= MAX_GROWTH and slowest < MAX_KEY_MILLISECONDS else 1


def show_costs(console: Console, costs: list[Cost]) -> None:
    """Print a row for each size."""
    table = Table(box=None)
    for name in ("entries", "s", "CPU s", "ms/entry", "peak MB", "list.js MB", "site MB"):
        table.add_column(name, justify="right")
    for cost in costs:
        table.add_row(
            f"{cost.entries:,}", f"{cost.seconds:.2f}", f"{cost.cpu_seconds:.2f}",
            f"{1000 * cost.cpu_seconds / cost.entries:.2f}", f"{cost.peak_memory_bytes / 1e6:.0f}",
            f"{cost.list_bytes / 1e6:.2f}", f"{cost.site_bytes / 1e6:.0f}",
        )  # fmt: skip
    console.print(table)


def show_latencies(console: Console, latencies: Latencies) -> float:
    """Print medians of each action; return the slowest key press in ms of processor time."""
    table = Table(box=None)
    for name in ("action", "times", "CPU ms", "slowest", "painted ms", "slowest"):
        table.add_column(name, justify="left" if name == "action" else "right")
    for action, times in latencies.items():
        cpu, painted = zip(*times, strict=True)
        table.add_row(
            action, f"{len(times)}", f"{statistics.median(cpu):.1f}", f"{max(cpu):.1f}",
            f"{statistics.median(painted):.1f}", f"{max(painted):.1f}",
        )  # fmt: skip
    console.print(table)
    return max(cpu for cpu, _ in latencies["type in the search"])


if __name__ == "__main__":
    sys.exit(main())
