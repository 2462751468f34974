"""`ai500 profile`: break down the time of a training step."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ai500 import config as configuration
from ai500.cli.options import (
    AsJson,
    ClassName,
    ConfigPath,
    DataPath,
    Settings,
    WorkloadName,
    load_config,
)
from ai500.cli.terminal import Terminal, console, rows
from ai500.config import Config
from ai500.core import schema
from ai500.core.errors import InputError, RunFolderError
from ai500.core.interrupts import as_interrupt
from ai500.pipeline.scoring import write_report
from ai500.profile import session
from ai500.profile.categories import CATEGORIES
from ai500.profile.labels import STAGES, flops, milliseconds, number
from ai500.profile.page import write_page, write_report_section
from ai500.profile.record import PrecisionProfile, Profile
from ai500.records import precision as precisions
from ai500.records.run_folder import RunFolder
from ai500.report.formats import percent

UNKNOWN_SHOWN = 5


def profile(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="Run folder whose configuration to profile."),
    ] = None,
    config: ConfigPath = None,
    workload: WorkloadName = None,
    problem_class: ClassName = None,
    data: DataPath = None,
    steps: Annotated[int, typer.Option("--steps", help="Training steps to profile.")] = 10,
    precision: Annotated[
        list[str] | None,
        typer.Option("--precision", help="Training precision; repeat it to compare several."),
    ] = None,
    counters: Annotated[
        bool, typer.Option("--counters", help="Also read hardware counters (ncu); takes minutes.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder. Default: RUN/profile, or profiles/<name>."),
    ] = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Profile training steps: kernels, communication, a timeline.

    Example: ai500 profile runs/first --precision fp32 --precision mixed-bf16
    """
    for name in precision or []:
        if name not in precisions.PRECISIONS:
            known = schema.nearest(name, list(precisions.PRECISIONS))
            raise InputError(
                f"--precision {name}: no such precision; {known}", key="--precision", value=name
            )
    if path is not None:
        flags = {"--config": config, "--workload": workload, "--class": problem_class}
        _reject_with_run(flags)
    resolved = (
        load_config(
            config,
            workload=workload,
            problem_class=problem_class,
            runs=None,
            data=data,
            scheduler=None,
            settings=settings,
        )
        if path is None
        else _config_of(path, data=data, settings=settings)
    )
    request = session.Request(
        config=resolved,
        out=out or (_own_folder(resolved) if path is None else path / "profile"),
        precisions=tuple(dict.fromkeys(precision or [])),
        steps=steps,
        counters=counters,
        run=None if path is None else path.resolve().name,
    )
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, as_interrupt)
    with Terminal(quiet=as_json) as terminal:
        record = session.profile(request, terminal)
    write_page(record, request.page)
    if path is not None and out is None:
        folder = RunFolder(path)
        write_report_section(folder)
        if folder.score.exists():
            write_report(folder)
    if as_json:
        print(json.dumps(schema.encode(record), indent=2))
        return
    show_profile(record)
    console.print(f"page {request.page.resolve()}", soft_wrap=True, markup=False)
    console.print(f"timeline {request.timeline.resolve()}", soft_wrap=True, markup=False)
    console.print("  open it in the Perfetto UI (Open trace file)")


def _reject_with_run(flags: dict[str, Any]) -> None:
    for flag, value in flags.items():
        if value is not None:
            raise InputError(
                f"RUN and {flag} exclude each other.",
                key=flag,
                value=value,
                remedy="Remove one; --set changes keys of the run's configuration.",
            )


def _config_of(path: Path, *, data: Path | None, settings: list[str] | None) -> Config:
    """Load the configuration of a run, finished or not, with overrides."""
    run = RunFolder.open(path)
    if (owner := run.owner()) is not None:
        raise RunFolderError(
            f"{path} is being run by {owner}: run and profile would slow each other down.",
            path=path,
            value=owner,
            remedy=f"Wait for it, or end it with `ai500 cancel {path}`.",
        )
    overrides: dict[str, Any] = dict(map(configuration.parse_assignment, settings or []))
    if data is not None:
        overrides["data.path"] = str(data)
    return configuration.load(run.config, overrides=overrides)


def _own_folder(config: Config) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("profiles") / f"{config.workload}-{config.problem_class}-{stamp}"


