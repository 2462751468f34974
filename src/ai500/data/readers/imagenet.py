"""ImageNet (ILSVRC 2012) as it is published: archives are read in place, nothing is unpacked.

    ILSVRC2012_img_train.tar        a tar of 1,000 tars, n01440764.tar …, one for each class
    ILSVRC2012_img_val.tar          50,000 images in no class folder; or a folder of them
    ILSVRC2012_devkit_t12.tar.gz    the validation images' classes, by the devkit's own numbers

Classes are numbered in the order of their WordNet names, as PyTorch and Caffe number them. The
devkit numbers them otherwise: its `meta.mat` translates.
"""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from ai500.core.errors import DataError
from ai500.data.readers.image_list import (
    Entry,
    ImageList,
    is_image,
    members,
    members_within,
)
from ai500.data.readers.matlab import read_structs
from ai500.data.readers.protocol import Ignored
from ai500.data.store import data_error

TRAIN_ARCHIVE = "ILSVRC2012_img_train.tar"
VALIDATION_ARCHIVE = "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
LISTS = (
    DEVKIT,
    TRUTH,
    f"data/{TRUTH}",
    f"ILSVRC2012_devkit_t12/data/{TRUTH}",
    "val.txt",
    "imagenet_2012_validation_synset_labels.txt",
    "synset_labels.txt",
    "LOC_val_solution.csv",
)
"""Files with the validation images' classes, where they are looked for beside the images."""
KNOWN_LISTS = (
    f"Put {DEVKIT} (or its {TRUTH} with {META}), Caffe's val.txt or Kaggle's "
    "LOC_val_solution.csv beside the images, or pass --validation-list FILE."
)


def holds_archives(archive: Path) -> bool:
    """Return True for a tar archive whose first file is a tar archive."""
    first = next(islice(members(archive), 1), None)
    return first is not None and first[0].endswith(".tar")


def archive_of_classes(archive: Path, ignored: Ignored) -> tuple[tuple[str, ...], ImageList]:
    """List the images of a tar with a tar for each class."""
    inner: dict[str, tuple[int, int]] = {}
    for name, offset, size in members(archive):
        if name.endswith(".tar"):
            inner[name.rpartition("/")[2].removesuffix(".tar")] = offset, size
        else:
            ignored.add(name)
    classes = tuple(sorted(inner))
    images = ImageList(archive)
    for label, name in enumerate(classes):
        entries: list[Entry] = []
        for member, offset, size in members_within(archive, *inner[name]):
            if is_image(member):
                entries.append((f"{name}/{member}", label, offset, size))
            else:
                ignored.add(f"{name}/{member}")
        if not entries:
            raise data_error(archive, f"no image in {name}.tar.", "Copy the archive again.")
        for entry in sorted(entries):
            images.add(*entry)
    return classes, images


def flat_validation(
    place: Path,
    *,
    classes: Sequence[str],
    source: Path,
    label_list: Path | None,
    ignored: Ignored,
) -> ImageList:
    """List validation images that are in no class folder, with the classes of a list."""
    places: dict[str, tuple[int, ...]] = {}
    if place.is_dir():
        names = sorted(path.name for path in place.iterdir() if path.is_file())
        files: Sequence[tuple[str, tuple[int, ...]]] = [(name, ()) for name in names]
    else:
        files = [(name, (offset, size)) for name, offset, size in members(place)]
    for name, where in files:
        if is_image(name):
            places[name] = where
        elif label_list is None or name != label_list.name:
            ignored.add(f"{place.name}/{name}")
    if not places:
        raise data_error(place, "no image in it.", KNOWN_LISTS)
    folders = dict.fromkeys((source, place if place.is_dir() else source))
    file = label_list or next(
        (folder / name for folder in folders for name in LISTS if (folder / name).is_file()),
        None,
    )
    if file is None:
        raise data_error(place, "no list of the images' classes beside it.", KNOWN_LISTS)
    names = sorted(places, key=lambda name: name.rpartition("/")[2])
    labels = validation_labels(file, images=names, classes=classes)
    images = ImageList(place)
    for name in names:
        images.add(name, labels[_stem(name)], *places[name])
    return images


