"""Arguments that several commands share; imported without the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, e.g. runs/my-run.")]
ReadRunPath = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="Run folder. Default: the newest in runs/."),
]
TrustedKeys = Annotated[
    Path | None,
    typer.Option(
        "--trusted-keys", help="Public key (PEM) that is trusted, or a folder of such keys."
    ),
]
