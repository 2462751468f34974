"""Remove what dead processes left behind: `ai500 clean`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.arguments import AsJson
from ai500.cli.terminal import console, print_json, rows
from ai500.core.errors import InputError
from ai500.core.units import human_bytes
from ai500.pipeline import leftovers
from ai500.records.run_folder import RunFolder


def clean(
    path: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Run folder, e.g. runs/my-run.")
    ] = None,
    scratch: Annotated[
        bool,
        typer.Option(
            "--scratch", help="Staged copies and PyTorch's temporary folders on this node."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it, list them.")] = False,
    as_json: AsJson = False,
) -> None:
    """List or remove (--yes) files that ended processes left behind.

    Temporary files, staged copies, previous checkpoints of finished members. Files in use on this
    node are kept.

    Example: ai500 clean runs/first --yes
    """
    if (path is None) != scratch:
        raise InputError(
            "a run folder or --scratch is cleaned, and one of them at a time.",
            key="RUN",
            value=path,
            remedy="Name a run folder, or --scratch.",
        )
    listed = (
        leftovers.leftovers_of_scratch()
        if path is None
        else leftovers.leftovers_of_run(RunFolder.open(path))
    )
    if yes:
        leftovers.remove(listed)
    if as_json:
        files = [
            {"path": str(leftover.path), "bytes": leftover.bytes, "kind": leftover.kind}
            for leftover in listed
        ]
        print_json({"removed": yes, "leftovers": files})
        return
    total = human_bytes(sum(leftover.bytes for leftover in listed))
    title = f"{'Removed' if yes else 'Leftovers'}: {len(listed)}, {total}"
    rows(
        title,
        [
            (leftover.kind, f"{leftover.path} ({human_bytes(leftover.bytes)})")
            for leftover in listed
        ],
    )
    if listed and not yes:
        console.print("to remove them: the same command with --yes")
