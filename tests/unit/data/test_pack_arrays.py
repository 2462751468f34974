"""Packing arrays of NumPy, HDF5 and Parquet files; those that do not fit are named."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ai500.core.errors import DataError, EnvironmentLacksError
from ai500.data.pack import pack
from ai500.data.packed_store import PackedStore
from ai500.data.readers import parquet
from ai500.data.readers.open_source import Options
from ai500.records.fields import Field, image_fields

COUNT = 40


def sample_arrays(count: int = COUNT, seed: int = 0) -> dict[str, Any]:
    """Volumes, a mask, float parameters and a count: no picture, no class."""
    generator = np.random.default_rng(seed)
    return {
        "inputs_volume": generator.normal(size=(count, 2, 3, 4)).astype(np.float32),
        "inputs_mask": generator.random((count, 5)) < 0.5,
        "targets": generator.normal(size=(count, 3)),
        "targets_count": np.arange(count, dtype=np.int16),
    }


FIELDS = (
    Field("mask", "input", "bool", (5,)),
    Field("volume", "input", "float32", (2, 3, 4)),
    Field("count", "target", "int16", ()),
    Field("targets", "target", "float64", (3,)),
)


def write_npz(folder: Path, arrays: dict[str, Any]) -> Path:
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def write_compressed(folder: Path, arrays: dict[str, Any]) -> Path:
    np.savez_compressed(folder / "data.npz", **arrays)
    return folder / "data.npz"


def write_npy(folder: Path, arrays: dict[str, Any]) -> Path:
    (folder / "data").mkdir()
    for name, array in arrays.items():
        np.save(folder / "data" / f"{name}.npy", array)
    return folder / "data"


def write_hdf5(folder: Path, arrays: dict[str, Any]) -> Path:
    with h5py.File(folder / "data.h5", "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, chunks=True, compression="gzip")
    return folder / "data.h5"


def write_parquet(folder: Path, arrays: dict[str, Any], *, group_rows: int = 7) -> Path:
    columns = {}
    for name, array in arrays.items():
        columns[name] = pa.array(array.tolist(), _arrow_type(array.dtype, array.ndim - 1))
    pq.write_table(pa.table(columns), folder / "data.parquet", row_group_size=group_rows)
    return folder / "data.parquet"


def _arrow_type(dtype: np.dtype[Any], depth: int) -> pa.DataType:
    kind = pa.from_numpy_dtype(dtype)
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def write_large_groups(folder: Path, arrays: dict[str, Any]) -> Path:
    return write_parquet(folder, arrays, group_rows=1000)


WRITERS: dict[str, Callable[[Path, dict[str, Any]], Path]] = {
    "npz": write_npz, "compressed npz": write_compressed, "folder of npy": write_npy,
    "HDF5": write_hdf5, "Parquet": write_parquet, "Parquet, read in order": write_large_groups,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small_groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "read in order" in request.node.name:
        monkeypatch.setattr(parquet, "MAX_GROUP_BYTES", 1)


def rows_of(store: PackedStore) -> dict[int, dict[str, Any]]:
    """All samples by the number in `count`."""
    samples: dict[int, dict[str, Any]] = {}
    for split in store.splits.values():
        arrays = split.rows(np.arange(split.count))
        for row in range(split.count):
            samples[int(arrays["count"][row])] = {
                field.name: arrays[field.name][row] for field in store.fields
            }
    return samples


@pytest.mark.parametrize("kind", WRITERS)
def test_arrays_of_any_type_become_fields(tmp_path: Path, kind: str) -> None:
    arrays = sample_arrays()
    source = WRITERS[kind](tmp_path, arrays)
    packed = pack(source, tmp_path / "store", options=Options(validation_fraction=0.2), workers=1)
    store = packed.store
    assert store.fields == FIELDS
    assert {name: split.count for name, split in store.splits.items()} == {
        "train": 32, "validation": 8,
    }  # fmt: skip
    samples = rows_of(store)
    assert sorted(samples) == list(range(COUNT))
    for number, sample in samples.items():
        assert np.array_equal(sample["volume"], arrays["inputs_volume"][number])
        assert np.array_equal(sample["mask"], arrays["inputs_mask"][number])
        assert np.array_equal(sample["targets"], arrays["targets"][number])
    store.verify()


def test_every_format_gives_the_same_samples_and_split(tmp_path: Path) -> None:
    identities = set()
    for kind, write in WRITERS.items():
        folder = tmp_path / kind.replace(" ", "-")
        folder.mkdir()
        identities.add(
            pack(write(folder, sample_arrays()), folder / "store", workers=1).store.sha256
        )
    assert len(identities) == 1


def test_a_seed_chooses_the_validation_samples(tmp_path: Path) -> None:
    source = write_npz(tmp_path, sample_arrays())
    held = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        store = pack(source, tmp_path / name, options=Options(seed=seed), workers=1).store
        held.append(store.splits["validation"].array("count").tolist())
    assert held[0] == held[1] != held[2]
    assert all(len(each) == 4 for each in held)


def ragged_arrays(count: int = COUNT) -> dict[str, Any]:
    lengths = np.arange(count) % 5
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.arange(offsets[-1], dtype=np.int32)
    return {
        "inputs_tokens": tokens,
        "inputs_tokens.offsets": offsets,
        "targets_count": np.arange(count, dtype=np.int16),
    }


@pytest.mark.parametrize("kind", ["npz", "compressed npz", "folder of npy", "HDF5"])
def test_arrays_with_offsets_are_ragged(tmp_path: Path, kind: str) -> None:
    arrays = ragged_arrays()
    store = pack(WRITERS[kind](tmp_path, arrays), tmp_path / "store", workers=1).store
    assert store.fields[0] == Field("tokens", "input", "int32", (-1,))
    offsets = arrays["inputs_tokens.offsets"]
    for split in store.splits.values():
        for row, number in enumerate(split.array("count").tolist()):
            tokens = split.rows(np.array([row]))["tokens"]
            assert tokens.tolist() == list(range(offsets[number], offsets[number + 1]))


def test_lists_of_parquet_and_hdf5_are_ragged_where_they_differ(tmp_path: Path) -> None:
    lists = [np.arange(number % 4, dtype=np.int32) for number in range(COUNT)]
    table = pa.table({"inputs_tokens": [each.tolist() for each in lists], "targets": range(COUNT)})
    pq.write_table(table, tmp_path / "data.parquet")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        tokens = file.create_dataset("inputs_tokens", (COUNT,), h5py.vlen_dtype(np.int32))
        for number, values in enumerate(lists):
            tokens[number] = values
        file["targets"] = np.arange(COUNT)
    for source in ("data.parquet", "data.h5"):
        store = pack(tmp_path / source, tmp_path / f"{source}-store", workers=1).store
        assert store.fields[0].shape == (-1,)
        for split in store.splits.values():
            lengths = np.diff(split.array("tokens.offsets"))
            assert lengths.tolist() == (split.array("targets") % 4).tolist()


def pictures(count: int = 30) -> tuple[Any, Any]:
    values = np.random.default_rng(0).integers(0, 256, (count, 6, 5, 3), dtype=np.uint8)
    return values, np.arange(count) % 3


def test_images_and_labels_of_two_files(tmp_path: Path) -> None:
    images, labels = pictures()
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", labels.astype(np.uint8))
    seen: list[tuple[int, int]] = []
    store = pack(
        tmp_path / "images.npy",
        tmp_path / "store",
        options=Options(labels=tmp_path / "labels.npy"),
        progress=lambda done, total: seen.append((done, total)),
    ).store
    assert (store.classes, store.fields) == (("0", "1", "2"), image_fields(6, 5, classes=3))
    assert [split.count for split in store.splits.values()] == [27, 3]
    assert sorted(store.splits["validation"].array("labels").tolist()) == [0, 1, 2]
    by_image = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    for split in store.splits.values():
        for image, label in zip(split.array("images"), split.array("labels"), strict=True):
            assert by_image[image.tobytes()] == label
    assert seen[-1] == (30, 30)


@pytest.mark.parametrize(
    "names",
    [
        ("images", "labels", "validation_images", "validation_labels"),
        ("x_train", "y_train", "x_test", "y_test"),
        ("train/image", "train/label", "val/image", "val/label"),
    ],
)
def test_a_file_with_both_splits(tmp_path: Path, names: tuple[str, ...]) -> None:
    images, labels = pictures()
    grey = images[..., 0]
    values = (grey, labels[:, None].astype(np.uint8), grey[:6], labels[:6].astype(np.int32))
    with h5py.File(tmp_path / "digits.h5", "w") as file:
        for name, array in zip(names, values, strict=True):
            file[name] = array
    store = pack(tmp_path / "digits.h5", tmp_path / "store", workers=1).store
    assert (store.name, store.classes) == ("digits", ("0", "1", "2"))
    assert np.array_equal(store.splits["train"].array("images")[..., 0], grey)
    assert np.array_equal(store.splits["validation"].array("labels"), labels[:6])


def test_columns_are_chosen_and_renamed(tmp_path: Path) -> None:
    arrays = {"energy": np.arange(20.0), "graph": np.ones((20, 3), np.float32), "id": np.arange(20)}
    options = Options(inputs=("features=graph",), targets=("energy",))
    packed = pack(write_npz(tmp_path, arrays), tmp_path / "store", options=options, workers=1)
    assert [(field.name, field.role) for field in packed.store.fields] == [
        ("features", "input"), ("energy", "target"),
    ]  # fmt: skip
    assert packed.ignored.examples == ["data.npz: id"]


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (9, 7), (value, value, value)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("in_order", [False, True])
def test_parquet_shards_of_encoded_images(
    tmp_path: Path, in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layout of Hugging Face's image data sets; a damaged image is left out and listed."""
    if in_order:
        monkeypatch.setattr(parquet, "MAX_GROUP_BYTES", 1)
    folder = tmp_path / "faces"
    folder.mkdir()
    counts = {"train-00000-of-00002": 12, "train-00001-of-00002": 8, "validation-00000-of-00001": 6}
    names = b'{"info": {"features": {"label": {"names": ["cat", "dog"]}}}}'
    for name, count in counts.items():
        images = [{"bytes": png(number), "path": None} for number in range(count)]
        if name.startswith("train-00000"):
            images[3]["bytes"] = b"no image"
        table = pa.table({"image": images, "label": [number % 2 for number in range(count)]})
        table = table.replace_schema_metadata({b"huggingface": names})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=5)
    packed = pack(folder, tmp_path / "store", options=Options(size=8), workers=1)
    store = packed.store
    assert (packed.unreadable, store.classes) == (1, ("cat", "dog"))
    assert store.fields == image_fields(8, 8, classes=2)
    assert {name: split.count for name, split in store.splits.items()} == {
        "train": 19, "validation": 6,
    }  # fmt: skip
    train = store.splits["train"]
    values = train.array("images")[:, 0, 0, 0].tolist()
    assert sorted(values) == sorted([n for n in range(12) if n != 3] + list(range(8)))
    assert [value % 2 for value in values] == train.array("labels").tolist()
    assert "row 3" in (tmp_path / "store" / "unreadable.json").read_text()


