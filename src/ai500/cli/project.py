"""`ai500 project`: an ensemble on a system that can't be measured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.arguments import AsJson
from ai500.cli.newest import RUNS
from ai500.cli.terminal import console, print_json, rows
from ai500.core import __version__
from ai500.core.errors import InputError
from ai500.core.schema import check_known
from ai500.core.units import human_seconds, human_si
from ai500.parallel import schedules, topology
from ai500.projection import application, page, platform, simulator
from ai500.projection.answers import Answer, answer
from ai500.projection.model import Projection, Settings
from ai500.projection.quantities import Kind, parse
from ai500.records import run_folder
from ai500.report.formats import flops, known
from ai500.roofline.model import WIRE_BYTES

FOLDER = RUNS / "projections"


def project(
    system: Annotated[
        str, typer.Option("--system", help=f"TOML file, or one of {', '.join(platform.SHIPPED)}.")
    ],
    run: Annotated[Path, typer.Option("--run", help="Finished run of an ensemble.")],
    also: Annotated[
        list[Path] | None,
        typer.Option("--also", help="Run like it with another batch size; repeatable."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Per accelerator. Default: the run's.")
    ] = None,
    accelerators: Annotated[
        int | None, typer.Option("--accelerators", min=1, help="Default: the whole system.")
    ] = None,
    degree: Annotated[
        int | None, typer.Option("--degree", min=1, help="P_degree. Default: a node.")
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Also scale from one node to 100,000 accelerators.")
    ] = False,
    wanted: Annotated[
        float | None, typer.Option("--quality", help="Find the fastest M × P_degree for it.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", help="Communication mode. Default: the run's.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="Communication precision. Default: the run's.")
    ] = None,
    activations: Annotated[
        Path | None,
        typer.Option("--activations", help="Run that divided its model: divide it so here."),
    ] = None,
    tensor: Annotated[
        int | None, typer.Option("--tensor", min=1, help="Tensor ranks. Default: --activations'.")
    ] = None,
    pipeline: Annotated[
        int | None, typer.Option("--pipeline", min=1, help="Stages. Default: --activations'.")
    ] = None,
    microbatches: Annotated[
        int | None, typer.Option("--microbatches", min=1, help="Default: one per stage.")
    ] = None,
    activation_bytes: Annotated[
        str | None,
        typer.Option("--activation-bytes", help="Activations of an image at a cut, e.g. 3.2MB."),
    ] = None,
    staged: Annotated[
        bool | None,
        typer.Option(
            "--staged/--unstaged",
            help="Copy data to the nodes, or read the shared file system. Default: as the run.",
        ),
    ] = None,
    sharded: Annotated[bool, typer.Option("--sharded", help="FSDP2 instead of DDP.")] = False,
    node_mtbf: Annotated[
        str | None, typer.Option("--node-mtbf", help="Time between failures of a node, e.g. 5y.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder. Default: runs/projections/<run>-<system>."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Project a run's ensemble to a system that can't be measured.

    Replays its steps with SimGrid: FLOPS, VFLOPS, time, energy, the best (M, P_degree), and what
    doubling a part would bring. A projection is no result.

    Example: ai500 project --system frontier --run docs/examples/h200 --accelerators 1024
    """
    simulator.require_simgrid()
    if mode is not None:
        check_known(mode, [*topology.GRIDS, *schedules.ROUNDS], key="--mode")
    if precision is not None:
        check_known(precision, WIRE_BYTES, key="--precision")
    if wanted is not None and not math.isfinite(wanted):
        raise InputError(f"--quality {wanted}: a finite number is needed.", key="--quality",
                         value=wanted)  # fmt: skip
    target = platform.read(system)
    work = application.read_all(run, also or [], activations=activations)
    divided = work.activations
    settings = Settings(
        mode=mode,
        precision=precision,
        batch=batch,
        tensor_degree=tensor or (divided.tensor_degree if divided else 1),
        pipeline_degree=pipeline or (divided.pipeline_degree if divided else 1),
        microbatches=microbatches or (divided.microbatches if divided else None),
        activation_bytes=_parsed(activation_bytes, "bytes", key="--activation-bytes"),
        sharded=sharded,
        staged=staged,
        node_mtbf_seconds=_parsed(node_mtbf, "time", key="--node-mtbf"),
    )
    if microbatches is not None and settings.pipeline_degree == 1:
        raise InputError(
            "--microbatches divides the batches of a pipeline, and there is none.",
            key="--microbatches",
            value=microbatches,
            remedy="Give --pipeline or --activations, too.",
        )
    result = answer(
        work,
        target,
        settings,
        version=__version__,
        accelerators=accelerators or target.accelerators,
        degree=degree,
        sweep=sweep,
        wanted=wanted,
    )
    folder = out or FOLDER / f"{run.resolve().name}-{Path(system).stem}"
    run_folder.write(folder / "projection.json", result)
    page.write_csv(folder / "projection.csv", result)
    page.write_page(folder / "projection.html", result)
    if as_json:
        print_json(result)
        return
    _show(result)
    for name in ("projection.html", "projection.csv", "projection.json"):
        console.print(str(folder / name), soft_wrap=True, markup=False)


def _parsed(text: str | None, kind: Kind, *, key: str) -> float | None:
    return None if text is None else parse(text, kind, key=key)


def _shared(point: Projection) -> str:
    """Return the divisor of Eq. 5 where members share accelerators [D11]."""
    sharing = point.ensemble_size * point.parallel_degree // point.accelerators
    return f" / {sharing} members on each" if sharing > 1 else ""


def _idle(choice: Projection, point: Projection) -> str:
    """Return the accelerators that make no whole member."""
    idle = point.accelerators - choice.accelerators
    return f", {idle:,} idle" if idle else ""


def _show(result: Answer) -> None:
    point = result.projection
    mark = " (extrapolated)" if point.quality_extrapolated else ""
    grown = ", grown by the same shape" if result.grown else ""
    rows(
        f"Projection: {result.run} on {result.system}{grown}",
        [
            ("Eq. 5", f"{point.accelerators:,} accelerators = M {point.ensemble_size:,} × "
             f"P_degree {point.parallel_degree:,}{_shared(point)}"),
            ("FLOPS", f"{flops(point.flops)} ({flops(point.low_flops)} to "
             f"{flops(point.high_flops)}), efficiency {point.efficiency:.1%}"),
            ("VFLOPS", known(point.vflops, lambda value: f"{human_si(value)}VFLOPS", "not known")
             + f", quality {page.projected_quality(point)}{mark}"),
            ("step", f"{human_seconds(point.step_seconds)}, communication exposed "
             f"{human_seconds(point.exposed_seconds)}; bound by {point.bound}"),
            ("time", f"{human_seconds(point.seconds)}, and staging "
             f"{human_seconds(point.staging_seconds)}"),
            ("energy", known(point.energy_joules, lambda joules: f"{human_si(joules)}J",
                             "not known")),
        ],
    )  # fmt: skip
    rows(
        "M × P_degree",
        [(f"{choice.ensemble_size:,} × {choice.parallel_degree:,}",
          f"{flops(choice.flops)}, {choice.efficiency:.1%}, {human_seconds(choice.seconds)}, "
          f"quality {page.projected_quality(choice)}{_idle(choice, point)}")
         for choice in result.choices],
    )  # fmt: skip
    rows("Doubled", [(gain.part, f"FLOPS {gain.flops_gain:.3f}×, speed with staging "
                      f"{gain.total_gain:.3f}×") for gain in result.gains])  # fmt: skip
    console.print(page.sentence(result), markup=False)
