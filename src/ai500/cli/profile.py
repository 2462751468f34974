"""`ai500 profile`: where the time of a training step goes."""

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
from ai500.pipeline.reporting import write_report
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
        Path | None, typer.Argument(metavar="RUN", help="A run folder: its configuration.")
    ] = None,
    config: ConfigPath = None,
    workload: WorkloadName = None,
    problem_class: ClassName = None,
    data: DataPath = None,
    steps: Annotated[int, typer.Option("--steps", help="Training steps to profile.")] = 10,
    precision: Annotated[
        list[str] | None,
        typer.Option("--precision", help="A training precision; again for more, side by side."),
    ] = None,
    counters: Annotated[
        bool, typer.Option("--counters", help="Hardware counters too (ncu): takes minutes.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder. Default: RUN/profile, or profiles/<name>."),
    ] = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Profile some training steps: kernels, communication, a timeline.

    Example: ai500 profile runs/first --precision fp32 --precision mixed-bf16
    """
    for name in precision or []:
        if name not in precisions.PRECISIONS:
            known = schema.nearest(name, list(precisions.PRECISIONS))
            raise InputError(f"--precision {name}: no such precision; {known}")
    if path is not None:
        flags = {"--config": config, "--workload": workload, "--class": problem_class}
        _refuse_beside_run(flags)
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
    for told in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(told, as_interrupt)
    with Terminal(quiet=as_json) as terminal:
        found = session.profile(request, terminal)
    write_page(found, request.page)
    if path is not None and out is None and RunFolder(path).score.exists():
        write_report_section(RunFolder(path))
        write_report(RunFolder(path))
    if as_json:
        print(json.dumps(schema.encode(found), indent=2))
        return
    show_profile(found)
    console.print(f"page {request.page.resolve()}", soft_wrap=True, markup=False)
    console.print(f"timeline {request.timeline.resolve()}", soft_wrap=True, markup=False)
    console.print("  open it in the Perfetto UI (Open trace file)")


def _refuse_beside_run(flags: dict[str, Any]) -> None:
    for flag, value in flags.items():
        if value is not None:
            raise InputError(
                f"RUN and {flag} are two answers to one question. Leave one of them out; --set "
                "changes keys of the run's configuration."
            )


def _config_of(path: Path, *, data: Path | None, settings: list[str] | None) -> Config:
    """The configuration of a run, finished or not, with changes over it."""
    run = RunFolder.open(path)
    if (owner := run.owner()) is not None:
        raise RunFolderError(
            f"{path} is being run by {owner}: both would be measured slower than they are. Wait "
            f"for it, or end it with `ai500 cancel {path}`."
        )
    overrides: dict[str, Any] = dict(map(configuration.parse_assignment, settings or []))
    if data is not None:
        overrides["data.path"] = str(data)
    return configuration.load(run.config, overrides=overrides)


def _own_folder(config: Config) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("profiles") / f"{config.workload}-{config.problem_class}-{stamp}"


def show_profile(found: Profile) -> None:
    """The profile as tables that fit 80 columns."""
    rows(
        f"Profile: {found.workload}, class {found.problem_class}, {found.steps} steps"
        + (f", configuration of {found.run}" if found.run else ""),
        [
            ("device", f"{found.parallel_degree} × {found.device}, {found.device_name}"),
            ("batch", f"{found.global_batch_size} images a step"),
            *((one.precision, _speed(one)) for one in found.precisions),
        ],
    )
    heading("Kernels by category (V2 Fig. 10): share of time, FLOPS meanwhile")
    counted = any(one.counters_missing is None for one in found.precisions)
    for some in _grouped(found.precisions, 1 if counted else 2):
        console.print(_category_table(some, counted=counted), "", sep="\n")
    for one in found.precisions:
        if one.unknown:
            heading(f"Unknown kernels in {one.precision}")
        for kernel in one.unknown[:UNKNOWN_SHOWN]:
            name = Text(f"  {percent(kernel.share):>7}  {kernel.name}", overflow="ellipsis")
            console.print(name, no_wrap=True)
        if (more := len(one.unknown) - UNKNOWN_SHOWN) > 0:
            console.print(f"  … and {more} more in profile.json")
    measured = [one for one in found.precisions if one.communication is not None]
    if measured:
        heading("Communication (V2 Table 12): ms of a step, mean of the ranks")
        for some in _grouped(measured, 4):
            console.print(_communication_table(some), "", sep="\n")
    for line in _not_measured(found):
        console.print(line, markup=False)


def heading(text: str) -> None:
    """Above a table, whatever the table's width."""
    console.print(Text(text, style="bold"))


def _not_measured(found: Profile) -> Iterator[str]:
    """What is missing and why, once where all precisions say the same."""
    reasons = {
        "communication": [one.communication_missing for one in found.precisions],
        "instructions per cycle and DRAM": [one.counters_missing for one in found.precisions],
    }
    for what, why in reasons.items():
        yield from (f"{what}: not measured, {reason}" for reason in dict.fromkeys(why) if reason)


def _speed(one: PrecisionProfile) -> str:
    return (
        f"{milliseconds(one.seconds_per_step)} ms a step, "
        f"{number(one.images_per_second)} images/s; profiled "
        f"{milliseconds(one.profiled_seconds_per_step)} ms, device idle "
        f"{percent(one.idle_share)}"
    )


def _table() -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    return table


def _grouped(
    precisions: Sequence[PrecisionProfile], most: int
) -> Iterator[Sequence[PrecisionProfile]]:
    """As many side by side as fit 80 columns."""
    for first in range(0, len(precisions), most):
        yield precisions[first : first + most]


def _category_table(precisions: Sequence[PrecisionProfile], *, counted: bool) -> Table:
    """V2 Fig. 10: share of kernel time, and what was attained while such kernels ran."""
    table = _table()
    for one in precisions:
        for column in (one.precision, "ms", "FLOPS", *(("IPC", "DRAM") if counted else ())):
            table.add_column(column, justify="right", no_wrap=True)
    for index, category in enumerate(CATEGORIES):
        cells: list[str] = []
        for part in (one.categories[index] for one in precisions):
            cells += [percent(part.share), milliseconds(part.seconds_per_step), flops(part.flops)]
            if counted:
                ipc, dram = part.instructions_per_cycle, part.dram_utilization
                cells.append("–" if ipc is None else f"{ipc:.2f}")
                cells.append("–" if dram is None else percent(dram))
        table.add_row(category, *cells)
    unknown: list[str] = []
    for one in precisions:
        seconds = one.unknown_share * one.kernel_seconds_per_step
        unknown += [percent(one.unknown_share), milliseconds(seconds), "–"]
        unknown += ["–", "–"] if counted else []
    table.add_row("unknown", *unknown)
    return table


def _communication_table(measured: Sequence[PrecisionProfile]) -> Table:
    """V2 Table 12, the mean of the ranks."""
    table = _table()
    for one in measured:
        table.add_column(one.precision, justify="right", no_wrap=True)
    means = [one.communication.mean for one in measured if one.communication is not None]
    for stage, name in STAGES.items():
        table.add_row(name, *(milliseconds(getattr(mean, stage)) for mean in means))
    return table