def test_without_pyarrow_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_parquet(tmp_path, sample_arrays())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(EnvironmentLacksError) as raised:
        pack(source, tmp_path / "store")
    assert (raised.value.exit_code, raised.value.key) == (3, "pyarrow")
    assert "ai500[parquet]" in raised.value.remedy


def changed(**changes: Any) -> dict[str, Any]:
    arrays = {**sample_arrays(), **changes}
    return {name: array for name, array in arrays.items() if array is not None}


BAD_ARRAYS: dict[str, tuple[dict[str, Any], object]] = {
    "no target": (changed(targets=None, targets_count=None), "target"),
    "no input": (changed(inputs_volume=None, inputs_mask=None), "input"),
    "other length": (changed(targets=np.zeros((COUNT - 1, 3))), None),
    "not a number": (changed(targets=np.full((COUNT, 3), np.nan)), None),
    "one name twice": (changed(targets_volume=np.zeros(COUNT)), "volume"),
}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (fault, kind)
        for fault in BAD_ARRAYS
        for kind in WRITERS
        # All columns of a Parquet file have the same number of rows.
        if not ("Parquet" in kind and fault == "other length")
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, fault: str, kind: str) -> None:
    arrays, value = BAD_ARRAYS[fault]
    with pytest.raises(DataError) as raised:
        pack(WRITERS[kind](tmp_path, arrays), tmp_path / "store", workers=1)
    assert raised.value.path is not None
    assert value is None or raised.value.value == value


