"""`ai500 study`: the papers' experiments on this machine."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.arguments import AsJson
from ai500.cli.options import ConfigOptions, with_options
from ai500.cli.terminal import Terminal, console, print_json, print_report_path, rows
from ai500.config import Config
from ai500.core import schema
from ai500.core.errors import InputError
from ai500.core.interrupts import as_disconnection, as_interrupt
from ai500.core.units import human_seconds, human_si
from ai500.report.formats import flops, vflops
from ai500.study.definition import Study, StudyOptions
from ai500.study.folder import StudyFolder, finished_runs
from ai500.study.planning import NOT_MEASURED_YET, PreparedStudy, check_same_study, prepare
from ai500.study.records import StudyResult
from ai500.study.run_study import run_study, write_results
from ai500.study.studies import STUDIES, study_named

app = typer.Typer(
    help="Run the papers' experiments on this machine and plot them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dataclass(frozen=True)
class StudyRequest:
    """Options of a study besides its configuration."""

    max_members: Annotated[
        int | None, typer.Option("--max-members", help="Largest ensemble, in members.", min=1)
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", help="Number of seeds. Default: the minimum trials of the class.", min=1
        ),
    ] = None
    scales: Annotated[
        str | None,
        typer.Option("--scales", help="Repeat at these numbers of accelerators, e.g. 1,2,4."),
    ] = None
    points: Annotated[
        str | None, typer.Option("--points", help="Only these points, e.g. m1,m2.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder. Default: runs/study-<study>-<workload>-<class>."),
    ] = None
    reuse: Annotated[
        list[Path] | None,
        typer.Option("--reuse", help="Folder with finished runs to reuse, besides runs/."),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show number of runs, time and energy; run nothing.")
    ] = False
    as_json: AsJson = False


@app.command()
@with_options(without=("seeds", "scales"))
def scaling(selected: ConfigOptions, request: StudyRequest) -> None:
    """Scale the ensemble: M = 1, 2, … at a fixed P_degree.

    V3 Fig. 5: FLOPS, VFLOPS, efficiency and quality factor as the machine grows.

    Example: ai500 study scaling --class smoke --max-members 4 --dry-run
    """
    _study("scaling", selected.load(), request)


@app.command()
@with_options(without=("max_members", "seeds", "scales"))
def tradeoff(selected: ConfigOptions, request: StudyRequest) -> None:
    """Compare speed and quality of every (M, P_degree).

    V3 Fig. 7: all pairs that fill the system.

    Example: ai500 study tradeoff --class smoke
    """
    _study("tradeoff", selected.load(), request)


@app.command()
@with_options(without=("max_members", "seeds"))
def optimizations(selected: ConfigOptions, request: StudyRequest) -> None:
    """Compare precisions, compression and learning rates.

    V3 Fig. 8, V2 Figs. 4 and 7, V2 Table 8. --scales 1,2,4 repeats precisions and compression at
    these numbers of accelerators and draws a line for each.

    Example: ai500 study optimizations --points fp32,mixed-bf16,compression,both
    """
    _study("optimizations", selected.load(), request)


@app.command("data-parallel")
@with_options(without=("seeds", "scales"))
def data_parallel(selected: ConfigOptions, request: StudyRequest) -> None:
    """Compare the ensemble's scaling with one large model's.

    V3 Fig. 9: one model over all accelerators, by data parallelism.

    Example: ai500 study data-parallel --class smoke
    """
    _study("data-parallel", selected.load(), request)


@app.command()
@with_options(without=("max_members", "seeds", "scales"))
def frameworks(selected: ConfigOptions, request: StudyRequest) -> None:
    """Compare the same class in every installed framework.

    V3 Table 2, V2's system level: throughput, quality and operations. A framework NAME is looked
    for in `.venv-NAME`, or in the interpreter that the variable AI500_NAME_PYTHON names.

    Example: ai500 study frameworks --class smoke
    """
    _study("frameworks", selected.load(), request)


@app.command()
@with_options(without=("runs", "max_members", "scales"))
def repeatability(selected: ConfigOptions, request: StudyRequest) -> None:
    """Measure the variation between runs from several seeds.

    V2 Table 2, V3 Fig. 2: an ensemble, or with --workload automl a search.

    Example: ai500 study repeatability --class smoke --seeds 3
    """
    _study("repeatability", selected.load(), request)


@app.command()
@with_options(without=("seeds", "scales"))
def sharing(selected: ConfigOptions, request: StudyRequest) -> None:
    """Compare 1, 2, 4, … members per accelerator.

    V3 Fig. 5 on a single accelerator: FLOPS, VFLOPS and power as more members share it (D11).

    Example: ai500 study sharing --class smoke --max-members 8
    """
    _study("sharing", selected.load(), request)


@app.command()
def report(
    path: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the study.")],
    as_json: AsJson = False,
) -> None:
    """Draw a study's report again from its folder. Needs no torch.

    Example: ai500 study report runs/study-scaling-image_classification-smoke
    """
    folder = StudyFolder.open(path)
    write_results(folder, study_named(folder.read_plan().study))
    print_report_path(folder.report, as_json=as_json)


def _scales(text: str | None) -> tuple[int, ...]:
    """Parse --scales: ascending numbers of accelerators."""
    words = [] if text is None else text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise InputError(
            f"--scales {text}: expected numbers of accelerators.",
            key="--scales",
            value=text,
            remedy="Name them as in --scales 1,2,4.",
        )
    return tuple(sorted({int(word) for word in words}))


def _study(name: str, config: Config, request: StudyRequest) -> None:
    """Plan the study, print the plan, and carry it out unless it is a dry run."""
    study, as_json = STUDIES[name], request.as_json
    default = Path("runs") / f"study-{name}-{config.workload}-{config.problem_class}"
    folder = StudyFolder(request.out or default)
    check_same_study(folder, study, config)
    reused = request.reuse or []
    for path in reused:
        if not path.is_dir():
            raise InputError(f"--reuse {path}: no such folder.", key="--reuse", path=path)
    options = StudyOptions(request.max_members, request.seeds, _scales(request.scales))
    only = _point_names(request.points)
    finished = finished_runs([Path("runs"), folder.runs, *reused])
    prepared = prepare(study, config, options, only=only, folder=folder, finished=finished)
    if request.dry_run or not as_json:
        _show_plan(prepared, folder, as_json=as_json)
    if request.dry_run:
        return
    signal.signal(signal.SIGTERM, as_interrupt)
    signal.signal(signal.SIGHUP, as_disconnection)
    with Terminal(quiet=as_json) as terminal:
        result = run_study(folder, prepared, terminal)
    _show_result(result, study, folder, as_json=as_json)


def _point_names(text: str | None) -> list[str]:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if text is not None and not names:
        raise InputError(
            "--points names no point.",
            key="--points",
            value=text,
            remedy="Name points (m1,m2), or omit it for all.",
        )
    return names


def _show_plan(prepared: PreparedStudy, folder: StudyFolder, *, as_json: bool) -> None:
    """Print the points with the estimated time and energy."""
    waiting = prepared.pending()
    costs = [prepared.estimates[point.name] for point in waiting]
    if as_json:
        summary = {
            **schema.encode(prepared.plan),
            "folder": str(folder.path),
            "runs": len(waiting),
            "estimates": prepared.estimates,
            "seconds": _sum([cost.seconds for cost in costs]),
            "joules": _sum([cost.joules for cost in costs]),
        }
        print_json(summary)
        return
    study, plan = prepared.study, prepared.plan
    lines = []
    for point in plan.points:
        if point.impossible is not None:
            lines.append((point.label, f"not possible here: {point.impossible}"))
        elif point.name in prepared.done:
            source = f", run {Path(str(point.run)).name} is reused" if point.reused else ""
            lines.append((point.label, f"finished{source}"))
        elif point.name not in prepared.estimates:
            lines.append((point.label, "not selected"))
        else:
            estimate = prepared.estimates[point.name].seconds
            about = NOT_MEASURED_YET if estimate is None else f"about {human_seconds(estimate)}"
            lines.append((point.label, f"to run, {about}"))
    rows(f"Study {study.name} ({study.source}): {plan.workload}, {plan.problem_class}", lines)
    totals = [
        ("to run", f"{len(waiting)} of {len(plan.points)} points"),
        ("time", _total([cost.seconds for cost in costs], human_seconds)),
        ("energy", _total([cost.joules for cost in costs], lambda joules: f"{human_si(joules)}J")),
        ("estimated", "; ".join(dict.fromkeys(cost.basis for cost in costs)) or "nothing to run"),
        ("folder", str(folder.path)),
    ]
    rows("Total", totals)


def _sum(known: list[float | None]) -> float | None:
    values = [value for value in known if value is not None]
    return sum(values) if len(values) == len(known) else None


def _total(known: list[float | None], written: Callable[[float], str]) -> str:
    """Format the sum of known values and the number of unknown ones."""
    values = [value for value in known if value is not None]
    if not known:
        return "none"
    if not values:
        return NOT_MEASURED_YET
    unknown = len(known) - len(values)
    return f"about {written(sum(values))}" + (
        f", and {unknown} points {NOT_MEASURED_YET}" if unknown else ""
    )


def _show_result(result: StudyResult, study: Study, folder: StudyFolder, *, as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    rows(
        f"{study.title} ({study.source})",
        [
            (
                point.label,
                f"{vflops(point.vflops)}, {flops(point.flops)}"
                f"{'' if point.timing_valid else ' (speed not meaningful here)'}, "
                f"{point.score.quality_name} {point.ensemble_quality:.4f}",
            )
            for point in result.points
        ],
    )
    console.print(f"report {folder.report.resolve()}", soft_wrap=True, markup=False)
