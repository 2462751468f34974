"""Packs an ImageNet-style folder tree of images into a store.

    SOURCE/train/<class>/…  and  SOURCE/val/<class>/…  (or validation/)
    SOURCE/<class>/…        a part of each class becomes the validation split

Classes are numbered in the order of their names. The short side of an image is resized to `size`
and the centre is cropped, as torchvision's Resize and CenterCrop do (like those, it ignores EXIF
rotation). An image that cannot be read is left out and listed in `unreadable.json` in the store.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ai500.core import atomic
from ai500.core.errors import DataError
from ai500.data.packed_store import PackedStore
from ai500.data.resumable_work import Chunk, Holes, Journal, Progress
from ai500.data.store import Arrays, data_error
from ai500.data.store_writer import Plan, StoreWriter, make_store
from ai500.records.fields import image_fields

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
TRAIN = "train"
VALIDATION = "validation"
VALIDATION_NAMES = ("val", "validation")
UNREADABLE = "unreadable.json"
EXPECTED_TREE = (
    "Expected SOURCE/train/<class>/*.jpg and SOURCE/val/<class>/*.jpg, or SOURCE/<class>/*.jpg."
)


@dataclass(frozen=True)
class Packed:
    """Result of packing."""

    store: PackedStore
    unreadable: int
    """Number of images left out; `unreadable.json` in the store lists them."""
    ignored: int
    """Number of files in class folders whose names are not those of images."""


@dataclass(frozen=True)
class Listing:
    """The images of a tree: their relative paths and labels, for each split."""

    classes: tuple[str, ...]
    files: dict[str, list[tuple[str, int]]]
    ignored: int

    @property
    def counts(self) -> dict[str, int]:
        return {split: len(files) for split, files in self.files.items()}

    def sha256(self) -> str:
        """Hash the paths and labels; the contents of the files do not count."""
        digest = hashlib.sha256()
        for split, files in self.files.items():
            for file, label in files:
                digest.update(os.fsencode(f"{split}\0{file}\0{label}\n"))
        return digest.hexdigest()


def list_folder(source: Path, *, validation_fraction: float, without: Path) -> Listing:
    """List the images of a tree; `without` is a folder in it that is not a class."""
    if not source.is_dir():
        raise data_error(source, "no such folder of images.", EXPECTED_TREE)
    train = source / TRAIN if _class_folders(source / TRAIN, without=without) else source
    classes = tuple(_class_folders(train, without=without))
    if not classes:
        raise data_error(source, "no class folder in it.", EXPECTED_TREE)
    files, ignored = _files_of(source, train, classes)
    validation = next(
        (source / name for name in VALIDATION_NAMES if (source / name).is_dir()), None
    )
    if train == source or validation is None:
        return Listing(classes, _part(files, fraction=validation_fraction), ignored)
    unknown = sorted(set(_class_folders(validation, without=without)) - set(classes))
    if unknown:
        raise data_error(
            validation / unknown[0],
            f"no such class in {train}.",
            "Both folders must have the same classes.",
        )
    validation_files, more_ignored = _files_of(source, validation, classes)
    if not validation_files:
        raise data_error(validation, "no image in it.", EXPECTED_TREE)
    return Listing(classes, {TRAIN: files, VALIDATION: validation_files}, ignored + more_ignored)


def _class_folders(folder: Path, *, without: Path) -> list[str]:
    if not folder.is_dir():
        return []
    folders = [f for f in folder.iterdir() if f.name[0] != "." and f.is_dir()]
    names = sorted(f.name for f in folders if f.resolve() != without.resolve())
    for name in names:
        if not name.isprintable():
            raise DataError(
                f"{folder / name!r}: a class needs a printable name.",
                path=folder / name,
                remedy="Rename it.",
            )
    return names


def _files_of(
    source: Path, folder: Path, classes: Sequence[str]
) -> tuple[list[tuple[str, int]], int]:
    """List the images of one split in order, and count the other files."""
    files: list[tuple[str, int]] = []
    ignored = 0
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            continue
        images, other_files = _images_below(folder / name)
        if not images:
            kinds = ", ".join(sorted(SUFFIXES))
            raise data_error(
                folder / name, f"no image in this class ({kinds}).", "Delete or fill it."
            )
        files += [(image.relative_to(source).as_posix(), label) for image in images]
        ignored += other_files
    return files, ignored


def _images_below(folder: Path) -> tuple[list[Path], int]:
    def fail(error: OSError) -> None:
        raise data_error(error.filename, f"cannot list this folder: {error.strerror}.")

    images: list[Path] = []
    other_files = 0
    for place, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        for name in sorted(names):
            if name[0] != "." and Path(name).suffix.lower() in SUFFIXES:
                images.append(Path(place, name))
            else:
                other_files += 1
    return images, other_files


def _part(files: list[tuple[str, int]], *, fraction: float) -> dict[str, list[tuple[str, int]]]:
    """Divide the files into training and validation."""
    keys, labels = [file for file, _ in files], [label for _, label in files]
    held = held_out(keys, labels=labels, fraction=fraction)
    return {
        TRAIN: [entry for i, entry in enumerate(files) if i not in held],
        VALIDATION: [files[i] for i in sorted(held)],
    }


def held_out(keys: Sequence[str], *, labels: Iterable[int], fraction: float) -> set[int]:
    """Return the places of the validation samples, chosen by a hash of their keys.

    They are `fraction` of each class, rounded; at least one where a class has two, and never all.
    """
    if not 0 < fraction < 1:
        raise DataError(
            f"validation_fraction = {fraction}: must lie between 0 and 1.",
            key="validation_fraction",
            value=fraction,
        )
    places: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(label, []).append(place)
    held: set[int] = set()
    for members in places.values():
        members.sort(key=lambda i: hashlib.blake2b(os.fsencode(keys[i]), digest_size=16).digest())
        number = max(1, round(fraction * len(members)))
        held.update(members[: min(number, len(members) - 1)])
    if not held:
        raise DataError(
            f"cannot hold out validation samples: each of {len(places)} classes has one sample.",
            remedy="Add images, or a folder SOURCE/val.",
        )
    return held


def pack_folder(
    source: Path,
    out: Path,
    *,
    size: int = 256,
    validation_fraction: float = 0.1,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Pack a tree of images; after a kill, the same call resumes."""
    if not 1 <= size <= 4096:
        raise DataError(
            f"size = {size}: the side of a packed image must be 1 to 4096 pixels.",
            key="size",
            value=size,
        )
    source = source.resolve()
    try:
        listing = list_folder(source, validation_fraction=validation_fraction, without=out)
    except OSError as error:
        raise data_error(error.filename, f"cannot read this: {error.strerror}.") from error
    plan = Plan(
        name=source.name,
        classes=listing.classes,
        counts=listing.counts,
        fields=image_fields(size, size, classes=len(listing.classes)),
        origin=f"folder of images, listing {listing.sha256()}",
    )

    def make() -> PackedStore:
        writer = StoreWriter.create(out, plan)

        def job_of(chunk: Chunk) -> partial[Holes]:
            files = listing.files[chunk.split][chunk.first : chunk.last]
            return partial(_pack_chunk, writer, source, chunk, files)

        journal = writer.complete(job_of, workers=workers, progress=progress)
        _report_unreadable(out, journal, listing)
        return writer.finish(journal)

    store = make_store(out, make)
    unreadable = require_same(store, plan)
    return Packed(store, unreadable, listing.ignored)


