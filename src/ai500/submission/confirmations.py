"""Confirmations of a submission: checks beyond recomputing its score.

`verify` writes them beside the submission, mine.ai500.predictions.json and mine.ai500.rerun.json,
for the list to read. A confirmation names the file by its SHA-256, so it does not count for another
one. It is not signed: the list trusts everybody who can write to that folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ai500.core import __version__
from ai500.core.reading import file_sha256
from ai500.records import run_folder

FORMAT = 1
Kind = Literal["predictions", "rerun"]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Result of one additional check of a submission."""

    format: int
    kind: Kind
    submission_sha256: str
    """SHA-256 of the submission's file."""
    confirmed: bool
    statement: str
    """Result of the check, in one sentence."""
    date: str
    """Day of the check, UTC."""
    version: str
    """Version of ai500 that made it."""
    details: dict[str, Any]


def confirmation_path(submission: Path, kind: Kind) -> Path:
    """Return the file of a submission's confirmation."""
    return submission.with_name(f"{submission.name}.{kind}.json")


def write_confirmation(
    submission: Path, kind: Kind, *, confirmed: bool, statement: str, details: dict[str, Any]
) -> Path:
    """Write a confirmation beside its submission, in place of an earlier one."""
    path = confirmation_path(submission, kind)
    record = Confirmation(
        format=FORMAT,
        kind=kind,
        submission_sha256=file_sha256(submission),
        confirmed=confirmed,
        statement=statement,
        date=datetime.now(UTC).date().isoformat(),
        version=__version__,
        details=details,
    )
    run_folder.write(path, record)
    return path
