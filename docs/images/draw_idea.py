"""The idea of V3 in one picture: `python docs/images/draw_idea.py` writes idea.svg."""

from __future__ import annotations

from pathlib import Path

INK, SOFT, LINE = "#1f2733", "#5b6675", "#9aa5b1"
COLOURS = ("#2f6fb3", "#2a8c6a", "#b5651d", "#7a4fa3")
WIDTH, HEIGHT, ROW = 920, 466, 84


def text(x: float, y: float, words: str, *, size: int = 14, fill: str = INK, more: str = "") -> str:
    """Words centred at a point."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" text-anchor="middle" {more}>'
        f"{words}</text>"
    )


def box(x: float, y: float, width: float, height: float, *, fill: str, stroke: str) -> str:
    """Draw a rounded rectangle."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="1.5"/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """Draw a curve with an arrowhead, from left to right."""
    bend = (x1 + x2) / 2
    return (
        f'<path d="M{x1:g} {y1:g} C{bend:g} {y1:g} {bend:g} {y2:g} {x2 - 6:g} {y2:g}" fill="none" '
        f'stroke="{LINE}" stroke-width="1.5" marker-end="url(#head)"/>'
    )


def samples(x: float, y: float, counts: tuple[int, ...], colour: str) -> str:
    """Draw a bootstrap: a bar for each sample, its height the repeat count."""
    bars = [
        f'<rect x="{x + 9 * place:g}" y="{y - 9 * count:g}" width="7" height="{9 * count:g}" '
        f'fill="{colour}"/>'
        for place, count in enumerate(counts)
    ]
    return "".join(bars) + f'<path d="M{x - 2} {y + 1}h92" stroke="{LINE}"/>'


def member(row: int, name: str, counts: tuple[int, ...]) -> list[str]:
    """One row: its bootstrap, its accelerators, its predictions."""
    y, colour = 92 + ROW * row + 16 * (row == 3), COLOURS[row]
    parts = [
        arrow(150, 218, 210, y + 24),
        samples(218, y + 44, counts, colour),
        arrow(318, y + 24, 372, y + 24),
        box(374, y - 8, 208, 64, fill="#ffffff", stroke=colour),
        text(478, y + 10, f"member {name}", size=13),
    ]
    parts += [
        f'<rect x="{395 + 44 * slot:g}" y="{y + 20}" width="34" height="26" rx="3" '
        f'fill="{colour}" fill-opacity="0.2" stroke="{colour}"/>'
        for slot in range(4)
    ]
    parts.append(arrow(582, y + 24, 660, 218))
    return parts


def picture() -> str:
    """Return the SVG."""
    bootstraps = ((1, 0, 2, 1, 0, 1, 0, 3, 1, 1), (0, 2, 1, 0, 1, 1, 2, 0, 0, 3),
                  (2, 1, 0, 0, 1, 3, 1, 0, 1, 1), (1, 1, 1, 2, 0, 0, 1, 1, 3, 0))  # fmt: skip
    parts = [
        text(85, 40, "data", size=16, more='font-weight="bold"'),
        text(262, 40, "M bootstraps", size=16, more='font-weight="bold"'),
        text(262, 60, "63 % of the samples, each", size=12, fill=SOFT),
        text(478, 40, "M independent jobs", size=16, more='font-weight="bold"'),
        text(478, 60, "P_degree accelerators each", size=12, fill=SOFT),
        text(740, 40, "one ensemble, one score", size=16, more='font-weight="bold"'),
        box(22, 176, 126, 84, fill="#eef2f6", stroke=LINE),
        text(85, 213, "training set", size=13),
        text(85, 233, "N samples", size=12, fill=SOFT),
    ]
    for row, counts in enumerate(bootstraps):
        parts += member(row, ("1", "2", "3", "M")[row], counts)
    parts += [
        text(478, 343, "⋮", size=16, fill=SOFT),
        box(662, 176, 104, 84, fill="#eef2f6", stroke=LINE),
        text(714, 213, "average", size=13),
        text(714, 233, "predictions", size=12, fill=SOFT),
        arrow(766, 218, 796, 218),
        box(798, 152, 112, 132, fill="#ffffff", stroke=INK),
        text(854, 182, "VFLOPS =", size=14, more='font-weight="bold"'),
        text(854, 206, "FLOPS ×", size=13),
        text(854, 230, "(quality /", size=13),
        text(854, 250, "target)ⁿ", size=13),
        text(854, 273, "Eq. 7, 8", size=11, fill=SOFT),
        text(478, 452, "a larger machine trains more members:  Sys_scale = M × P_degree  (Eq. 5)"),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" role="img" '
        'aria-label="HPC AI500 V3.0: one data set, M bootstraps, M jobs, one score">'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    )
    return head + "\n".join(parts) + "</svg>\n"


if __name__ == "__main__":
    Path(__file__).with_name("idea.svg").write_text(picture(), encoding="utf-8")
