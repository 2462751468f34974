"""`ai500 rank`: rank submissions and write the list as a web site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.arguments import AsJson, TrustedKeys
from ai500.cli.terminal import Terminal, console, print_json, rows
from ai500.core.errors import InputError
from ai500.core.schema import encode
from ai500.core.units import human_seconds, human_si
from ai500.ranking.entries import Entry, Judged, Ranked, Rejected
from ai500.ranking.judge_server import Limits
from ai500.ranking.judging import File, Judge, find_submissions, sha256_of
from ai500.ranking.pages import list_name
from ai500.ranking.proofs import load_confirmations
from ai500.ranking.registry import load_decisions, load_registry
from ai500.ranking.registry import record as record_received
from ai500.ranking.repository import make_repository
from ai500.ranking.site import Built, build
from ai500.ranking.standings import by_coverage, by_list, per_watt
from ai500.submission.archive import printable
from ai500.submission.manifest import MADE_BY, SUFFIX

SHOWN = 10
"""Places and rejections printed per list; the site has them all."""
GIB = 1 << 30
REASONS_SHOWN = 3
"""Reasons printed per rejection."""


def rank(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder tree with submissions (*.ai500)."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the web site, new or made by `rank`."),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Name of the list.")] = "HPC AI500 list",
    trusted_keys: TrustedKeys = None,
    registry: Annotated[
        Path | None,
        typer.Option("--registry", help="Organizations, their keys, and the order of receipt."),
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option("--decisions", help="Decisions of the list's committee.")
    ] = None,
    confirmations: Annotated[
        Path | None,
        typer.Option("--confirmations", help="Checks by other teams: TEAM/NAME.json of `verify`."),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Append new submissions to the registry.")
    ] = False,
    expect: Annotated[
        list[Path] | None,
        typer.Option("--expect", help="Exit with 1 unless this submission is ranked."),
    ] = None,
    cpu_seconds: Annotated[
        int, typer.Option("--cpu-seconds", min=1, help="Processor time to judge one file.")
    ] = Limits().cpu_seconds,
    memory: Annotated[
        float, typer.Option("--memory", min=0.1, help="Memory to judge one file, GiB.")
    ] = Limits().memory_bytes / GIB,
    init: Annotated[
        bool, typer.Option("--init", help="Make FOLDER a repository of a list, from a template.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rank submissions by VFLOPS, and write the list as a web site.

    The site is static: open its index.html, or copy it to a web server. Needs no torch.

    Example: ai500 rank submissions --out list
    """
    if init:
        _make_repository(folder)
        return
    if out is None:
        raise InputError(
            "--out is missing: the folder of the web site.",
            key="--out",
            remedy="For example: ai500 rank submissions --out list",
        )
    if not title.isprintable():
        raise InputError(
            "--title contains characters that cannot be printed.",
            key="--title",
            value=title,
            remedy="Use plain text.",
        )
    if record and registry is None:
        raise InputError("--record needs --registry FILE.", key="--record")
    limits = Limits(cpu_seconds=cpu_seconds, memory_bytes=int(memory * GIB))
    files = find_submissions(folder)
    if not files and registry is None:
        raise InputError(f"{folder} contains no submission (*{SUFFIX}). {MADE_BY}.", path=folder)
    # Bad files of the list are an error before the submissions are judged.
    owners = None if registry is None else load_registry(registry)
    decided = None if decisions is None else load_decisions(decisions)
    checks = None if confirmations is None else load_confirmations(confirmations)
    if registry is not None and record:
        recorded = _record(registry, files)
        owners = load_registry(registry)
    with Terminal(quiet=as_json) as terminal:
        terminal.stage(f"judging {len(files):,} submission{'s' * (len(files) != 1)}")
        judged = Judge(trusted_keys=trusted_keys, limits=limits).judge(files)
        built = build(
            _with_progress(judged, len(files), terminal), out,
            title=title, registry=owners, decisions=decided, checks=checks,
        )  # fmt: skip
    if as_json:
        print_json(_plain(built, out))
    else:
        _show(built, out)
        if record:
            console.print(f"{recorded:,} new in {registry}", soft_wrap=True, markup=False)
    unranked = _unranked(expect or [], folder, files, built, quiet=as_json)
    if unranked or (files and not built.entries):
        raise typer.Exit(1)


def _record(registry: Path, files: Sequence[File]) -> int:
    digests = ((sha256_of(file.path), file.name) for file in files)
    return record_received(registry, [(sha256, name) for sha256, name in digests if sha256])


def _unranked(
    expected: Sequence[Path], folder: Path, files: Sequence[File], built: Built, *, quiet: bool
) -> list[Path]:
    """Print the expected submissions that are not ranked, with the reasons; return them."""
    known = {each.file: each.reasons for each in built.rejected}
    judged = {file.name for file in files}
    missing = []
    for path in expected:
        place = path.parent.resolve() / path.name  # a link is a submission of its own
        if not place.is_relative_to(folder.resolve()):
            raise InputError(f"--expect {path}: not in {folder}.", key="--expect", path=path)
        name = printable(place.relative_to(folder.resolve()).as_posix())
        absent = f"no such file, or not one that ends in {SUFFIX}"
        reasons = known.get(name, () if name in judged else (absent,))
        if reasons:
            missing.append(path)
            if not quiet:
                rows(f"Expected, and not ranked: {name}", [("", reason) for reason in reasons])
    return missing


def _make_repository(folder: Path) -> None:
    for name in make_repository(folder):
        console.print(f"wrote {folder / name}", soft_wrap=True, markup=False)
    console.print("next: read README.md, then `git init`, and push it to your server", markup=False)


def _with_progress(
    submissions: Iterator[Judged], total: int, terminal: Terminal
) -> Iterator[Ranked | Rejected]:
    for done, judged in enumerate(submissions, 1):
        yield judged.result
        terminal.progress(done, total)


def _plain(built: Built, out: Path) -> dict[str, object]:
    return {
        "site": str((out / "index.html").resolve()),
        "files_written": built.written,
        "files_removed": built.removed,
        "entries": [
            encode(built.standings[entry.id])
            | encode(entry)
            | {"findings": built.findings.get(entry.id, [])}
            for entry in built.entries
        ],
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
