"""ImageNet as it is published: a tar of tars, a flat validation set and its lists of classes."""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ai500.core.errors import DataError
from ai500.data.pack import pack
from ai500.data.readers.imagenet import DEVKIT, META, TRAIN_ARCHIVE, TRUTH, VALIDATION_ARCHIVE
from ai500.data.readers.open_source import Options

CLASSES = ("n01440764", "n01443537", "n01484850")
DEVKIT_ORDER = ("n01484850", "n01440764", "n01443537")
"""The devkit numbers classes from 1 in an order of its own."""
VALIDATION_LABELS = (2, 0, 1, 1, 0)


def jpeg(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (20, 12), (value, value, value)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def tar_of(files: Mapping[str, bytes], *, mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def validation_name(number: int) -> str:
    return f"ILSVRC2012_val_{number + 1:08}.JPEG"


def write_train(folder: Path) -> None:
    """Class archives out of order; a pixel's value is 80 × class + 10 × number."""
    folder.mkdir(exist_ok=True)
    inner = {
        f"{CLASSES[label]}.tar": tar_of(
            {f"{CLASSES[label]}_{i}.JPEG": jpeg(80 * label + 10 * i) for i in (2, 0, 1, 3)}
        )
        for label in (1, 2, 0)
    }
    (folder / TRAIN_ARCHIVE).write_bytes(tar_of(inner))


def validation_samples() -> dict[str, bytes]:
    return {validation_name(i): jpeg(80 * label) for i, label in enumerate(VALIDATION_LABELS)}


def write_validation(folder: Path, *, as_folder: bool = False) -> None:
    images = validation_samples()
    if not as_folder:
        backwards = dict(reversed(images.items()))
        (folder / VALIDATION_ARCHIVE).write_bytes(tar_of(backwards))
        return
    (folder / "val").mkdir()
    for name, data in images.items():
        (folder / "val" / name).write_bytes(data)


def element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(array_class: int, shape: tuple[int, int], name: str, *parts: bytes) -> bytes:
    flags = element(6, struct.pack("<II", array_class, 0))
    sizes = element(5, struct.pack("<ii", *shape))
    return element(14, flags + sizes + element(1, name.encode()) + b"".join(parts))


def meta_mat(names: tuple[str, ...] = DEVKIT_ORDER) -> bytes:
    """MATLAB's file of level 5 as the devkit has it: compressed, numbers and texts as small types.

    The ancestors of the classes follow them, numbered on.
    """
    cells = b""
    for number, name in enumerate((*names, "n00001740"), 1):
        small = struct.pack("<HHI", 2, 1, number)  # one uint8 in the tag itself
        cells += matrix(6, (1, 1), "", small)
        cells += matrix(4, (1, len(name)), "", element(16, name.encode()))
        cells += matrix(4, (1, 2), "", element(4, "żó".encode("utf-16-le")))
    fields = b"".join(field.ljust(16, b"\0") for field in (b"ILSVRC2012_ID", b"WNID", b"words"))
    width = struct.pack("<HHI", 5, 4, 16)
    structs = matrix(2, (len(names) + 1, 1), "synsets", width, element(1, fields), cells)
    packed = zlib.compress(structs)
    header = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    return header + struct.pack("<II", 15, len(packed)) + packed


def truth_text() -> str:
    return "".join(f"{DEVKIT_ORDER.index(CLASSES[label]) + 1}\n" for label in VALIDATION_LABELS)


def write_devkit(folder: Path) -> None:
    top = "ILSVRC2012_devkit_t12/data"
    files = {f"{top}/{TRUTH}": truth_text().encode(), f"{top}/{META}": meta_mat()}
    (folder / DEVKIT).write_bytes(tar_of(files, mode="w:gz"))


def write_truth(folder: Path) -> None:
    (folder / TRUTH).write_text(truth_text())
    (folder / META).write_bytes(meta_mat())


def write_caffe(folder: Path) -> None:
    lines = [f"{validation_name(i)} {label}\n" for i, label in enumerate(VALIDATION_LABELS)]
    (folder / "val.txt").write_text("".join(reversed(lines)))


def write_synsets(folder: Path) -> None:
    (folder / "synset_labels.txt").write_text(
        "".join(f"{CLASSES[label]}\n" for label in VALIDATION_LABELS)
    )


def write_kaggle(folder: Path) -> None:
    rows = [
        f"{validation_name(i)[:-5]},{CLASSES[label]} 1 2 3 4 n99999999 5 6 7 8 \n"
        for i, label in enumerate(VALIDATION_LABELS)
    ]
    (folder / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + "".join(rows))


LISTS = {
    "devkit": write_devkit, "truth": write_truth, "Caffe": write_caffe,
    "synsets": write_synsets, "Kaggle": write_kaggle,
}  # fmt: skip


@pytest.mark.parametrize("as_folder", [False, True])
@pytest.mark.parametrize("kind", LISTS)
def test_published_files_are_read_in_place(tmp_path: Path, kind: str, as_folder: bool) -> None:
    source = tmp_path / "imagenet"
    write_train(source)
    write_validation(source, as_folder=as_folder)
    LISTS[kind](source)
    before = sorted(path.name for path in source.rglob("*"))
    packed = pack(source, tmp_path / "store", options=Options(size=8), workers=1)
    store = packed.store
    assert (packed.unreadable, packed.ignored.count, store.classes) == (0, 0, CLASSES)
    train = store.splits["train"]
    assert train.array("labels").tolist() == [0] * 4 + [1] * 4 + [2] * 4
    expected = [80 * label + 10 * i for label in range(3) for i in range(4)]
    assert np.abs(train.array("images")[:, 4, 4, 0].astype(int) - expected).max() <= 2
    held = store.splits["validation"]
    assert held.array("labels").tolist() == list(VALIDATION_LABELS)
    colours = held.array("images")[:, 4, 4, 0].astype(int)
    assert np.abs(colours - 80 * np.array(VALIDATION_LABELS)).max() <= 2
    assert sorted(path.name for path in source.rglob("*")) == before


def test_the_training_archive_alone_and_by_its_name(tmp_path: Path) -> None:
    source = tmp_path / "imagenet"
    write_train(source)
    alone = pack(source / TRAIN_ARCHIVE, tmp_path / "alone", options=Options(size=8), workers=1)
    assert [split.count for split in alone.store.splits.values()] == [9, 3]
    write_validation(source)
    write_synsets(source)
    both = pack(source / TRAIN_ARCHIVE, tmp_path / "both", options=Options(size=8), workers=1)
    assert [split.count for split in both.store.splits.values()] == [12, 5]


def test_sorted_training_folders_with_a_flat_validation_folder(tmp_path: Path) -> None:
    source = tmp_path / "imagenet"
    for label, name in enumerate(CLASSES):
        (source / "train" / name).mkdir(parents=True)
        (source / "train" / name / "0.JPEG").write_bytes(jpeg(80 * label))
    write_validation(source, as_folder=True)
    write_caffe(tmp_path)
    options = Options(size=8, validation_list=tmp_path / "val.txt")
    store = pack(source, tmp_path / "store", options=options, workers=1).store
    assert store.splits["validation"].array("labels").tolist() == list(VALIDATION_LABELS)


def test_an_archive_of_class_folders(tmp_path: Path) -> None:
    files = {f"photos/{name}/{i}.jpg": jpeg(i) for name in ("bee", "ant") for i in range(5)}
    (tmp_path / "photos.tar").write_bytes(tar_of({**files, "photos/readme.txt": b"hello"}))
    packed = pack(tmp_path / "photos.tar", tmp_path / "store", options=Options(size=8), workers=1)
    assert packed.store.classes == ("ant", "bee")
    assert packed.ignored.examples == ["photos/readme.txt"]
    split = {f"{part}/{name}": data for name, data in files.items()
             for part in ("train", "val")}  # fmt: skip
    split = {name.replace("/photos/", "/"): data for name, data in split.items()}
    (tmp_path / "split.tar").write_bytes(tar_of(split))
    store = pack(tmp_path / "split.tar", tmp_path / "two", options=Options(size=8), workers=1).store
    assert [part.count for part in store.splits.values()] == [10, 10]


def missing_list(folder: Path) -> None:
    write_train(folder)
    write_validation(folder)


def numbers_without_meta(folder: Path) -> None:
    missing_list(folder)
    (folder / TRUTH).write_text(truth_text())


def damaged_meta(folder: Path) -> None:
    numbers_without_meta(folder)
    (folder / META).write_bytes(meta_mat()[:-9])


def other_meta(folder: Path) -> None:
    numbers_without_meta(folder)
    (folder / META).write_bytes(meta_mat(("n1", "n2", "n3")))


def short_list(folder: Path) -> None:
    missing_list(folder)
    (folder / "synset_labels.txt").write_text(f"{CLASSES[0]}\n")


def unknown_class(folder: Path) -> None:
    missing_list(folder)
    (folder / "synset_labels.txt").write_text("n00000000\n" * len(VALIDATION_LABELS))


def unlisted_image(folder: Path) -> None:
    missing_list(folder)
    (folder / "val.txt").write_text("other.JPEG 0\n")


def cut_off(folder: Path) -> None:
    write_train(folder)
    archive = folder / TRAIN_ARCHIVE
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2 + 700])


