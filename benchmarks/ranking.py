"""Cost of the list: building a site of 1,000 and of 10,000 entries, reading, and searching it.

    python benchmarks/ranking.py

Entries are synthetic and have a page of the size that a real submission's has. Each site is
built in a process of its own, so that its peak memory is its own; growth is judged by processor
time: the clock also sees what else runs on the machine. What a person waits for is measured in
a real Chromium on the largest list: from a key press in the search field to the painted list.
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
from tests.browser.test_report import ARGUMENTS, CHROMIUM
from tests.support.synthetic_list import entry, ranked, submission

from ai500.ranking.entries import Ranked
from ai500.ranking.read import find_submissions, read_submissions
from ai500.ranking.site import build

SIZES = (1_000, 10_000)
SUBMISSIONS = 50
LARGEST_GROWTH = 1.2
LONGEST_KEY_MILLISECONDS = 100.0

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
Waits = dict[str, list[tuple[float, float]]]
"""Action → milliseconds of the page's thread, and until the list was painted, each time."""


@dataclass(frozen=True)
class Cost:
    """What a site of so many entries took."""

    entries: int
    seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    list_bytes: int
    site_bytes: int


def page_of(one: Path) -> str:
    """The body of a real submission's page."""
    (read,) = read_submissions(one.parent, [one])
    assert isinstance(read, Ranked), read
    return read.body


def build_one(entries: int, body: str, out: Path) -> Cost:
    """Build one site."""
    began, cpu_began = time.perf_counter(), time.process_time()
    build((ranked(entry(n), body) for n in range(entries)), out, title="Synthetic list")
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return Cost(
        entries=entries,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        list_bytes=(out / "data" / "list.js").stat().st_size,
        site_bytes=sum(path.stat().st_size for path in out.rglob("*") if path.is_file()),
    )


def cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def reading_rate(folder: Path) -> float:
    """Submissions read, recomputed, judged and drawn per second of processor time."""
    for number in range(SUBMISSIONS):
        submission(
            folder, f"{number:03d}", epoch_seconds=1.0 + 0.01 * number, edition="2026-11",
            system_name=f"Synthetic {number}",
        )  # fmt: skip
    began = cpu_seconds()
    read = list(read_submissions(folder, find_submissions(folder)))
    seconds = cpu_seconds() - began
    assert all(isinstance(one, Ranked) for one in read), read
    return len(read) / seconds


class Timer:
    """Runs an action in the page; its cost as processor time, which other programs don't change."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def _cpu_seconds(self) -> float:
        told = self._session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in told if one["name"] == "TaskDuration"))

    def __call__(self, action: str, argument: str) -> tuple[float, float]:
        before = self._cpu_seconds()
        painted = float(self._page.evaluate(action, argument))
        return 1000 * (self._cpu_seconds() - before), painted


def in_browser(site: Path) -> tuple[float, Waits]:
    """Milliseconds until the list of everything is shown, and of each action on it."""
    texts = ["s", "sy", "synthetic", "synthetic 0", "mi300", "", "sample a100", "zzz", "", "0012"]
    keys = ["vflops", "system", "flops_per_watt", "edition", "accelerator", "system_scale"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page()
        page.goto(f"{site.as_uri()}/index.html#workload=*&problem_class=*&level=*&every=1")
        ready = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        loaded = float(page.evaluate(ready))
        timed = Timer(page)
        found = {"type in the search": [timed(TYPE, text) for text in texts * 2]}
        timed(TYPE, "")
        found["sort, first time"] = [timed(SORT, key) for key in keys]
        found["sort, again"] = [timed(SORT, key) for key in keys]
        browser.close()
    return loaded, found


def main() -> int:
    """Measure, print, and say whether the aims are met."""
    console = Console(width=80, highlight=False)
    with tempfile.TemporaryDirectory(prefix="ai500-ranking-") as scratch:
        folder = Path(scratch)
        (folder / "submissions").mkdir()
        rate = reading_rate(folder / "submissions")
        console.print(f"reading: {rate:.1f} submissions (2 members, 3 trials) per CPU second")
        body = page_of(folder / "submissions" / "000.ai500")
        costs = []
        for size in SIZES:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                costs.append(pool.apply(build_one, (size, body, folder / f"{size}")))
        show_costs(console, costs)
        small, large = costs
        growth = large.cpu_seconds / small.cpu_seconds / (large.entries / small.entries)
        console.print(f"growth of CPU time against linear: {growth:.2f} (aim ≤ {LARGEST_GROWTH})")
        memory = large.peak_memory_bytes / small.peak_memory_bytes
        console.print(f"growth of peak memory: {memory:.2f}")
        loaded, found = in_browser(folder / f"{large.entries}")
    console.print(f"{large.entries:,} entries: page ready after {loaded:.0f} ms")
    slowest = show_waits(console, found)
    aim = f"aim < {LONGEST_KEY_MILLISECONDS:.0f} ms"
    console.print(f"from key press to list, slowest: {slowest:.1f} ms of CPU ({aim})")
    return 0 if growth <= LARGEST_GROWTH and slowest < LONGEST_KEY_MILLISECONDS else 1


def show_costs(console: Console, costs: list[Cost]) -> None:
    """A row for each size."""
    table = Table(box=None)
    for name in ("entries", "s", "CPU s", "ms/entry", "peak MB", "list.js MB", "site MB"):
        table.add_column(name, justify="right")
    for one in costs:
        table.add_row(
            f"{one.entries:,}", f"{one.seconds:.2f}", f"{one.cpu_seconds:.2f}",
            f"{1000 * one.cpu_seconds / one.entries:.2f}", f"{one.peak_memory_bytes / 1e6:.0f}",
            f"{one.list_bytes / 1e6:.2f}", f"{one.site_bytes / 1e6:.0f}",
        )  # fmt: skip
    console.print(table)


def show_waits(console: Console, found: Waits) -> float:
    """Medians of each action; the slowest key press in milliseconds of processor time."""
    table = Table(box=None)
    for name in ("action", "times", "CPU ms", "slowest", "painted ms", "slowest"):
        table.add_column(name, justify="left" if name == "action" else "right")
    for action, times in found.items():
        cpu, painted = zip(*times, strict=True)
        table.add_row(
            action, f"{len(times)}", f"{statistics.median(cpu):.1f}", f"{max(cpu):.1f}",
            f"{statistics.median(painted):.1f}", f"{max(painted):.1f}",
        )  # fmt: skip
    console.print(table)
    return max(cpu for cpu, _ in found["type in the search"])


if __name__ == "__main__":
    sys.exit(main())
