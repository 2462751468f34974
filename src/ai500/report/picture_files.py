"""The pictures that a trial left for the report, read from its folder.

What is there may come from a stranger: an image is a PNG of that very folder, or is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ai500.core.errors import AI500Error
from ai500.records import run_folder
from ai500.records.illustrations import Illustrations
from ai500.records.run_folder import TrialFolder

PNG = b"\x89PNG\r\n\x1a\n"
LARGEST_IMAGE_BYTES = 300_000
MOST_IMAGES = 4
"""With their bytes: a report stays under 2 MB."""


@dataclass(frozen=True)
class TrialPictures:
    """The record, and those of its images that can be shown."""

    illustrations: Illustrations
    images: Mapping[str, bytes]


def read_pictures(trial: TrialFolder) -> TrialPictures | None:
    """None where the workload shows nothing, or an older version ran."""
    if not trial.pictures_record.exists():
        return None
    try:
        record = run_folder.read(Illustrations, trial.pictures_record)
    except AI500Error as error:
        return TrialPictures(Illustrations("Pictures", (f"Not shown: {error}",)), {})
    names = dict.fromkeys(name for one in record.pictures for name in (one.file, one.shading.file))
    found = {name: _image(trial, name) for name in list(names)[:MOST_IMAGES]}
    return TrialPictures(record, {name: data for name, data in found.items() if data})


def _image(trial: TrialFolder, name: str) -> bytes | None:
    path = trial.pictures / name
    try:
        if path.parent != trial.pictures or path.is_symlink():
            return None
        with path.open("rb") as file:
            data = file.read(LARGEST_IMAGE_BYTES + 1)
    except (OSError, ValueError):
        return None
    return data if data.startswith(PNG) and len(data) <= LARGEST_IMAGE_BYTES else None