def no_image(folder: Path) -> None:
    folder.mkdir()
    empty = tar_of({"n01440764.tar": tar_of({"readme.txt": b"hello"})})
    (folder / TRAIN_ARCHIVE).write_bytes(empty)


WRONG = {
    "no list": (missing_list, VALIDATION_ARCHIVE),
    "no meta.mat": (numbers_without_meta, TRUTH),
    "damaged meta.mat": (damaged_meta, META),
    "meta.mat of other classes": (other_meta, TRUTH),
    "short list": (short_list, "synset_labels.txt"),
    "unknown class": (unknown_class, "synset_labels.txt"),
    "unlisted image": (unlisted_image, "val.txt"),
    "cut off": (cut_off, TRAIN_ARCHIVE),
    "no image": (no_image, TRAIN_ARCHIVE),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_is_named(tmp_path: Path, fault: str) -> None:
    write, file = WRONG[fault]
    write(tmp_path / "imagenet")
    with pytest.raises(DataError) as raised:
        pack(tmp_path / "imagenet", tmp_path / "store", options=Options(size=8), workers=1)
    assert Path(str(raised.value.path)).name == file
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("photos.tar", tar_of({"0.jpg": jpeg(1), "0.cls": b"3"})),  # as WebDataset has it
        ("photos.tar", tar_of({"a.jpg": jpeg(1)}, mode="w:gz")),
        ("photos.tar", b"no archive at all" * 99),
    ],
    ids=["WebDataset", "compressed", "no archive"],
)
def test_archives_that_are_none(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as raised:
        pack(tmp_path / name, tmp_path / "store")
    assert raised.value.remedy
