"""`ai500 data`: make, pack and check data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.arguments import AsJson
from ai500.cli.options import ConfigOptions, with_options
from ai500.cli.terminal import Terminal, console, print_json
from ai500.config import load
from ai500.core.errors import InputError, RuleError
from ai500.data.open_store import reader_of
from ai500.data.pack import Packed, pack_source
from ai500.data.published_files import compare_published, published_files
from ai500.data.published_files import record as record_published
from ai500.data.readers.open_source import Options, open_source
from ai500.data.readers.protocol import Ignored
from ai500.data.store import CheckReport, Store, facts_of, summary_of
from ai500.workloads.class_data import generate_resized, generate_store
from ai500.workloads.climate.recipe import LEAST_HEIGHT, LEAST_WIDTH

app = typer.Typer(help="Make, pack and check data.", no_args_is_help=True, rich_markup_mode=None)
PROBLEMS_SHOWN = 20
Workers = Annotated[
    int | None, typer.Option("--workers", help="Processes. Default: all cores.", min=1)
]


@app.command()
def pack(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Folder of images, .tar, .npy, .npz, .h5, .parquet, a folder of these, or "
            "module:factory, which runs that Python code.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the store.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="Array that is an input, NAME or FIELD=NAME; repeatable."),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option("--target", help="Array that is a target, NAME or FIELD=NAME; repeatable."),
    ] = None,
    ragged: Annotated[
        list[str] | None,
        typer.Option("--ragged", help="Field whose samples differ in length; repeatable."),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limits",
            help="Least and largest valid value of a field, FIELD=LEAST:LARGEST; repeatable.",
        ),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Labels (.npy) of a .npy of images.")
    ] = None,
    size: Annotated[
        int, typer.Option("--size", help="Side of a packed image, in pixels.", min=1)
    ] = 256,
    validation: Annotated[
        float, typer.Option("--validation", help="Validation share, if there is no split.")
    ] = 0.1,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the choice of validation samples.")
    ] = 0,
    validation_list: Annotated[
        Path | None,
        typer.Option("--validation-list", help="Classes of validation images in no class folder."),
    ] = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Pack samples into a store that training reads without decoding.

    After an interruption the same command continues.

    Example: ai500 data pack photos --out stores/photos
    """
    options = Options(
        size=size, validation_fraction=validation, seed=seed, labels=labels,
        validation_list=validation_list, inputs=tuple(inputs or ()), targets=tuple(targets or ()),
        ragged=frozenset(ragged or ()), limits=dict(map(_limits, limits or ())),
    )  # fmt: skip
    with Terminal(quiet=as_json) as terminal:
        terminal.stage(f"listing {source}")
        opened = open_source(source, options, out=out)
        terminal.stage(f"packing {source}")
        packed = pack_source(
            opened, out, limits=options.limits, workers=workers, progress=terminal.progress
        )
        if files := published_files(Path(source)):
            terminal.stage("comparing with published hashes")
            compared = compare_published(files, progress=terminal.progress)
            record_published(out, sha256=packed.store.sha256, files=compared)
    _print_store(packed.store, packed=packed, as_json=as_json)


def _limits(text: str) -> tuple[str, tuple[float, float]]:
    """Parse FIELD=LEAST:LARGEST."""
    name, _, numbers = text.partition("=")
    try:
        least, largest = map(float, numbers.split(":"))
    except ValueError:
        least, largest = math.nan, math.nan
    if not least <= largest:
        raise InputError(
            f"--limits {text}: expected FIELD=LEAST:LARGEST, two numbers in order.",
            key="--limits",
            value=text,
            remedy="For example: --limits parameters=-1:1.",
        )
    return name, (least, largest)


@app.command()
@with_options(without=("config", "runs", "data", "scheduler", "settings"))
def generate(
    selected: ConfigOptions,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder. Default: the cache.")
    ] = None,
    frames: Annotated[
        int | None,
        typer.Option("--frames", help="Number of climate frames. Default: the class's.", min=2),
    ] = None,
    height: Annotated[
        int | None, typer.Option("--height", help="Height of frames, in pixels.", min=LEAST_HEIGHT)
    ] = None,
    width: Annotated[
        int | None, typer.Option("--width", help="Width of frames, in pixels.", min=LEAST_WIDTH)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Generate the synthetic data of a class, identical everywhere.

    After an interruption the same command continues.

    Example: ai500 data generate --workload image_classification --class smoke
    """
    if frames is None and (height or width):
        raise InputError("--height and --width need --frames.", key="--frames")
    config = load(overrides=selected.overrides())
    with Terminal(quiet=as_json) as terminal:
        terminal.stage("generating the data of the class")
        store = (
            generate_store(
                config.workload, config.problem_class, progress=terminal.progress, path=out
            )
            if frames is None
            else generate_resized(
                config.workload, config.problem_class, progress=terminal.progress, path=out,
                samples=frames, height=height, width=width,
            )
        )  # fmt: skip
    _print_store(store, packed=None, as_json=as_json)


@app.command()
def check(
    path: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a store, or of climate data.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check every byte of a store against its manifest.

    Climate data: check every year against the schema.

    Example: ai500 data check stores/photos
    """
    with Terminal(quiet=as_json) as terminal:
        terminal.stage(f"checking {path}")
        report = reader_of(path).check(path, terminal.progress)
    _print_report(report, as_json=as_json)


def _print_report(report: CheckReport, *, as_json: bool) -> None:
    """Print what was checked; problems end the command with the code of a broken rule."""
    count = len(report.problems)
    if as_json:
        problems = [
            {"file": each.file, "frame": None if each.frame < 0 else each.frame, "text": each.text}
            for each in report.problems[:PROBLEMS_SHOWN]
        ]
        result = {"problem_count": count, "problems": problems, "notes": report.notes}
        print_json({**report.facts, **result})
    else:
        for line in (*report.summary, *(f"note: {note}" for note in report.notes)):
            console.print(line, soft_wrap=True)
    if count:
        shown = [str(problem) for problem in report.problems[:PROBLEMS_SHOWN]]
        more = [f"… and {count - len(shown)} more"] if count > len(shown) else []
        number = "1 problem" if count == 1 else f"{count} problems"
        message = "\n  ".join([f"{report.path}: {number}:", *shown, *more])
        raise RuleError(message, path=report.path, value=count)
    if not as_json:
        console.print("no problem found")


def _print_store(store: Store, *, packed: Packed | None, as_json: bool) -> None:
    unreadable = packed.unreadable if packed else 0
    ignored = packed.ignored if packed else Ignored()
    if as_json:
        facts = {
            **facts_of(store),
            "unreadable": unreadable,
            "ignored": ignored.count,
            "ignored_examples": ignored.examples,
        }
        print_json(facts)
        return
    for line in summary_of(store):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    if unreadable:
        console.print(f"{unreadable} unreadable samples left out: see unreadable.json")
    if ignored.count:
        more = ", …" if ignored.count > len(ignored.examples) else ""
        names = ", ".join(ignored.examples) + more
        console.print(f"{ignored.count} ignored: {names}", soft_wrap=True, markup=False)