def _stem(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[0]


def validation_labels(
    file: Path, *, images: Sequence[str], classes: Sequence[str]
) -> dict[str, int]:
    """Read a list of the validation images' classes: label by the image's name without suffix.

    A line has a class in the order of the images' names, or a name and its class. A class is a
    WordNet name, or a number: after a name from 0 in the order of the WordNet names (Caffe), alone
    from 1 in the devkit's order.
    """
    text, meta = _read_list(file)
    rows = [row for row in _rows(text) if row]
    stems = [_stem(name) for name in images]
    if all(len(row) == 1 for row in rows):
        if len(rows) != len(stems):
            raise data_error(
                file,
                f"has {len(rows)} classes for {len(stems)} images.",
                "It must have a line for each image, in the order of their names.",
                value=len(rows),
            )
        values = dict(zip(stems, (row[0] for row in rows), strict=True))
        order = _devkit_order(file, meta, classes) if rows[0][0].isdigit() else classes
        first = 1 if rows[0][0].isdigit() else 0
    else:
        values = {row[0].rpartition("/")[2].split(".")[0]: row[1] for row in rows if len(row) > 1}
        order, first = classes, 0
    labels = {name: number for number, name in enumerate(classes)}
    result: dict[str, int] = {}
    for stem in stems:
        if stem not in values:
            raise data_error(file, f"no class for the image {stem}.", KNOWN_LISTS, value=stem)
        value = values[stem]
        if value.isdigit() and 0 <= int(value) - first < len(order):
            value = order[int(value) - first]
        if value not in labels:
            raise data_error(
                file,
                f"{stem} has class {value!r}, which is not among the {len(classes)} classes of "
                "the training images.",
                "Use the list that belongs to these images.",
                value=value,
            )
        result[stem] = labels[value]
    return result


def _rows(text: str) -> list[list[str]]:
    """Cut a list into words; of Kaggle's table the image and the first class."""
    if text.startswith("ImageId,"):
        table = list(csv.reader(io.StringIO(text)))[1:]
        return [[row[0], row[1].split()[0]] for row in table if len(row) > 1 and row[1].split()]
    return [line.split() for line in text.splitlines()]


def _read_list(file: Path) -> tuple[str, bytes | None]:
    """Return the text of a list, and the devkit's `meta.mat` where there is one."""
    try:
        if file.name.endswith((".tar.gz", ".tgz", ".tar")):
            with tarfile.open(file) as archive:
                parts: dict[str, bytes] = {}
                for member in archive:
                    name = member.name.rpartition("/")[2]
                    content = archive.extractfile(member) if name in (TRUTH, META) else None
                    if content is not None:
                        parts[name] = content.read()
            if TRUTH not in parts:
                raise data_error(file, f"no {TRUTH} in it.", KNOWN_LISTS)
            return parts[TRUTH].decode(), parts.get(META)
        meta = file.with_name(META)
        return file.read_text(), meta.read_bytes() if meta.is_file() else None
    except (OSError, UnicodeDecodeError, tarfile.TarError, EOFError) as error:
        raise data_error(file, f"cannot be read as a list of classes: {error}.") from error


def _devkit_order(file: Path, meta: bytes | None, classes: Sequence[str]) -> Sequence[str]:
    """Return the classes' WordNet names in the order of the devkit's numbers."""
    if meta is None:
        raise data_error(
            file,
            f"has the devkit's numbers, which {META} translates; it is not there.",
            f"Put the devkit's {META} beside it, or use {DEVKIT} as it is published.",
        )
    try:
        structs = read_structs(meta, "synsets")
        names = {int(entry["ILSVRC2012_ID"]): str(entry["WNID"]) for entry in structs}
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise data_error(
            file.with_name(META), f"cannot be read: {error}.", "Copy the devkit again."
        ) from error
    return _leaves(names, classes, file)


def _leaves(names: Mapping[int, str], classes: Sequence[str], file: Path) -> list[str]:
    # The leaves, which images belong to, are numbered from 1; higher numbers are their ancestors.
    order = [names.get(number, "") for number in range(1, len(classes) + 1)]
    missing = sorted(set(classes) - set(order))
    if missing:
        raise DataError(
            f"{file}: its {META} has no class {missing[0]}.", path=file, value=missing[0],
            remedy="Use the devkit that belongs to these images.",
        )  # fmt: skip
    return order
