"""The schema of ExtremeWeather (Racah et al. 2017), as its web page documents it.

One HDF5 file per year, `climo_1979.h5` …, with two data sets:

    images   float32 [1460, 16, 768, 1152]   four frames a day; 16 channels; latitude; longitude
    boxes    [1460, 15, 5]                   ymin, xmin, ymax, xmax, class; rows of −1 are padding

Other numbers and sizes of frames are read in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import EnvironmentLacksError
from ai500.data.store import data_error
from ai500.records.fields import Field

CHANNELS = (
    "PRECT", "PS", "PSL", "QREFHT", "T200", "T500", "TMQ", "TREFHT",
    "TS", "U850", "UBOT", "V850", "VBOT", "Z1000", "Z200", "ZBOT",
)  # fmt: skip
"""In the files' order, which is alphabetical; the data set's page prints Z1000 as Z100."""
CLASSES = (
    "tropical depression",
    "tropical cyclone",
    "extratropical cyclone",
    "atmospheric river",
)
PIXEL_CLASSES = ("background", "tropical cyclone", "atmospheric river")
MOST_BOXES = 15
FRAMES_A_YEAR = 1460
FIRST_YEAR = 1979
HEIGHT, WIDTH = 768, 1152

Frames = NDArray[np.float32]
"""[N, 16, height, width]"""
Boxes = NDArray[np.float32]
"""[N, 15, 5]: ymin, xmin, ymax, xmax, class; −1 is padding."""
Masks = NDArray[np.uint8]
"""[N, height, width]: 0 background, 1 tropical cyclone, 2 atmospheric river."""


def frame_fields(height: int, width: int) -> tuple[Field, Field]:
    """Return the fields of a frame."""
    return (
        Field("images", "input", "float32", (len(CHANNELS), height, width)),
        Field("boxes", "target", "float32", (MOST_BOXES, 5)),
    )


def mask_fields(height: int, width: int) -> tuple[Field, Field]:
    """Return the fields of frames of this size: channels in SI units, a class for every pixel."""
    return (
        Field("images", "input", "float32", (len(CHANNELS), height, width)),
        Field("masks", "target", "uint8", (height, width), limits=(0, len(PIXEL_CLASSES) - 1)),
    )


_NAME = re.compile(r"(?:.*\D)?(\d{4})\.(?:h5|hdf5)")


def file_name(year: int) -> str:
    """Return the data set's name for the file of a year."""
    return f"climo_{year}.h5"


def year_of(path: Path) -> int | None:
    """Return the year in a file's name; None: not a file of the data set."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def year_files(folder: Path) -> dict[int, Path]:
    """Return the files of a folder by year, in order."""
    files: dict[int, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        year = year_of(path)
        if year is None or path.name.startswith("."):
            continue
        if year in files:
            raise data_error(
                folder,
                f"two files for the year {year}: {files[year].name} and {path.name}.",
                "Keep one.",
                key="year",
                value=year,
            )
        files[year] = path
    return dict(sorted(files.items()))


def missing_years(years: Sequence[int]) -> list[int]:
    """Return the years that are missing between the first and the last one."""
    return sorted(set(range(min(years), max(years) + 1)) - set(years)) if years else []


def hdf5() -> ModuleType:
    """Import h5py, or raise `EnvironmentLacksError`."""
    try:
        return import_module("h5py")
    except ImportError as error:
        raise EnvironmentLacksError(
            "climate data is HDF5 and needs h5py, which is not installed here.",
            remedy="Install it: pip install h5py",
        ) from error
