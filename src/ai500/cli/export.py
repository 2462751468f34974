"""`ai500 export`: a run's tables as files for spreadsheets and notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.arguments import AsJson, ReadRunPath
from ai500.cli.newest import chosen_run
from ai500.cli.terminal import console, print_json
from ai500.core.atomic import explaining_write_errors
from ai500.core.errors import InputError
from ai500.pipeline import tables
from ai500.records import run_folder


def export(
    path: ReadRunPath = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write CSV files.")] = False,
    as_parquet: Annotated[
        bool, typer.Option("--parquet", help="Write Parquet files (needs pyarrow).")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder. Default: RUN/export.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's members, trials, events and meters as tables.

    One file for each table. Needs no torch.

    Example: ai500 export runs/first --csv
    """
    if as_csv == as_parquet:
        raise InputError(
            "one format is exported at a time.", key="--csv", remedy="Add --csv or --parquet."
        )
    folder = chosen_run(path)
    target = out or folder.path / "export"
    with explaining_write_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    ending, write = ("csv", tables.write_csv) if as_csv else ("parquet", tables.write_parquet)
    written = []
    with run_folder.explaining_contradictions(folder.path):
        for name, read in tables.TABLES.items():
            rows = list(read(folder))
            file = target / f"{name}.{ending}"
            write(file, rows)
            written.append({"table": name, "path": str(file), "rows": len(rows)})
    if as_json:
        print_json(written)
        return
    for table in written:
        console.print(f"{table['path']}: {table['rows']:,} rows", soft_wrap=True, markup=False)