def show_profile(record: Profile) -> None:
    """Print the profile as tables within 80 columns."""
    rows(
        f"Profile: {record.workload}, class {record.problem_class}, {record.steps} steps"
        + (f", configuration of {record.run}" if record.run else ""),
        [
            ("device", f"{record.parallel_degree} × {record.device}, {record.device_name}"),
            ("batch", f"{record.global_batch_size} images per step"),
            *((result.precision, _speed(result)) for result in record.precisions),
        ],
    )
    heading("Kernels by category (V2 Fig. 10): share of time, attained FLOPS")
    counted = any(result.counters_missing is None for result in record.precisions)
    for group in _grouped(record.precisions, 1 if counted else 2):
        console.print(_category_table(group, counted=counted), "", sep="\n")
    for result in record.precisions:
        if result.unknown:
            heading(f"Unknown kernels in {result.precision}")
        for kernel in result.unknown[:UNKNOWN_SHOWN]:
            name = Text(f"  {percent(kernel.share):>7}  {kernel.name}", overflow="ellipsis")
            console.print(name, no_wrap=True)
        if (more := len(result.unknown) - UNKNOWN_SHOWN) > 0:
            console.print(f"  … and {more} more in profile.json")
    measured = [result for result in record.precisions if result.communication is not None]
    if measured:
        heading("Communication (V2 Table 12): ms per step, mean over the ranks")
        for group in _grouped(measured, 4):
            console.print(_communication_table(group), "", sep="\n")
    for line in _not_measured(record):
        console.print(line, markup=False)


def heading(text: str) -> None:
    """Print a heading, independent of a table's width."""
    console.print(Text(text, style="bold"))


def _not_measured(record: Profile) -> Iterator[str]:
    """Yield missing measurements with their reasons, each reason once."""
    reasons = {
        "communication": [result.communication_missing for result in record.precisions],
        "instructions per cycle and DRAM": [
            result.counters_missing for result in record.precisions
        ],
    }
    for name, texts in reasons.items():
        yield from (f"{name}: not measured, {text}" for text in dict.fromkeys(texts) if text)


def _speed(result: PrecisionProfile) -> str:
    return (
        f"{milliseconds(result.seconds_per_step)} ms per step, "
        f"{number(result.images_per_second)} images/s; profiled "
        f"{milliseconds(result.profiled_seconds_per_step)} ms, device idle "
        f"{percent(result.idle_share)}"
    )


def _table() -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    return table


def _grouped(
    precisions: Sequence[PrecisionProfile], most: int
) -> Iterator[Sequence[PrecisionProfile]]:
    """Split into groups that fit 80 columns side by side."""
    for first in range(0, len(precisions), most):
        yield precisions[first : first + most]


def _category_table(precisions: Sequence[PrecisionProfile], *, counted: bool) -> Table:
    """Tabulate share of kernel time and attained rates by category (V2 Fig. 10)."""
    table = _table()
    for result in precisions:
        for column in (result.precision, "ms", "FLOPS", *(("IPC", "DRAM") if counted else ())):
            table.add_column(column, justify="right", no_wrap=True)
    for index, category in enumerate(CATEGORIES):
        cells: list[str] = []
        for part in (result.categories[index] for result in precisions):
            cells += [percent(part.share), milliseconds(part.seconds_per_step), flops(part.flops)]
            if counted:
                ipc, dram = part.instructions_per_cycle, part.dram_utilization
                cells.append("–" if ipc is None else f"{ipc:.2f}")
                cells.append("–" if dram is None else percent(dram))
        table.add_row(category, *cells)
    unknown: list[str] = []
    for result in precisions:
        seconds = result.unknown_share * result.kernel_seconds_per_step
        unknown += [percent(result.unknown_share), milliseconds(seconds), "–"]
        unknown += ["–", "–"] if counted else []
    table.add_row("unknown", *unknown)
    return table


def _communication_table(measured: Sequence[PrecisionProfile]) -> Table:
    """Tabulate the stages of communication, as means over the ranks (V2 Table 12)."""
    table = _table()
    for result in measured:
        table.add_column(result.precision, justify="right", no_wrap=True)
    means = [result.communication.mean for result in measured if result.communication is not None]
    for stage, name in STAGES.items():
        table.add_row(name, *(milliseconds(getattr(mean, stage)) for mean in means))
    return table
