"""Finds the reader of a source by what it is; a source that none reads says what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ai500.core.errors import DataError
from ai500.data.climate.schema import CHANNELS, year_files
from ai500.data.readers.arrays import hdf5_table, npy_table, npz_table
from ai500.data.readers.image_tree import read_archive, read_folder
from ai500.data.readers.naming import Choice
from ai500.data.readers.parquet import class_names, parquet_table
from ai500.data.readers.protocol import (
    TRAIN,
    VALIDATION,
    VALIDATION_NAMES,
    Reader,
    Stream,
)
from ai500.data.readers.python_source import is_factory, python_source
from ai500.data.readers.tables import Table, table_source
from ai500.data.store import data_error

HDF5_SUFFIXES = (".h5", ".hdf5", ".nc", ".he5")
TABLES: dict[str, Callable[[Path], Table]] = {
    ".npz": npz_table,
    ".parquet": parquet_table,
    **dict.fromkeys(HDF5_SUFFIXES, hdf5_table),
}
FACTORY = "Read it in Python: `ai500 data pack module:factory`; docs/data.md has recipes."
INSTEAD = {
    ".gz": "Unpack it first: gunzip; a .tar is then read as it is.",
    ".tgz": "Unpack it first: gunzip; a .tar is then read as it is.",
    ".bz2": "Unpack it first: bunzip2, or tar xjf.",
    ".xz": "Unpack it first: unxz, or tar xJf.",
    ".zst": "Unpack it first: unzstd.",
    ".zip": "Unpack it first: unzip.",
    ".7z": "Unpack it first: 7z x.",
    ".rar": "Unpack it first: unrar x.",
    ".tfrecord": FACTORY,
    ".tfrecords": FACTORY,
    ".mdb": FACTORY,
    ".lmdb": FACTORY,
    ".rec": FACTORY,
    ".zarr": FACTORY,
    ".pt": f"It holds pickled objects. {FACTORY}",
    ".pth": f"It holds pickled objects. {FACTORY}",
    ".pkl": f"It holds pickled objects. {FACTORY}",
    ".mat": f"Save it with MATLAB's -v7.3 and rename it to .h5. Or: {FACTORY}",
    ".csv": "Save its numbers as .npz or .parquet: pandas.read_csv(…).to_parquet(…).",
    ".tsv": "Save its numbers as .npz or .parquet: pandas.read_csv(…).to_parquet(…).",
    ".json": "Save its numbers as .npz or .parquet: pandas.read_json(…).to_parquet(…).",
    ".jsonl": "Save its numbers as .npz or .parquet: pandas.read_json(…).to_parquet(…).",
    ".arrow": "Save it as Parquet: datasets.load_from_disk(…).to_parquet(…).",
    ".grib": "Convert it to netCDF 4 first: grib_to_netcdf -k 4.",
    ".grb": "Convert it to netCDF 4 first: grib_to_netcdf -k 4.",
    ".fits": FACTORY,
    ".txt": f"Turn the text into tokens. {FACTORY}",
    ".bin": "Name its type and shape: numpy.fromfile(…).reshape(…), saved by numpy.save.",
    ".raw": "Name its type and shape: numpy.fromfile(…).reshape(…), saved by numpy.save.",
}
"""Remedy for a file that no reader takes, by suffix."""
READABLE = (
    "Readable are folders of images, .tar (class folders, or ImageNet's), .npy, .npz, .h5, "
    ".parquet, folders of these, and module:factory."
)


@dataclass(frozen=True)
class Options:
    """Options for reading a source."""

    size: int = 256
    """Side of a packed image, in pixels."""
    validation_fraction: float = 0.1
    seed: int = 0
    """Seed of the choice of validation samples."""
    labels: Path | None = None
    """Labels of a .npy of images."""
    validation_list: Path | None = None
    """Classes of validation images that are in no class folder."""
    inputs: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    ragged: frozenset[str] = field(default_factory=frozenset)
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Least and largest valid value of fields that have limits."""

    @property
    def choice(self) -> Choice:
        """Choice of columns."""
        return Choice(self.inputs, self.targets, self.ragged, self.size)


def open_source(source: str | Path, options: Options, *, out: Path) -> Reader | Stream:
    """Open a source; `out` is the store's folder, which is no part of it."""
    opened = _open(source, options, out=out)
    names = {field.name for field in opened.fields}
    for option, fields in (("--ragged", options.ragged), ("--limits", options.limits)):
        for name in sorted(set(fields) - names):
            raise DataError(
                f"{source}: {option} names the field {name!r}; there are "
                f"{', '.join(sorted(names))}.",
                key=option,
                value=name,
                remedy="Name one of them.",
            )
    return opened


def _open(source: str | Path, options: Options, *, out: Path) -> Reader | Stream:
    text, path = str(source), Path(source)
    if not path.exists() and is_factory(text):
        _refuse_list(source, options)
        return python_source(
            text,
            choice=options.choice,
            fraction=options.validation_fraction,
            seed=options.seed,
        )
    try:
        if not path.exists():
            raise data_error(path, "no such file or folder.", READABLE)
        return _open_folder(path, options, out=out) if path.is_dir() else _open_file(path, options)
    except OSError as error:
        where = error.filename or path
        raise data_error(where, f"cannot read this: {error.strerror or error}.") from error


