"""Images sorted into a folder, or a tar archive, with a folder for each class.

    SOURCE/train/<class>/…  and  SOURCE/val/<class>/…  (or validation/)
    SOURCE/<class>/…        a part of each class becomes the validation split

Classes are numbered in the order of their names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ai500.core.errors import DataError
from ai500.data.readers.image_list import (
    ImageList,
    ImageReader,
    image_reader,
    is_image,
    members,
)
from ai500.data.readers.imagenet import (
    LISTS,
    META,
    TRAIN_ARCHIVE,
    VALIDATION_ARCHIVE,
    archive_of_classes,
    flat_validation,
    holds_archives,
)
from ai500.data.readers.pixels import SUFFIXES
from ai500.data.readers.protocol import TRAIN, VALIDATION, VALIDATION_NAMES, Ignored
from ai500.data.readers.split import held_out
from ai500.data.store import data_error

EXPECTED_TREE = (
    "Expected SOURCE/train/<class>/*.jpg and SOURCE/val/<class>/*.jpg, or SOURCE/<class>/*.jpg; "
    f"or ImageNet's {TRAIN_ARCHIVE}."
)


def read_folder(
    source: Path,
    *,
    without: Path,
    size: int,
    fraction: float,
    seed: int = 0,
    validation_list: Path | None = None,
) -> ImageReader:
    """List the images below a folder; `without` is a folder in it that is not a class."""
    if not source.is_dir():
        raise data_error(source, "no such folder of images.", EXPECTED_TREE)
    source = source.resolve()
    ignored = Ignored()
    archive = source / TRAIN_ARCHIVE
    if archive.is_file():
        root = source
        classes, train = archive_of_classes(archive, ignored)
    else:
        root = source / TRAIN if _class_folders(source / TRAIN, without=without) else source
        classes = tuple(_class_folders(root, without=without))
        if not classes:
            raise data_error(source, "no class folder in it.", EXPECTED_TREE)
        train = _files_of(root, source, classes, ignored)
    validation = _validation(source, root, archive.is_file())
    _ignore_strays(source, root, validation, ignored, used=validation_list)
    if validation is None:
        return _divided(source.name, classes, train, ignored, size, fraction=fraction, seed=seed)
    if validation.is_file() or _is_flat(validation):
        held = flat_validation(
            validation,
            classes=classes,
            source=source,
            label_list=validation_list,
            ignored=ignored,
        )
    else:
        held = _sorted_validation(validation, root, source, classes, ignored, without=without)
    lists = {TRAIN: train, VALIDATION: held}
    return image_reader(source.name, classes, lists, size=size, ignored=ignored)


def read_archive(
    archive: Path,
    *,
    size: int,
    fraction: float,
    seed: int = 0,
    validation_list: Path | None = None,
) -> ImageReader:
    """List the images of a tar archive, which may be ImageNet's archive of archives."""
    ignored = Ignored()
    archive = archive.resolve()
    if holds_archives(archive):
        classes, train = archive_of_classes(archive, ignored)
        beside = _validation(archive.parent, archive.parent, published=True)
        if archive.name == TRAIN_ARCHIVE and beside is not None:
            held = flat_validation(
                beside, classes=classes, source=archive.parent, label_list=validation_list,
                ignored=ignored,
            )  # fmt: skip
            lists = {TRAIN: train, VALIDATION: held}
            return image_reader("ILSVRC2012", classes, lists, size=size, ignored=ignored)
        return _divided(archive.stem, classes, train, ignored, size, fraction=fraction, seed=seed)
    return _archived_tree(archive, ignored, size, fraction=fraction, seed=seed)


def _validation(source: Path, root: Path, published: bool) -> Path | None:
    """Return the archive or folder of validation images; None: there is none."""
    if (source / VALIDATION_ARCHIVE).is_file():
        return source / VALIDATION_ARCHIVE
    folders = [source / name for name in VALIDATION_NAMES if (source / name).is_dir()]
    return folders[0] if folders and (published or root != source) else None


def _ignore_strays(
    source: Path,
    root: Path,
    validation: Path | None,
    ignored: Ignored,
    *,
    used: Path | None,
) -> None:
    """Name the files that lie beside class folders."""
    places = {source, root}
    if validation is not None and validation.is_dir() and not _is_flat(validation):
        places.add(validation)
    known = {TRAIN_ARCHIVE, VALIDATION_ARCHIVE, *LISTS, META, used.name if used else ""}
    for place in sorted(places):
        for path in sorted(place.iterdir()):
            if path.is_file() and path.name not in known:
                ignored.add(path.relative_to(source).as_posix())


