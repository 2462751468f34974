"""Fields of any type and shape: written, resumed, verified, staged; misfits are refused."""

from __future__ import annotations

import os
import pickle
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ai500.core import schema
from ai500.core.errors import DataError
from ai500.data import gather
from ai500.data.generated import generate
from ai500.data.open_store import VerifiedSplit, open_store, reader_of
from ai500.data.packed_store import PackedStore
from ai500.data.store import Arrays, digests_of
from ai500.parallel import data_duplicator
from ai500.parallel.data_duplicator import Staged, duplicate
from ai500.records.fields import Field, image_fields, sample_bytes
from ai500.workloads.image_classification import CLASSES
from tests.support import hostile_disk
from tests.support.mixed_fields import COUNTS, RAGGED_FIELDS, Mixed, expected, fixed_fields

FIXED, RAGGED = Mixed(fixed_fields()), Mixed(RAGGED_FIELDS)
SOURCES = {"fixed": FIXED, "ragged": RAGGED}
INDICES = np.array([699, 0, 7, 14, 8, 8, 350])
"""Samples to read: one repeated, some empty where they are ragged."""

GENERATE = """
from tests.unit.data.test_fields import *
def make_with(progress, workers):
    return generate(Path("store"), RAGGED, name="mixed", splits=COUNTS, workers=workers,
                    progress=progress)
"""


def make(path: Path, source: Mixed, *, workers: int = 1) -> PackedStore:
    return generate(path, source, name="mixed", splits=COUNTS, workers=workers)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


def assert_same(rows: Arrays, right: Arrays) -> None:
    assert list(rows) == list(right)
    for name, values in right.items():
        assert rows[name].dtype == values.dtype
        assert np.array_equal(rows[name], values), name


@pytest.fixture(scope="module")
def ragged(tmp_path_factory: pytest.TempPathFactory) -> PackedStore:
    return make(tmp_path_factory.mktemp("ragged") / "store", RAGGED)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_type_and_shape_is_read_as_it_was_written(kind: str, tmp_path: Path) -> None:
    source = SOURCES[kind]
    store = make(tmp_path / "store", source)
    assert store.fields == source.fields
    split = PackedStore.open(store.path).splits["train"]
    assert_same(split.rows(INDICES), expected(source, "train", INDICES))
    ascending = np.unique(INDICES)
    assert_same(split.read(ascending), expected(source, "train", ascending))
    assert_same(pickle.loads(pickle.dumps(split)).rows(INDICES), split.rows(INDICES))
    for column in store.columns():
        array = np.load(column.path)
        assert (array.shape, array.dtype) == (column.shape, column.dtype)
    reader_of(store.path).check(store.path)


def test_some_fields_alone(ragged: PackedStore) -> None:
    split = ragged.splits["train"]
    rows = split.rows(INDICES, names=["boxes"])
    assert list(rows) == ["boxes", "boxes.offsets"]
    with pytest.raises(DataError) as raised:
        split.rows(INDICES, names=["colours"])
    assert raised.value.key == "colours"


def test_no_sample_at_all(ragged: PackedStore) -> None:
    rows = ragged.splits["train"].rows(INDICES[:0])
    assert rows["tokens"].shape == (0,)
    assert rows["boxes"].shape == (0, 5)
    assert rows["tokens.offsets"].tolist() == [0]


