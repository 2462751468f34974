"""`ai500 data`: make and check packed stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.start import AsJson, ClassName, WorkloadName
from ai500.cli.terminal import Terminal, console
from ai500.config import Config, load
from ai500.data.class_data import generate_store
from ai500.data.pack import Packed, pack_folder
from ai500.data.pack_arrays import pack_arrays
from ai500.data.store import Store

app = typer.Typer(help="Make, pack and check data.", no_args_is_help=True, rich_markup_mode=None)
Workers = Annotated[
    int | None, typer.Option("--workers", help="Processes. Default: all cores.", min=1)
]


@app.command()
def pack(
    source: Annotated[
        Path, typer.Argument(help="Folder of class folders of images, a .npy or a .npz file.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the store.")],
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Labels (.npy) of a .npy of images.")
    ] = None,
    size: Annotated[int, typer.Option("--size", help="Side of a packed image, in pixels.")] = 256,
    validation: Annotated[
        float, typer.Option("--validation", help="Share held out where no split is given.")
    ] = 0.1,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Pack images into a store that training reads without decoding. Restartable.

    Example: ai500 data pack /data/imagenet --out stores/imagenet
    """
    with Terminal(quiet=as_json) as terminal:
        terminal.stage(f"packing {source}")
        if source.suffix in (".npy", ".npz"):
            packed = pack_arrays(
                source, out,
                labels=labels, validation_fraction=validation, workers=workers,
                progress=terminal.progress,
            )  # fmt: skip
        else:
            packed = pack_folder(
                source, out,
                size=size, validation_fraction=validation, workers=workers,
                progress=terminal.progress,
            )  # fmt: skip
    _tell(packed.store, packed=packed, as_json=as_json)


@app.command()
def generate(
    workload: WorkloadName = None,
    problem_class: ClassName = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder. Default: the cache.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the learnable data of a class: the same bytes on every machine. Restartable.

    Example: ai500 data generate --workload image_classification --class smoke
    """
    flags = {"workload": workload, "problem_class": problem_class}
    config: Config = load(overrides={k: v for k, v in flags.items() if v is not None})
    with Terminal(quiet=as_json) as terminal:
        terminal.stage("data of the class")
        store = generate_store(
            config.workload, config.problem_class, progress=terminal.progress, path=out
        )
    _tell(store, packed=None, as_json=as_json)


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="Folder of a store.")], as_json: AsJson = False
) -> None:
    """Hold every byte of a store against its manifest.

    Example: ai500 data check stores/imagenet
    """
    store = Store.open(path)
    with Terminal(quiet=as_json) as terminal:
        terminal.stage(f"checking {path}")
        store.verify(terminal.progress)
    _tell(store, packed=None, as_json=as_json)


def _tell(store: Store, *, packed: Packed | None, as_json: bool) -> None:
    splits = {name: split.count for name, split in store.splits.items()}
    if as_json:
        print(
            json.dumps(
                {
                    "path": str(store.path),
                    "name": store.name,
                    "sha256": store.sha256,
                    "classes": len(store.classes),
                    "splits": splits,
                    "unreadable": packed.unreadable if packed else 0,
                    "ignored": packed.ignored if packed else 0,
                },
                indent=2,
            )
        )
        return
    counts = ", ".join(f"{count} {name}" for name, count in splits.items())
    console.print(f"{store.path}: {counts}, {len(store.classes)} classes", soft_wrap=True)
    console.print(f"SHA-256 {store.sha256}", soft_wrap=True)
    if packed and packed.unreadable:
        console.print(f"{packed.unreadable} unreadable images left out: see unreadable.json")
    if packed and packed.ignored:
        console.print(f"{packed.ignored} files that are no images by their names were ignored")