def _pack_chunk(
    writer: StoreWriter, source: Path, chunk: Chunk, files: list[tuple[str, int]]
) -> Holes:
    images, labels = [], []
    holes: Holes = []
    height, _, _ = writer.plan.fields[0].shape
    for place, (file, label) in enumerate(files):
        try:
            images.append(decode(source / file, size=height))
            labels.append(label)
        except MemoryError:
            raise
        except Exception as error:  # a broken image may raise anything in a decoder
            why = f"{type(error).__name__}: {error}".replace(f"{source}{os.sep}", "")
            holes.append((chunk.first + place, why))
    stacked = np.stack(images) if images else np.zeros((0, height, height, 3), np.uint8)
    arrays: Arrays = {"images": stacked, "labels": np.array(labels, dtype=np.int64)}
    writer.write(chunk, arrays, holes=holes)
    return holes


def decode(file: Path, *, size: int) -> NDArray[np.uint8]:
    """Decode an image as RGB and scale its centre square to size × size, antialiased."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata is no reason to leave an image out
        with Image.open(file) as opened:
            image = opened.convert("RGB")
    short = min(image.size)
    left, top = (image.width - short) / 2, (image.height - short) / 2
    box = (left, top, left + short, top + short)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))


def _report_unreadable(out: Path, journal: Journal, listing: Listing) -> None:
    entries = [
        {"split": split, "file": os.fsencode(files[row][0]).decode(errors="replace"), "why": why}
        for split, files in listing.files.items()
        for row, why in journal.holes(split)
    ]
    if entries:
        atomic.write_json(out / UNREADABLE, entries)


def require_same(store: PackedStore, plan: Plan) -> int:
    """Return the number of unreadable images; raise `DataError` for another plan's store."""
    file = store.path / UNREADABLE
    listed = json.loads(file.read_bytes()) if file.exists() else []
    missing = Counter(entry["split"] for entry in listed)
    counts = {name: split.count + missing[name] for name, split in store.splits.items()}
    contents = (store.name, store.classes, counts, store.fields)
    if contents != (plan.name, plan.classes, plan.counts, plan.fields):
        raise data_error(
            store.path,
            f"holds another store: {store.name!r}, {len(store.classes)} classes, "
            f"{counts}, {store.fields[0]}; expected {plan.name!r}, {len(plan.classes)} classes, "
            f"{plan.counts}, {plan.fields[0]}.",
            "Delete it, or choose another folder.",
        )
    return len(listed)
