"""Remove what dead processes left behind: `ai500 clean`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.options import AsJson
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
        raise InputError("name a run folder, or --scratch.", key="RUN", value=path)
    found = (
        leftovers.leftovers_of_scratch()
        if path is None
        else leftovers.leftovers_of_run(RunFolder.open(path))
    )
    if yes:
        leftovers.remove(found)
    if as_json:
        files = [{"path": str(each.path), "bytes": each.bytes, "kind": each.kind} for each in found]
        print_json({"removed": yes, "leftovers": files})
        return
    total = human_bytes(sum(each.bytes for each in found))
    title = f"{'Removed' if yes else 'Leftovers'}: {len(found)}, {total}"
    rows(title, [(each.kind, f"{each.path} ({human_bytes(each.bytes)})") for each in found])
    if found and not yes:
        console.print("to remove them: the same command with --yes")
