"""Debian's Chromium, and the checks of every page in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS: list[tuple[int, Any]] = [
    (1280, "screen"), (800, "screen"), (390, "screen"), (680, "print"),
]  # fmt: skip
"""Widths in pixels of a desktop, a tablet, a phone and a sheet of paper, and their medium."""
TEXT_COLLISIONS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')]
      .map(text => [text.textContent, text.getBoundingClientRect()])
      .filter(([content]) => content);
    for (const [content, box] of texts)
      if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
          box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        found.push(`${content} leaves its figure`);
    texts.forEach(([one, a], index) => texts.slice(index + 1).forEach(([other, b]) => {
      // Line boxes are taller than their letters: a pixel or two of them may touch.
      const beside = a.right <= b.left || b.right <= a.left;
      if (!beside && a.top + 2 < b.bottom - 2 && b.top + 2 < a.bottom - 2)
        found.push(`${one} over ${other}`);
    }));
  }
  return found;
}"""

BROKEN_NAMES = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll('table:not(.many) tr > :first-child')) {
    if (!cell.checkVisibility()) continue;
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode());)
      for (const word of node.data.matchAll(/[\\w-]{2,14}/g)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
        if (lines.size > 1 && !word[0].includes('-')) broken.push(word[0]);
      }
  }
  return broken;
}"""
"""Words of 14 letters at most in the first column of a narrow table that stand in two lines."""


def opened(browser: Browser, report: Path, **options: Any) -> Page:
    page = browser.new_page(**options)
    page.goto(report.as_uri())
    return page


def luminance(colour: str) -> float:
    """WCAG's relative luminance of `rgb(r, g, b)`."""
    channels = [int(part) / 255 for part in colour[4:-1].split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink: str, other: str) -> float:
    """WCAG's ratio of contrast."""
    high, low = sorted((luminance(ink), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
