"""`ai500 profile`: break down the time of a training step."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ai500 import config as configuration
from ai500.cli.arguments import AsJson
from ai500.cli.newest import RUNS
from ai500.cli.options import ConfigOptions, with_options
from ai500.cli.terminal import Terminal, console, print_json, rows
from ai500.config import Config
from ai500.core.errors import InputError, RunFolderError
from ai500.core.interrupts import as_interrupt
from ai500.core.schema import check_known
from ai500.core.shell import quoted
from ai500.pipeline.scoring import write_report
from ai500.profile import session
from ai500.profile.categories import CATEGORIES
from ai500.profile.labels import STAGES, category_cells, milliseconds, number, operations_text
from ai500.profile.page import write_page, write_report_section
from ai500.profile.record import PrecisionProfile, Profile
from ai500.records import precision as precisions
from ai500.records.run_folder import RunFolder
from ai500.report.formats import percent
from ai500.workloads.protocol import sample_noun

UNKNOWN_SHOWN = 5


@with_options(without=("runs", "scheduler"))
def profile(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="Run folder whose configuration to profile."),
    ] = None,
    *,
    selected: ConfigOptions,
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
        typer.Option("--out", "-o", help="Folder. Default: RUN/profile, or runs/profiles/<name>."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Profile training steps: kernels, communication, a timeline.

    Example: ai500 profile runs/first --precision fp32 --precision mixed-bf16
    """
    for name in precision or []:
        check_known(name, precisions.PRECISIONS, key="--precision")
    config = selected.load() if path is None else _config_of(path, selected)
    request = session.Request(
        config=config,
        out=out or (_own_folder(config) if path is None else path / "profile"),
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
        print_json(record)
        return
    show_profile(record)
    console.print(f"page {request.page.resolve()}", soft_wrap=True, markup=False)
    console.print(f"timeline {request.timeline.resolve()}", soft_wrap=True, markup=False)
    console.print("  open it in the Perfetto UI (Open trace file)")


def _config_of(path: Path, selected: ConfigOptions) -> Config:
    """Load the configuration of a run, finished or not, with overrides."""
    flags = {
        "--config": selected.config,
        "--workload": selected.workload,
        "--class": selected.problem_class,
    }
    for flag, value in flags.items():
        if value is not None:
            raise InputError(
                f"RUN and {flag} exclude each other.",
                key=flag,
                value=value,
                remedy="Remove one; --set changes keys of the run's configuration.",
            )
    run = RunFolder.open(path)
    if (owner := run.owner()) is not None:
        raise RunFolderError(
            f"{path} is being run by {owner}: run and profile would slow each other down.",
            path=path,
            value=owner,
            remedy=f"Wait for it, or end it with `ai500 cancel {quoted(path)}`.",
        )
    return configuration.load(run.config, overrides=selected.overrides())


def _own_folder(config: Config) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return RUNS / "profiles" / f"{config.workload}-{config.problem_class}-{stamp}"


def show_profile(record: Profile) -> None:
    """Print the profile as tables within 80 columns."""
    noun = sample_noun(record.workload)
    samples = f"{noun}s"
    rows(
        f"Profile: {record.workload}, class {record.problem_class}, {record.steps} steps"
        + (f", configuration of {record.run}" if record.run else ""),
        [
            ("device", f"{record.parallel_degree} × {record.device}, {record.device_name}"),
            ("batch", f"{record.global_batch_size} {samples} per step"),
            *((result.precision, _speed(result, samples)) for result in record.precisions),
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
    for result in record.precisions:
        if result.counted_operations is not None:
            console.print(
                f"operations per {noun} in {result.precision}: {operations_text(result)}",
                markup=False,
            )
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
        "operations by hardware counters": [
            result.operations_missing for result in record.precisions
        ],
    }
    for name, texts in reasons.items():
        yield from (f"{name}: not measured, {text}" for text in dict.fromkeys(texts) if text)


def _speed(result: PrecisionProfile, samples: str) -> str:
    return (
        f"{milliseconds(result.seconds_per_step)} ms per step, "
        f"{number(result.samples_per_second)} {samples}/s; profiled "
        f"{milliseconds(result.profiled_seconds_per_step)} ms, device idle "
        f"{percent(result.idle_share)}"
    )


def _table(*columns: str) -> Table:
    table = Table("", show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _grouped(
    precisions: Sequence[PrecisionProfile], most: int
) -> Iterator[Sequence[PrecisionProfile]]:
    """Split into groups that fit 80 columns side by side."""
    for first in range(0, len(precisions), most):
        yield precisions[first : first + most]


def _category_table(precisions: Sequence[PrecisionProfile], *, counted: bool) -> Table:
    """Tabulate share of kernel time and attained rates by category (V2 Fig. 10)."""
    shown = 5 if counted else 3
    names = [
        name
        for result in precisions
        for name in (result.precision, "ms", "FLOPS", "IPC", "DRAM")[:shown]
    ]
    table = _table(*names)
    cells = zip(*map(category_cells, precisions), strict=True)
    for category, parts in zip((*CATEGORIES, "unknown"), cells, strict=True):
        table.add_row(category, *(cell for part in parts for cell in part[:shown]))
    return table


def _communication_table(measured: Sequence[PrecisionProfile]) -> Table:
    """Tabulate the stages of communication, as means over the ranks (V2 Table 12)."""
    table = _table(*(result.precision for result in measured))
    means = [result.communication.mean for result in measured if result.communication is not None]
    for stage, name in STAGES.items():
        table.add_row(name, *(milliseconds(getattr(mean, stage)) for mean in means))
    return table
