"""`ai500 roofline`: measure the ceilings of this system, place a run under them, give advice."""

from __future__ import annotations

import platform
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.arguments import AsJson
from ai500.cli.newest import RUNS
from ai500.cli.options import ConfigOptions, with_options
from ai500.cli.terminal import Terminal, console, print_json, rows
from ai500.core.atomic import write_text
from ai500.core.errors import InputError
from ai500.core.interrupts import as_interrupt
from ai500.core.reading import require_regular
from ai500.core.schema import check_known
from ai500.pipeline.scoring import write_report
from ai500.profile.record import Profile
from ai500.records import Plan, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.page import standalone_svg
from ai500.report.section import Table
from ai500.roofline import compare, measure, place_run
from ai500.roofline import page as pages
from ai500.roofline.advice import best
from ai500.roofline.page import record_chart
from ai500.roofline.records import Placed, RooflineRecord, RunPlacement, peak_of

FOLDER = RUNS / "rooflines"
SECONDS, QUICK_SECONDS = 60.0, 8.0
SCHEDULERS = ("local", "slurm")


@with_options(without=("workload", "problem_class", "runs", "data"))
def roofline(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File. Default: runs/rooflines/<host>-<date>.json."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="Place this run under a measured roofline.")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option("--beside", help="Draw this run in the same plot as --run; repeatable."),
    ] = None,
    ceilings: Annotated[
        Path | None, typer.Option("--ceilings", help="Roofline for --run. Default: the newest.")
    ] = None,
    show: Annotated[
        Path | None, typer.Option("--show", help="Print and draw a measured roofline again.")
    ] = None,
    precision: Annotated[
        list[str] | None,
        typer.Option("--precision", help="Precision to measure; repeatable. Default: all."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="Device type of torch. Default: detected.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Approximate time for kernels and links.", min=0.5)
    ] = SECONDS,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"{QUICK_SECONDS:.0f} seconds: less accurate.")
    ] = False,
    ranks: Annotated[
        int | None, typer.Option("--ranks", min=1, help="Processes to measure links; 1: none.")
    ] = None,
    *,
    selected: ConfigOptions,
    as_json: AsJson = False,
) -> None:
    """Measure the roofline of this system, or place a run under it.

    V2's HPC-AI roofline: ceilings of kernels, memory and links. --beside draws runs of other
    precisions and compressions in one plot (V2 Fig. 9).

    Example: ai500 roofline && ai500 roofline --run runs/first
    """
    if run is not None:
        _place(run, ceilings, beside=beside or [], as_json=as_json)
        return
    if beside:
        raise InputError(
            f"--beside {beside[0]}: there is no run to draw it beside.",
            key="--beside",
            value=str(beside[0]),
            remedy="Name one with --run.",
        )
    if ceilings is not None:
        raise InputError(
            f"--ceilings {ceilings}: there is no run to place under them.",
            key="--ceilings",
            value=str(ceilings),
            remedy="Name one with --run.",
        )
    if out is not None:
        require_regular(out)
    if show is not None:
        _print(place_run.read_record(show), show, as_json=as_json)
        return
    precisions = measure.check_precisions(precision or [])
    if selected.config is not None:
        selected.load()  # its mistakes before a measurement of minutes
    scheduler = selected.scheduler
    if scheduler is not None:
        check_known(scheduler, SCHEDULERS, key="--scheduler")
    if scheduler == "slurm" and (device is not None or ranks is not None):
        raise InputError(
            "--device and --ranks apply to this node, not to --scheduler slurm.",
            key="--device" if device is not None else "--ranks",
            remedy="Use --set system.device=… and --set system.accelerators_per_node=…",
        )
    path = out or _default_path(scheduler)
    budget = QUICK_SECONDS if quick else seconds
    signal.signal(signal.SIGTERM, as_interrupt)
    with Terminal(quiet=as_json) as terminal:
        if scheduler == "slurm":
            config = selected.load()
            record = measure.measure_cluster(
                path, config=config, precisions=precisions, seconds=budget, observer=terminal
            )
        else:
            record = measure.measure_node(
                path, device=device, precisions=precisions, seconds=budget, ranks=ranks,
                observer=terminal,
            )  # fmt: skip
    _print(record, path, as_json=as_json)


def _default_path(scheduler: str | None) -> Path:
    host = "cluster" if scheduler == "slurm" else platform.node()
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", host) or "host"
    if scheduler != "slurm" and (partial := measure.find_partial(FOLDER, host=plain)) is not None:
        return partial
    return FOLDER / f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}.json"