def _open_file(path: Path, options: Options) -> Reader | Stream:
    suffix = path.suffix.lower()
    if suffix == ".tar":
        return read_archive(
            path,
            size=options.size,
            fraction=options.validation_fraction,
            seed=options.seed,
            validation_list=options.validation_list,
        )
    if suffix == ".npy":
        return _tables(path.stem, [(None, _npy(path, options))], options)
    if suffix in TABLES:
        names = class_names(path) if suffix == ".parquet" else ()
        if options.labels is not None:
            raise data_error(
                path, "comes with --labels, which is for a .npy.", "Leave --labels out.",
                value=str(options.labels),
            )  # fmt: skip
        return _tables(path.stem, [(None, TABLES[suffix](path))], options, class_names=names)
    remedy = INSTEAD.get(suffix, f"{READABLE} Anything else: {FACTORY}")
    raise data_error(
        path,
        f"no reader for this file ({suffix or 'no suffix'}).",
        remedy,
        value=suffix,
    )


def _npy(path: Path, options: Options) -> Table:
    if options.labels is not None:
        return npy_table({"images": path, "labels": options.labels}, path=path)
    raise data_error(
        path,
        "has one array; samples need inputs and targets.",
        "Pass --labels LABELS.npy, save both in one .npz, or pass a folder with inputs….npy and "
        "targets….npy.",
    )


def _tables(
    name: str,
    tables: list[tuple[str | None, Table]],
    options: Options,
    *,
    class_names: tuple[str, ...] = (),
) -> Reader | Stream:
    _refuse_list(tables[0][1].path, options)
    return table_source(
        name,
        tables,
        choice=options.choice,
        fraction=options.validation_fraction,
        seed=options.seed,
        class_names=class_names,
    )


def _refuse_list(source: str | Path, options: Options) -> None:
    """Refuse the list of ImageNet's validation images for a source that is no image files."""
    if options.validation_list is not None:
        raise DataError(
            f"{source} comes with --validation-list, which is for files of images.",
            key="--validation-list",
            value=str(options.validation_list),
            remedy="Leave --validation-list out.",
        )


def _open_folder(folder: Path, options: Options, *, out: Path) -> Reader | Stream:
    folder = folder.resolve()
    files = [path for path in _files(folder) if out.resolve() not in path.parents]
    for suffixes in ((".parquet",), (".npz",), HDF5_SUFFIXES):
        chosen = [path for path in files if path.suffix.lower() in suffixes]
        if chosen:
            _refuse_climate(folder, suffixes)
            opened = [
                (_split_of(path, folder), TABLES[path.suffix.lower()](path)) for path in chosen
            ]
            names = class_names(chosen[0]) if suffixes == (".parquet",) else ()
            return _tables(folder.name, opened, options, class_names=names)
    arrays = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in files
        if path.suffix.lower() == ".npy"
    }
    if arrays:
        return _tables(folder.name, [(None, npy_table(arrays, path=folder))], options)
    unread = next((path for path in files if path.suffix.lower() in _FORMATS), None)
    if unread is not None:
        raise data_error(
            folder,
            f"holds {unread.name}.",
            INSTEAD[unread.suffix.lower()],
            value=unread.suffix,
        )
    return read_folder(
        folder,
        without=out,
        size=options.size,
        fraction=options.validation_fraction,
        seed=options.seed,
        validation_list=options.validation_list,
    )


# In a folder of images, these are data of another kind and no stray files.
_FORMATS = (
    ".tfrecord",
    ".tfrecords",
    ".mdb",
    ".lmdb",
    ".rec",
    ".arrow",
    ".grib",
    ".grb",
    ".fits",
)


def _files(folder: Path) -> list[Path]:
    """List the files at the top of a folder and in its folders of splits."""
    places = [folder, *(folder / name for name in (TRAIN, *VALIDATION_NAMES, "test"))]
    return sorted(
        path
        for place in places
        if place.is_dir()
        for path in place.iterdir()
        if path.is_file() and path.name[0] != "."
    )


def _split_of(path: Path, folder: Path) -> str | None:
    """Return the split that a file's name or folder says."""
    name = path.parent.name if path.parent != folder else path.name
    for prefix, split in ((TRAIN, TRAIN), ("val", VALIDATION), ("test", "test")):
        if name.lower().startswith(prefix):
            return split
    return None


def _refuse_climate(folder: Path, suffixes: tuple[str, ...]) -> None:
    if suffixes is not HDF5_SUFFIXES:
        return
    years = year_files(folder)
    if years and set(hdf5_table(next(iter(years.values()))).columns) == {
        "images",
        "boxes",
    }:
        raise DataError(
            f"{folder} has years of climate data ({len(CHANNELS)} channels), which are a store "
            "as they are.",
            path=folder,
            remedy=f"Check them with `ai500 data check {folder}`, train with --data {folder}.",
        )