@pytest.mark.parametrize("kind", WRITERS)
def test_files_that_are_damaged(tmp_path: Path, kind: str) -> None:
    source = WRITERS[kind](tmp_path, sample_arrays(400))
    file = source / "targets.npy" if source.is_dir() else source
    data = file.read_bytes()
    for content in (b"no array at all", b"", data[: len(data) // 2]):
        file.write_bytes(content)
        with pytest.raises(DataError) as raised:
            pack(source, tmp_path / "store", workers=1)
        assert Path(str(raised.value.path)).name == file.name


@pytest.mark.parametrize(
    ("arrays", "key"),
    [
        ({"inputs": np.array(["a", "b", "c"]), "targets": np.zeros(3)}, "inputs"),
        ({"inputs": np.zeros((3, 0)), "targets": np.zeros(3)}, "inputs"),
        ({"inputs": np.zeros(3, "datetime64[s]"), "targets": np.zeros(3)}, "inputs"),
        ({"images": np.zeros((3, 3, 9, 9), np.uint8), "labels": np.arange(3)}, "images"),
    ],
    ids=["texts", "nothing in a row", "dates", "channels first"],
)
def test_types_and_shapes_that_no_field_has(
    tmp_path: Path, arrays: dict[str, Any], key: str
) -> None:
    with pytest.raises(DataError) as raised:
        pack(write_npz(tmp_path, arrays), tmp_path / "store", workers=1)
    assert raised.value.key == key
    assert not (tmp_path / "store").exists()


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "inputs.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "labels.npy", np.arange(2))
    with pytest.raises(DataError) as raised:
        pack(
            tmp_path / "inputs.npy",
            tmp_path / "store",
            options=Options(labels=tmp_path / "labels.npy"),
        )
    assert raised.value.value == "object"


@pytest.mark.parametrize("labels", [[-1, 0, 0, 1], [1, 2, 1, 2], [0, 0, 7, 7]])
def test_labels_that_are_no_classes(tmp_path: Path, labels: list[int]) -> None:
    arrays = {"images": np.zeros((4, 6, 5, 3), np.uint8), "labels": np.array(labels)}
    with pytest.raises(DataError) as raised:
        pack(write_npz(tmp_path, arrays), tmp_path / "store", workers=1)
    assert raised.value.value == max(labels)


def test_float_labels_stay_floats(tmp_path: Path) -> None:
    arrays = {"inputs": np.zeros((4, 2), np.float32), "labels": np.array([0.25, 1.5, -3, 4])}
    store = pack(write_npz(tmp_path, arrays), tmp_path / "store", workers=1).store
    values = np.concatenate([split.array("labels") for split in store.splits.values()])
    assert sorted(values.tolist()) == [-3, 0.25, 1.5, 4]
    assert store.classes == ()


@pytest.mark.parametrize(
    "offsets", [[0, 3, 2, 6], [1, 2, 4, 6], [0, 2, 4, 5], [0.0, 2.0, 4.0, 6.0]]
)
@pytest.mark.parametrize("kind", ["npz", "compressed npz", "HDF5"])
def test_offsets_that_do_not_cut_an_array(tmp_path: Path, kind: str, offsets: list[float]) -> None:
    arrays = {"inputs": np.arange(6), "inputs_offsets": np.array(offsets), "targets": np.zeros(3)}
    with pytest.raises(DataError) as raised:
        pack(WRITERS[kind](tmp_path, arrays), tmp_path / "store", workers=1)
    assert raised.value.value == "inputs_offsets"


def test_a_parquet_row_without_a_value(tmp_path: Path) -> None:
    table = pa.table({"inputs": [1.0] * 9, "targets": [1.0] * 4 + [None] + [2.0] * 4})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=3)
    with pytest.raises(DataError) as raised:
        pack(tmp_path / "data.parquet", tmp_path / "store", workers=1)
    assert raised.value.value == 4


def test_lists_that_turn_out_ragged_late(tmp_path: Path) -> None:
    lists = [[1, 2, 3]] * 100 + [[1]]
    table = pa.table({"inputs": lists, "targets": [0.0] * 101})
    pq.write_table(table, tmp_path / "data.parquet")
    with pytest.raises(DataError) as raised:
        pack(tmp_path / "data.parquet", tmp_path / "store", workers=1)
    assert raised.value.remedy.endswith("--ragged inputs.")
    options = Options(ragged=frozenset({"inputs"}))
    store = pack(tmp_path / "data.parquet", tmp_path / "two", options=options, workers=1).store
    assert store.fields[0].shape == (-1,)


@pytest.mark.parametrize(
    "name",
    [
        "data.zip",
        "data.tar.gz",
        "data.tfrecord",
        "data.mdb",
        "data.csv",
        "data.pt",
        "data.xyz",
        "data",
    ],
)
def test_a_file_of_another_kind_says_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"something")
    with pytest.raises(DataError) as raised:
        pack(tmp_path / name, tmp_path / "store")
    assert raised.value.path == tmp_path / name
    assert raised.value.remedy


def test_years_of_climate_are_a_store_already(tmp_path: Path) -> None:
    for year in (1979, 1980):
        with h5py.File(tmp_path / f"climo_{year}.h5", "w") as file:
            file["images"] = np.zeros((2, 16, 4, 4), np.float32)
            file["boxes"] = np.full((2, 15, 5), -1)
    with pytest.raises(DataError) as raised:
        pack(tmp_path, tmp_path / "store")
    assert f"--data {tmp_path}" in raised.value.remedy
