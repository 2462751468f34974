"""`ai500 export`: a run's tables as files for spreadsheets and notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.arguments import AsJson, ReadRunPath
from ai500.cli.newest import chosen_run
from ai500.cli.terminal import console, print_json
from ai500.core.atomic import explaining_write_errors, write_text
from ai500.core.errors import InputError
from ai500.pipeline import mllog, tables
from ai500.records import Plan, run_folder
from ai500.records.run_folder import RunFolder


def export(
    path: ReadRunPath = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write CSV files.")] = False,
    as_parquet: Annotated[
        bool, typer.Option("--parquet", help="Write Parquet files (needs pyarrow).")
    ] = False,
    as_mllog: Annotated[
        bool, typer.Option("--mllog", help="Write a log of MLPerf's lines for each trial.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder. Default: RUN/export.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's members, trials, events and meters as tables.

    One file for each table. Needs no torch. --mllog writes each trial as a run of MLPerf's open
    division instead: which compliance checker accepts it is printed.

    Example: ai500 export runs/first --csv
    """
    if as_csv + as_parquet + as_mllog != 1:
        raise InputError(
            "one format is exported at a time.",
            key="--csv",
            remedy="Add --csv, --parquet or --mllog.",
        )
    folder = chosen_run(path)
    target = out or folder.path / "export"
    with explaining_write_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    if as_mllog:
        _export_logs(folder, target, as_json=as_json)
        return
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


def _export_logs(folder: RunFolder, target: Path, *, as_json: bool) -> None:
    """Write a log of each scored trial, and say which rule set's checker accepts it."""
    with run_folder.explaining_contradictions(folder.path):
        plan = run_folder.read(Plan, folder.plan)
        trials = [n for n in range(1, plan.trials + 1) if folder.trial(n).score.exists()]
        logs = {
            target / f"trial-{number:02d}.log": mllog.mllog_lines(folder, plan, number)
            for number in trials
        }
    for file, lines in logs.items():
        write_text(file, "\n".join(lines) + "\n")
    if as_json:
        print_json([{"path": str(file), "lines": len(lines)} for file, lines in logs.items()])
        return
    for file, lines in logs.items():
        console.print(f"{file}: {len(lines):,} lines", soft_wrap=True, markup=False)
    if plan.workload in mllog.RULE_SETS:
        rules, benchmark = mllog.RULE_SETS[plan.workload]
        text = f"for mlperf-logging's compliance checker: {rules}, open division, {benchmark}"
    else:
        text = f"no rule set of MLPerf has {plan.workload}: its compliance checker refuses the name"
    console.print(text, soft_wrap=True, markup=False)