def test_many_threads_gather_ragged_samples(
    ragged: PackedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    indices = np.random.default_rng(0).integers(0, COUNTS["train"], 500)
    split = ragged.splits["train"]
    plain = split.rows(indices)
    monkeypatch.setattr(gather, "PIECE_BYTES", 100)
    assert_same(split.rows(indices), plain)


def test_arrays_are_allocated_by_the_caller(ragged: PackedStore) -> None:
    made: list[NDArray[Any]] = []

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        made.append(np.empty(shape, dtype))
        return made[-1]

    rows = ragged.splits["train"].rows(INDICES, empty=empty)
    assert {id(array) for array in rows.values()} == {id(array) for array in made}


@pytest.mark.slow
def test_many_processes_append_the_same_bytes(ragged: PackedStore, tmp_path: Path) -> None:
    assert contents(make(tmp_path / "store", RAGGED, workers=3).path) == contents(ragged.path)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_a_killed_writer_of_ragged_samples_resumes(
    ragged: PackedStore, tmp_path: Path, workers: int
) -> None:
    for done in (0, 256, 512, 700):
        ended = hostile_disk.run(tmp_path, GENERATE + f"make_with(die_after({done}), {workers})")
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    with pytest.raises(DataError) as raised:
        PackedStore.open(tmp_path / "store")
    assert raised.value.path == tmp_path / "store" / "manifest.json"
    seen: list[int] = []
    generate(tmp_path / "store", RAGGED, name="mixed", splits=COUNTS, workers=1,
             progress=lambda done, total: seen.append(done))  # fmt: skip
    assert seen[0] >= 700
    assert contents(tmp_path / "store") == contents(ragged.path)


@pytest.mark.parametrize("step", ["write", "save", "unlink"])
def test_a_kill_while_a_chunk_is_appended(ragged: PackedStore, tmp_path: Path, step: str) -> None:
    """Between the columns, before the position is recorded, and before the chunk is removed."""
    traps = {
        "write": """
from ai500.data.columns import Column
real, calls = Column.write, []
def write(*arguments):
    real(*arguments)
    calls.append(1)
    if len(calls) == 8:
        os.kill(os.getpid(), signal.SIGKILL)
Column.write = write
""",
        "save": """
from ai500.core import atomic
real = atomic.write_json
def write_json(path, value):
    if path.name == "building.appended.json" and value["train"]["chunks"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    real(path, value)
atomic.write_json = write_json
""",
        "unlink": """
real = Path.unlink
def unlink(path, missing_ok=False):
    if path.name == "building.train.256.npz":
        os.kill(os.getpid(), signal.SIGKILL)
    real(path, missing_ok=missing_ok)
Path.unlink = unlink
""",
    }
    ended = hostile_disk.run(tmp_path, GENERATE + traps[step] + "make_with(None, 1)")
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    make(tmp_path / "store", RAGGED)
    assert contents(tmp_path / "store") == contents(ragged.path)


@pytest.mark.parametrize("array", ["tokens", "boxes", "parameters", "tokens.offsets", "digests"])
def test_a_flipped_byte_is_found(tmp_path: Path, array: str) -> None:
    store = make(tmp_path / "store", RAGGED)
    file = store.path / f"train.{array}.npy"
    flip(file, file.stat().st_size // 2)
    with pytest.raises(DataError) as raised:
        PackedStore.open(store.path).verify()
    assert raised.value.path == file
    opened = PackedStore.open(store.path)
    everything = np.arange(COUNTS["train"])
    with pytest.raises(DataError):
        VerifiedSplit(opened.splits["train"], opened.digests("train")).rows(everything)
    with pytest.raises(DataError):
        duplicate(open_store(store.path), counts=[np.ones(700, np.uint8)], folder=tmp_path / "node")


def test_samples_of_a_verified_split_are_compared_even_for_one_field(tmp_path: Path) -> None:
    store = make(tmp_path / "store", RAGGED)
    flip(store.path / "train.tokens.npy", 128)
    split = VerifiedSplit(store.splits["train"], store.digests("train"))
    first = int(np.flatnonzero(store.splits["train"].lengths("tokens"))[0])
    with pytest.raises(DataError) as raised:
        split.rows(np.array([first]), names=["parameters"])
    assert raised.value.value == first


def test_a_ragged_digest_depends_on_where_samples_end() -> None:
    fields = (Field("words", "input", "uint8", (-1,)), Field("tags", "target", "uint8", (-1,)))
    first, second = (
        {
            "words": np.arange(cut, dtype=np.uint8),
            "words.offsets": np.array([0, cut]),
            "tags": np.arange(cut, 5, dtype=np.uint8),
            "tags.offsets": np.array([0, 5 - cut]),
        }
        for cut in (2, 3)
    )
    assert digests_of(first, fields)[0] != digests_of(second, fields)[0]


@pytest.mark.parametrize("kind", SOURCES)
def test_samples_are_staged(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_duplicator, "BLOCK_BYTES", 4000)
    source = SOURCES[kind]
    store = make(tmp_path / "store", source)
    counts = np.zeros(COUNTS["train"], np.uint8)
    counts[INDICES] = 1
    staged = duplicate(store, counts=[counts], folder=tmp_path / "node", workers=2)
    staged.verify()
    again = Staged.open(staged.path)
    assert again.splits["train"].fields == store.fields
    assert_same(again.splits["train"].rows(INDICES), expected(source, "train", INDICES))
    everything = np.arange(COUNTS["validation"])
    assert_same(
        again.splits["validation"].rows(everything), expected(source, "validation", everything)
    )


def test_an_interrupted_copy_of_ragged_samples_is_completed(
    ragged: PackedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_duplicator, "BLOCK_BYTES", 4000)
    counts = [np.ones(COUNTS["train"], np.uint8)]
    whole = duplicate(ragged, counts=counts, folder=tmp_path / "node", workers=1)
    before = contents(whole.path)
    (whole.path / "stage.json").unlink()
    os.truncate(whole.path / "train.tokens.npy", 1000)
    flip(whole.path / "train.boxes.npy", 200)
    duplicate(ragged, counts=counts, folder=tmp_path / "node", workers=2)
    assert contents(whole.path) == before


@dataclass(frozen=True)
class Wrong:
    """Three samples of one field with values that may not fit it."""

    field: Field
    values: Any

    @property
    def fields(self) -> tuple[Field, ...]:
        return (self.field,)

    def draw(self, split: str, first: int, last: int) -> Arrays:
        values = self.values if isinstance(self.values, dict) else {self.field.name: self.values}
        return {name: np.asarray(array) for name, array in values.items()}


FLOATS = Field("masses", "target", "float32", (2,))
LABELS = Field("labels", "target", "int64", (), limits=(0, 9))
TOKENS = Field("tokens", "input", "int32", (-1,), limits=(0, 100))
THREE = np.ones((3, 2), np.float32)


@pytest.mark.parametrize(
    ("field", "values", "key", "value"),
    [
        (FLOATS, THREE.astype(np.float64), "masses.dtype", "float64"),
        (FLOATS, THREE.astype(np.int64), "masses.dtype", "int64"),
        (FLOATS, np.ones((3, 3), np.float32), "masses.shape", (3, 3)),
        (FLOATS, np.ones((2, 2), np.float32), "masses.shape", (2, 2)),
        (FLOATS, {"weights": THREE}, "fields", ["weights"]),
        (FLOATS, {"masses": THREE, "weights": THREE}, "fields", ["masses", "weights"]),
        (FLOATS, THREE * np.float32(np.inf), "masses", np.inf),
        (replace(FLOATS, limits=(0, 0.5)), THREE, "masses", 1.0),
        (LABELS, np.array([0, 10, 3]), "labels", 10),
        (LABELS, np.array([-1, 0, 3]), "labels", -1),
        (TOKENS, {"tokens": np.zeros(5, np.int32)}, "fields", ["tokens"]),
        (TOKENS, {"tokens": np.full(5, 101, np.int32), "tokens.offsets": np.array([0, 1, 2, 5])},
         "tokens", 101),
        (TOKENS, {"tokens": np.zeros(5, np.int32), "tokens.offsets": np.array([0, 3, 2, 5])},
         "tokens.offsets", (4,)),
        (TOKENS, {"tokens": np.zeros(5, np.int32), "tokens.offsets": np.array([0, 1, 2, 4])},
         "tokens.offsets", (4,)),
    ],
)  # fmt: skip
def test_samples_that_do_not_fit_are_refused(
    field: Field, values: Any, key: str, value: object, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as raised:
        generate(tmp_path / "s", Wrong(field, values), name="w", splits={"train": 3}, workers=1)
    assert (raised.value.key, raised.value.value) == (key, value)
    assert raised.value.path == tmp_path / "s"
    assert raised.value.remedy


def test_not_a_number_is_refused_and_found_by_check(tmp_path: Path) -> None:
    values = THREE.copy()
    values[1, 1] = np.nan
    with pytest.raises(DataError) as raised:
        generate(tmp_path / "s", Wrong(FLOATS, values), name="w", splits={"train": 3}, workers=1)
    assert raised.value.key == "masses"
    assert np.isnan(raised.value.value)  # type: ignore[call-overload]


def test_a_store_with_values_outside_its_limits_is_found_by_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write it as another program may, hashes and all."""
    monkeypatch.setattr("ai500.data.store_writer.require_arrays", lambda *_, **__: None)
    source = Wrong(LABELS, np.array([0, 4, 77]))
    path = generate(tmp_path / "s", source, name="w", splits={"train": 3}, workers=1).path
    with pytest.raises(DataError) as raised:
        reader_of(path).check(path)
    assert (raised.value.key, raised.value.value) == ("labels", 77)
    assert raised.value.path == path / "train.labels.npy"


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"name": "my field"}, "fields.name"),
        ({"dtype": "float"}, "fields.dtype"),
        ({"dtype": "object"}, "fields.dtype"),
        ({"dtype": "longdouble"}, "fields.dtype"),
        ({"dtype": "datetime64"}, "fields.dtype"),
        ({"shape": (2, -1)}, "fields.shape"),
        ({"shape": (0,)}, "fields.shape"),
        ({"limits": (1.0, 0.0)}, "fields.limits"),
    ],
)
def test_a_field_that_cannot_be(wrong: dict[str, Any], key: str) -> None:
    with pytest.raises(DataError) as raised:
        replace(FLOATS, **wrong)
    assert raised.value.key == key


def test_a_field_survives_its_record() -> None:
    for field in (*fixed_fields(), *RAGGED_FIELDS, LABELS):
        assert schema.decode(Field, schema.encode(field)) == field
    assert sample_bytes(image_fields(4, 5, classes=3)) == 4 * 5 * 3 + 8


SMOKE = CLASSES["smoke"]
IMAGES, CLASS_LABELS = SMOKE.fields


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ((CLASS_LABELS,), "images"),
        ((IMAGES,), "labels"),
        ((replace(IMAGES, dtype="float32"), CLASS_LABELS), "images.dtype"),
        ((replace(IMAGES, shape=(25, 24, 3)), CLASS_LABELS), "images.shape"),
        ((replace(IMAGES, shape=(-1, 24, 3)), CLASS_LABELS), "images.shape"),
        ((replace(IMAGES, role="target"), CLASS_LABELS), "images.role"),
        ((IMAGES, replace(CLASS_LABELS, limits=(0, 12))), "labels.limits"),
        ((IMAGES, replace(CLASS_LABELS, limits=None)), "labels.limits"),
    ],
)
def test_a_store_that_does_not_fit_its_class_is_refused(
    fields: tuple[Field, ...], key: str, tmp_path: Path
) -> None:
    splits = {"train": 8, "validation": 4}
    store = generate(tmp_path / "s", Mixed(_small(fields)), name="s", splits=splits, workers=1)
    store = replace(store, fields=fields)
    definition = replace(SMOKE, train_samples=8, validation_samples=4)
    with pytest.raises(DataError) as raised:
        store.require_fit(definition)
    assert raised.value.key == key
    assert raised.value.path == store.path


def _small(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(replace(field, limits=None) for field in fields)


def test_other_numbers_of_samples_than_planned_are_refused(tmp_path: Path) -> None:
    splits = {"train": 8, "validation": 4}
    store = generate(tmp_path / "s", Mixed(SMOKE.fields[:1]), name="s", splits=splits, workers=1)
    with pytest.raises(DataError) as raised:
        store.require_fit(replace(SMOKE, train_samples=9, validation_samples=4))
    assert (raised.value.key, raised.value.value) == ("train", 8)