def _is_flat(folder: Path) -> bool:
    """Return True for a folder with images and no folder in it."""
    with os.scandir(folder) as entries:
        kinds = {entry.is_dir() for entry in entries if entry.name[0] != "."}
    return kinds == {False}


def _sorted_validation(
    folder: Path,
    root: Path,
    source: Path,
    classes: tuple[str, ...],
    ignored: Ignored,
    *,
    without: Path,
) -> ImageList:
    unknown = sorted(set(_class_folders(folder, without=without)) - set(classes))
    if unknown:
        raise data_error(
            folder / unknown[0],
            f"no such class in {root}.",
            "Both folders must have the same classes.",
        )
    held = _files_of(folder, source, classes, ignored)
    if not len(held):
        raise data_error(folder, "no image in it.", EXPECTED_TREE)
    return held


def _divided(
    name: str,
    classes: tuple[str, ...],
    images: ImageList,
    ignored: Ignored,
    size: int,
    *,
    fraction: float,
    seed: int,
) -> ImageReader:
    """Hold out a part of each class for validation."""
    keys = (images.name(number) for number in range(len(images)))
    train, held = held_out(keys, labels=images.labels, fraction=fraction, seed=seed)
    lists = {
        TRAIN: ImageList(images.root, images.entries(train.tolist())),
        VALIDATION: ImageList(images.root, images.entries(held.tolist())),
    }
    return image_reader(name, classes, lists, size=size, ignored=ignored)


def _class_folders(folder: Path, *, without: Path) -> list[str]:
    if not folder.is_dir():
        return []
    folders = [path for path in folder.iterdir() if path.name[0] != "." and path.is_dir()]
    names = sorted(path.name for path in folders if path.resolve() != without.resolve())
    for name in names:
        require_printable(name, folder / name)
    return names


def require_printable(name: str, path: Path) -> None:
    """Raise `DataError` for the name of a class that cannot be shown."""
    if not name.isprintable():
        raise DataError(
            f"{str(path)!r}: a class needs a printable name.",
            path=path,
            remedy="Rename it.",
        )


def _files_of(folder: Path, source: Path, classes: Sequence[str], ignored: Ignored) -> ImageList:
    """List the images of one split in order, and name the other files in class folders."""
    images = ImageList(source)
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            continue
        before = len(images)
        for path in _files_below(folder / name):
            relative = path.relative_to(source).as_posix()
            if is_image(path.name):
                images.add(relative, label)
            else:
                ignored.add(relative)
        if len(images) == before:
            kinds = ", ".join(sorted(SUFFIXES))
            raise data_error(
                folder / name,
                f"no image in this class ({kinds}).",
                "Delete or fill it.",
            )
    return images


def _files_below(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise data_error(error.filename, f"cannot list this folder: {error.strerror}.")

    for place, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        for name in sorted(names):
            yield Path(place, name)


def _archived_tree(
    archive: Path, ignored: Ignored, size: int, *, fraction: float, seed: int
) -> ImageReader:
    """List an archive of class folders, at its top or below one folder."""
    listed: list[tuple[list[str], tuple[int, int]]] = []
    for name, offset, length in members(archive):
        if is_image(name):
            listed.append((name.split("/"), (offset, length)))
        else:
            ignored.add(name)
    listed.sort()
    while listed and all(len(parts) > 2 for parts, _ in listed):
        if len({parts[0] for parts, _ in listed}) > 1:
            break
        listed = [(parts[1:], place) for parts, place in listed]
    tops = {parts[0] for parts, _ in listed}
    held_name = next((name for name in VALIDATION_NAMES if name in tops), None)
    split = TRAIN in tops and held_name is not None and all(len(parts) > 2 for parts, _ in listed)
    depth = 1 if split else 0
    flat = next((parts for parts, _ in listed if len(parts) < 2), None)
    if not listed or flat is not None:
        raise data_error(
            archive,
            f"{'/'.join(flat)} lies in no class folder." if flat else "no image in it.",
            "An archive needs <class>/*.jpg, or ImageNet's tar of a tar per class. For "
            "WebDataset's tars see `module:factory` in docs/data.md.",
        )
    classes = tuple(sorted({parts[depth] for parts, _ in listed}))
    for name in classes:
        require_printable(name, archive)
    labels = {name: label for label, name in enumerate(classes)}
    lists = {TRAIN: ImageList(archive), VALIDATION: ImageList(archive)}
    for parts, place in listed:
        to = VALIDATION if split and parts[0] != TRAIN else TRAIN
        lists[to].add("/".join(parts), labels[parts[depth]], *place)
    if split:
        return image_reader(archive.stem, classes, lists, size=size, ignored=ignored)
    return _divided(
        archive.stem, classes, lists[TRAIN], ignored, size, fraction=fraction, seed=seed
    )
