"""Which kind of store a folder is: a packed one, or years of climate data."""

from __future__ import annotations

from pathlib import Path

from ai500.data.climate.schema import year_files
from ai500.data.climate.store import ClimateStore
from ai500.data.store import MANIFEST, Store
from ai500.data.store_writer import PLAN
from ai500.errors import DataError

AnyStore = Store | ClimateStore


def is_climate(path: Path) -> bool:
    """Whether a folder holds years of climate data rather than a packed store."""
    return not (path / MANIFEST).exists() and bool(year_files(path))


def open_store(path: Path) -> AnyStore:
    """The store in a folder, whichever kind it is; reads no sample."""
    if (path / PLAN).exists() and (any(path.glob("*.h5")) or any(path.glob("*.h5.part"))):
        raise DataError(
            f"{path}: is unfinished climate data. Run the same `ai500 data generate` again: it "
            "goes on where it stopped."
        )
    return ClimateStore.open(path) if is_climate(path) else Store.open(path)