def _print(record: RooflineRecord, path: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(record)
        return
    title = f"Roofline of {record.device_name}"
    if record.device == "cpu":
        why = "As requested" if record.system.accelerators else "No accelerator here"
        console.print(f"{why}: this is the CPU's roofline.", soft_wrap=True)
    if not record.complete:
        console.print("PARTIAL: the measurement was interrupted.", soft_wrap=True)
    _show(title, pages.measured_table(record), (1, 2, 3))
    if note := pages.above_peak_note(record):
        console.print(note, markup=False)
    if record.unavailable:
        rows(
            "Not measured",
            [(pages.kernel_name(name), reason) for name, reason in record.unavailable],
        )
    _show("Memory and links", pages.links_table(record), (1, 2, 3))
    write_text(path.with_suffix(".svg"), standalone_svg(record_chart(record).svg(title)))
    pages.write_page(path.with_suffix(".html"), record, None)
    for file in (path, path.with_suffix(".svg"), path.with_suffix(".html")):
        console.print(str(file), soft_wrap=True, markup=False)


def _show(title: str, table: Table, columns: tuple[int, ...]) -> None:
    """Print the name and selected columns of each row, within 80 columns."""
    names = ", ".join(table.columns[i] for i in columns)
    pairs = []
    for row in table.rows:
        values = [row[i].ljust(16) for i in columns[:-1]] + [row[columns[-1]]]
        pairs.append((row[0], "".join(values).rstrip()))
    rows(f"{title}: {names}", pairs)


def _place(run: Path, ceilings: Path | None, *, beside: Sequence[Path], as_json: bool) -> None:
    folder, others = RunFolder.open(run), [RunFolder.open(path) for path in beside]
    file = ceilings or place_run.newest_record(FOLDER)
    record = place_run.read_record(file)
    memory = _memory_traffic(folder, record)
    placement = place_run.place_run(folder, record, memory_bytes_per_second=memory)
    if others:
        _compare(folder, placement, others)
    run_folder.write(folder.roofline, placement)
    pages.write_page(folder.roofline.with_suffix(".html"), placement.ceilings, placement)
    pages.write_report_section(folder)
    write_report(folder)
    if as_json:
        print_json(placement)
        return
    console.print(f"{run} under {file}", soft_wrap=True, markup=False)
    for warning in placement.warnings:
        console.print(f"warning: {warning}", markup=False)
    for point in placement.placed:
        _show_point(placement, point)
    console.print(pages.convention(placement), markup=False)
    compared = [folder.path / compare.FILE_NAME] if beside else []
    for page in (folder.roofline.with_suffix(".html"), *compared, folder.report):
        console.print(str(page), soft_wrap=True, markup=False)


def _memory_traffic(folder: RunFolder, record: RooflineRecord) -> float | None:
    """Return the bytes per second of one accelerator's memory that the run's profile counted."""
    peak = peak_of(record, "memory")
    if peak is None or not folder.profile.exists():
        return None
    precision = run_folder.read(Plan, folder.plan).hyperparameters.precision
    profiles = run_folder.read(Profile, folder.profile).precisions
    share = next((each.dram_utilization for each in profiles if each.precision == precision), None)
    return None if share is None else share * peak / record.units


def _compare(folder: RunFolder, placement: RunPlacement, others: Sequence[RunFolder]) -> None:
    """Draw the run and others under the same ceilings; each is named by what it varies."""
    placements: dict[str, RunPlacement] = {}
    for other in (folder, *others):
        label = compare.label_of(run_folder.read(Plan, other.plan))
        label = f"{label} ({other.path.name})" if label in placements else label
        same = other is folder
        placements[label] = placement if same else place_run.place_run(other, placement.ceilings)
    compare.write_comparison(folder.path / compare.FILE_NAME, placements)


def _show_point(placement: RunPlacement, point: Placed) -> None:
    figures = pages.point_figures(placement, point)
    rows(f"{point.subject.capitalize()}, {point.model} model", list(figures.items()))
    console.print(pages.sentence(point), markup=False)
    if point.above_roof:
        return
    if helpful := [("", advice.text) for advice in point.advice if advice.may_gain]:
        rows("What would help", helpful)
    if useless := pages.nothing_to_gain([point]):
        console.print(useless, markup=False)
    chosen = best(point.advice)
    if chosen is not None:
        console.print(f"    largest gain: {chosen.setting}", markup=False)
