"""The list: `ai500 rank`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.options import AsJson, TrustedKeys
from ai500.cli.terminal import Terminal, console, rows
from ai500.core.errors import InputError
from ai500.core.units import human_seconds, human_si
from ai500.ranking.entries import Entry, Ranked, Rejected
from ai500.ranking.pages import list_name
from ai500.ranking.read import find_submissions, read_submissions
from ai500.ranking.site import Built, build
from ai500.ranking.standings import by_list

SHOWN = 10
"""Places and rejections that a terminal shows; the site has them all."""
REASONS = 3


def rank(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder with submissions (*.ai500) anywhere in."),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the web site, new or made by `rank`.")
    ],
    title: Annotated[str, typer.Option("--title", help="Name of the list.")] = "HPC AI500 list",
    trusted_keys: TrustedKeys = None,
    as_json: AsJson = False,
) -> None:
    """Rank submissions by VFLOPS, and write the list as a web site.

    It is static: a folder for any web server, or to be opened as it is. Needs no torch.

    Example: ai500 rank submissions --out list
    """
    if not title.isprintable():
        raise InputError("--title has characters that can't be shown. Use plain text.")
    paths = find_submissions(folder)
    with Terminal(quiet=as_json) as terminal:
        terminal.stage(f"reading {len(paths):,} submission{'s' * (len(paths) != 1)}")
        judged = read_submissions(folder, paths, trusted_keys=trusted_keys)
        built = build(_counted(judged, len(paths), terminal), out, title=title)
    if as_json:
        print(json.dumps(_plain(built, out), indent=2))
    else:
        _show(built, out)


def _counted(
    submissions: Iterator[Ranked | Rejected], total: int, terminal: Terminal
) -> Iterator[Ranked | Rejected]:
    for done, one in enumerate(submissions, 1):
        yield one
        terminal.progress(done, total)


def _plain(built: Built, out: Path) -> dict[str, object]:
    places = [
        {
            "rank": built.standings[one.id].rank,
            "id": one.id,
            "workload": one.workload,
            "problem_class": one.problem_class,
            "level": one.level,
            "system": one.system,
            "organization": one.organization,
            "edition": one.edition,
            "vflops": one.vflops,
            "time_to_quality_seconds": one.time_to_quality_seconds,
        }
        for one in built.entries
    ]
    rejected = [{"file": one.file, "reasons": list(one.reasons)} for one in built.rejected]
    return {
        "site": str((out / "index.html").resolve()),
        "files_written": built.written,
        "files_removed": built.removed,
        "entries": places,
        "rejected": rejected,
    }


def _show(built: Built, out: Path) -> None:
    for key, members in by_list(built.entries).items():
        best = [one for one in members if built.standings[one.id].rank is not None]
        lines = [(f"{built.standings[one.id].rank}", _line(one)) for one in best[:SHOWN]]
        more = len(best) - SHOWN
        rows(list_name(key), [*lines, *([("…", f"{more:,} more")] if more > 0 else [])])
    if built.rejected:
        refused = [(one.file, _reasons(one)) for one in built.rejected[:SHOWN]]
        more = len(built.rejected) - SHOWN
        rows("Not ranked", [*refused, *([("…", f"{more:,} more")] if more > 0 else [])])
    console.print(
        f"{built.written:,} files written, {built.removed:,} removed; open "
        f"{(out / 'index.html').resolve()}",
        soft_wrap=True,
        markup=False,
    )


def _reasons(one: Rejected) -> str:
    more = len(one.reasons) - REASONS
    return "; ".join(one.reasons[:REASONS]) + (f"; and {more} more" if more > 0 else "")


def _line(one: Entry) -> str:
    return (
        f"{human_si(one.vflops)}FLOPS  {human_seconds(one.time_to_quality_seconds)}  "
        f"{one.system}, {one.organization} ({one.edition})"
    )
