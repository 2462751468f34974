"""The site of a synthetic list, and readers of its pages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Page

from ai500.ranking.entries import Entry
from ai500.ranking.standings import by_list, standings
from tests.support.synthetic_list import entry

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"
FORMULA = '=HYPERLINK("x")'
ENTRIES = [
    *(entry(number) for number in range(400)),
    entry(400, system=HOSTILE, organization=HOSTILE, accelerator=HOSTILE, vflops=1e12),
    entry(405, system=FORMULA, vflops=1.1e12),
    # Each lies exactly between two shorter numbers.
    entry(406, system="Halves", vflops=1.0625e15, time_to_quality_seconds=2.25, quality=0.78125),
]
BY_ID = {listed.id: listed for listed in ENTRIES}
LISTS = by_list(ENTRIES)
FIRST = next(iter(LISTS))
STANDINGS = standings(ENTRIES)
PAGES = [
    "index.html", "compare.html", f"compare.html#a={ENTRIES[0].id}&b={ENTRIES[400].id}",
    "charts.html", "history.html", "rejected.html", "about.html", f"entries/{ENTRIES[400].id}.html",
]  # fmt: skip
ROW_IDS = """() => [...document.querySelectorAll('#list tbody a')]
  .map(link => link.getAttribute('href').match(/[0-9a-f]{16}/)[0])"""
INKS = """() => Object.fromEntries([...document.querySelectorAll('main *, nav *')]
  .filter(one => one.checkVisibility() && [...one.childNodes].some(
    node => node.nodeType === 3 && node.data.trim()))
  .map(one => {
    let behind = one;
    const back = () => getComputedStyle(behind).backgroundColor;
    while (behind.parentElement && back() === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
    const style = getComputedStyle(one);
    const ink = one.closest('svg') ? style.fill : style.color;
    return [`${ink}|${back()}`, `${one.tagName}.${one.getAttribute('class')}`];
  }))"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a site on this machine; yield its address."""
    handler = partial(Quiet, directory=str(folder.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/{folder.name.replace(' ', '%20')}"
        running.shutdown()


def rows(page: Page) -> list[Entry]:
    ids: list[str] = page.evaluate(ROW_IDS)
    return [BY_ID[entry_id] for entry_id in ids]


def cells(page: Page, label: str) -> list[str]:
    return page.locator(f'#list tbody td[data-label="{label}"]').all_inner_texts()


def best(key: tuple[str, str, str]) -> list[Entry]:
    """Return the ranked entries of a list, best first."""
    return [listed for listed in LISTS[key] if STANDINGS[listed.id].rank is not None]


def visit(page: Page, root: str) -> Iterator[str]:
    """Visit one page of each kind; yield its address once it is complete."""
    for where in PAGES:
        page.goto("about:blank")  # a change of the hash alone loads nothing
        page.goto(f"{root}/{where}")
        if "#" in where:
            page.locator("#result h2").nth(10).wait_for()
        yield where
