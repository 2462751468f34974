"""`ai500 rank`: rank submissions and write the list as a web site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.arguments import AsJson, TrustedKeys
from ai500.cli.terminal import Terminal, console, print_json, rows
from ai500.core.errors import InputError
from ai500.core.schema import encode
from ai500.core.units import human_seconds, human_si
from ai500.ranking.entries import Entry, Ranked, Rejected
from ai500.ranking.pages import list_name
from ai500.ranking.read import find_submissions, read_submissions
from ai500.ranking.site import Built, build
from ai500.ranking.standings import by_coverage, by_list, per_watt

SHOWN = 10
"""Places and rejections printed per list; the site has them all."""
REASONS_SHOWN = 3
"""Reasons printed per rejection."""


def rank(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder tree with submissions (*.ai500)."),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the web site, new or made by `rank`.")
    ],
    title: Annotated[str, typer.Option("--title", help="Name of the list.")] = "HPC AI500 list",
    trusted_keys: TrustedKeys = None,
    as_json: AsJson = False,
) -> None:
    """Rank submissions by VFLOPS, and write the list as a web site.

    The site is static: open its index.html, or copy it to a web server. Needs no torch.

    Example: ai500 rank submissions --out list
    """
    if not title.isprintable():
        raise InputError(
            "--title contains characters that cannot be printed.",
            key="--title",
            value=title,
            remedy="Use plain text.",
        )
    paths = find_submissions(folder)
    with Terminal(quiet=as_json) as terminal:
        terminal.stage(f"reading {len(paths):,} submission{'s' * (len(paths) != 1)}")
        judged = read_submissions(folder, paths, trusted_keys=trusted_keys)
        built = build(_with_progress(judged, len(paths), terminal), out, title=title)
    if as_json:
        print_json(_plain(built, out))
    else:
        _show(built, out)


def _with_progress(
    submissions: Iterator[Ranked | Rejected], total: int, terminal: Terminal
) -> Iterator[Ranked | Rejected]:
    for done, submission in enumerate(submissions, 1):
        yield submission
        terminal.progress(done, total)


def _plain(built: Built, out: Path) -> dict[str, object]:
    return {
        "site": str((out / "index.html").resolve()),
        "files_written": built.written,
        "files_removed": built.removed,
        "entries": [encode(built.standings[entry.id]) | encode(entry) for entry in built.entries],
        "rejected": [{"file": each.file, "reasons": each.reasons} for each in built.rejected],
    }


def _show(built: Built, out: Path) -> None:
    for key, members in by_list(built.entries).items():
        best = [entry for entry in members if built.standings[entry.id].rank is not None]
        places = [(f"{built.standings[entry.id].rank}", _line(entry)) for entry in best]
        rows(list_name(key), places, most=SHOWN)
        for coverage, metered in by_coverage(members).items():
            best = [entry for entry in metered if built.standings[entry.id].energy_rank is not None]
            places = [
                (
                    f"{built.standings[entry.id].energy_rank}",
                    f"{human_si(per_watt(entry))}VFLOPS/W  {entry.full_name} ({entry.edition})",
                )
                for entry in best
            ]
            rows(f"{list_name(key)}, per watt of {coverage}", places, most=SHOWN)
    if built.rejected:
        refused = [(each.file, _reasons(each)) for each in built.rejected]
        rows("Not ranked", refused, most=SHOWN)
    console.print(
        f"{built.written:,} files written, {built.removed:,} removed; open "
        f"{(out / 'index.html').resolve()}",
        soft_wrap=True,
        markup=False,
    )


def _reasons(rejected: Rejected) -> str:
    more = len(rejected.reasons) - REASONS_SHOWN
    return "; ".join(rejected.reasons[:REASONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _line(entry: Entry) -> str:
    return (
        f"{human_si(entry.vflops)}FLOPS  {human_seconds(entry.time_to_quality_seconds)}  "
        f"{entry.full_name} ({entry.edition})"
    )
