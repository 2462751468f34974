"""Packing NumPy arrays, and saying what is wrong with those that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.pack_arrays import pack_arrays
from ai500.records.fields import image_fields


def arrays(number: int = 30) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    values = np.random.default_rng(0).integers(0, 256, (number, 6, 5, 3), dtype=np.uint8)
    return values, np.arange(number, dtype=np.int64) % 3


def save(folder: Path, images: NDArray[np.generic], labels: NDArray[np.generic]) -> Path:
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    return folder / "images.npy"


def test_arrays_with_a_part_held_out(tmp_path: Path) -> None:
    images, labels = arrays()
    file = save(tmp_path, images, labels)
    seen: list[tuple[int, int]] = []
    packed = pack_arrays(
        file,
        tmp_path / "store",
        labels=tmp_path / "labels.npy",
        progress=lambda done, total: seen.append((done, total)),
    )
    store = packed.store
    assert (store.classes, store.fields) == (("0", "1", "2"), image_fields(6, 5, classes=3))
    assert [split.count for split in store.splits.values()] == [27, 3]
    both = np.concatenate([split.array("images") for split in store.splits.values()])
    kept = {image.tobytes() for image in images}
    assert {image.tobytes() for image in both} == kept
    by_image = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    for split in store.splits.values():
        for image, label in zip(split.array("images"), split.array("labels"), strict=True):
            assert by_image[image.tobytes()] == label
    assert seen[-1] == (30, 30)
    store.verify()


@pytest.mark.parametrize(
    "names",
    [
        ("images", "labels", "validation_images", "validation_labels"),
        ("x_train", "y_train", "x_test", "y_test"),
    ],
)
def test_an_archive_with_both_splits(tmp_path: Path, names: tuple[str, ...]) -> None:
    images, labels = arrays()
    grey = images[..., 0]
    values = (grey, labels[:, None].astype(np.uint8), grey[:6], labels[:6].astype(np.int32))
    np.savez(tmp_path / "digits.npz", **dict(zip(names, values, strict=True)))  # type: ignore[arg-type]
    store = pack_arrays(tmp_path / "digits.npz", tmp_path / "store", classes=["a", "b", "c"]).store
    assert (store.name, store.classes) == ("digits", ("a", "b", "c"))
    assert np.array_equal(store.splits["train"].array("images")[..., 0], grey)
    assert np.array_equal(store.splits["validation"].array("labels"), labels[:6])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((4, 6, 5, 3), np.float32), np.arange(4), "images are float32"),
        (np.zeros((4, 6), np.uint8), np.arange(4), r"shape \(4, 6\)"),
        (np.zeros((0, 6, 5, 3), np.uint8), np.arange(0), "at least one image"),
        (np.zeros((4, 3, 32, 32), np.uint8), np.arange(4), "channels first"),
        (np.zeros((4, 6, 5, 3), np.uint8), np.arange(5), "one for each of the 4"),
        (np.zeros((4, 6, 5, 3), np.uint8), np.zeros(4), "labels are float64"),
        (np.zeros((4, 6, 5, 3), np.uint8), np.arange(4) // 2 - 1, "labels run from -1"),
        (np.zeros((4, 6, 5, 3), np.uint8), np.arange(4) // 2 + 1, "labels run from 1 to 2"),
    ],
)
def test_arrays_that_do_not_fit(
    tmp_path: Path, images: NDArray[np.generic], labels: NDArray[np.generic], message: str
) -> None:
    file = save(tmp_path, images, labels)
    with pytest.raises(DataError, match=message):
        pack_arrays(file, tmp_path / "store", labels=tmp_path / "labels.npy")
    assert not (tmp_path / "store").exists()


def test_files_that_hold_no_arrays(tmp_path: Path) -> None:
    out = tmp_path / "store"
    with pytest.raises(DataError, match="no such file"):
        pack_arrays(tmp_path / "none.npy", out)
    (tmp_path / "text.npy").write_text("hello")
    with pytest.raises(DataError, match=r"text\.npy: not a readable"):
        pack_arrays(tmp_path / "text.npy", out)
    np.save(tmp_path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(DataError, match=r"objects\.npy: not a readable"):
        pack_arrays(tmp_path / "objects.npy", out)
    with pytest.raises(DataError, match="needs labels"):
        pack_arrays(save(tmp_path, *arrays()), out)
    np.savez(tmp_path / "odd.npz", pictures=np.zeros(3))
    with pytest.raises(DataError, match=r"holds \['pictures'\]"):
        pack_arrays(tmp_path / "odd.npz", out)


def test_one_sample_a_class_cannot_be_parted(tmp_path: Path) -> None:
    images, _ = arrays(3)
    file = save(tmp_path, images, np.arange(3))
    with pytest.raises(DataError, match="each of 3 classes has one sample"):
        pack_arrays(file, tmp_path / "store", labels=tmp_path / "labels.npy")
