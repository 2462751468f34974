"""The recipes for WebDataset, LMDB and TFRecord, taken from their page and run on real files."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image
from tfrecord.writer import TFRecordWriter

from ai500.data.pack import pack
from ai500.data.packed_store import PackedStore
from ai500.data.readers.open_source import Options
from tests.support.docs_examples import ROOT, examples_of

COUNT, CLASSES = 60, 4

Recipe = Callable[..., PackedStore]


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Packs with the recipe of docs/data.md that defines `name`, in a folder with its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def pack_with(name: str, *, keyword: str, workers: int = 1) -> PackedStore:
        (recipe,) = (
            example.text
            for example in examples_of(ROOT / "docs" / "data.md")
            if f"{keyword} {name}" in example.text
        )
        module = f"recipe_of_{name.lower()}"
        (tmp_path / f"{module}.py").write_text(recipe)
        source, options = f"{module}:{name}", Options(size=8)
        return pack(source, tmp_path / "store", options=options, workers=workers).store

    return pack_with


def images() -> Iterator[tuple[bytes, int]]:
    """JPEGs whose brightness is ten times their class."""
    for number in range(COUNT):
        buffer, label = io.BytesIO(), number % CLASSES
        Image.new("RGB", (12, 9), 3 * (10 * label,)).save(buffer, "JPEG", quality=95)
        yield buffer.getvalue(), label


def require_all(store: PackedStore) -> None:
    assert sum(split.count for split in store.splits.values()) == COUNT
    assert store.classes == ("0", "1", "2", "3")
    for split in store.splits.values():
        colours = split.array("images")[:, 4, 4, 0].astype(int)
        assert np.abs(colours - 10 * split.array("labels")).max() <= 2


def test_shards_of_webdataset(tmp_path: Path, packed: Recipe) -> None:
    (tmp_path / "shards").mkdir()
    samples = list(images())
    for shard in range(3):
        with tarfile.open(tmp_path / "shards" / f"{shard}.tar", "w") as archive:
            for number, (image, label) in enumerate(samples[20 * shard : 20 * (shard + 1)]):
                for suffix, data in {"jpg": image, "cls": str(label).encode()}.items():
                    member = tarfile.TarInfo(f"{shard}{number:04}.{suffix}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    require_all(packed("shards", keyword="def"))


def test_a_database_of_lmdb(tmp_path: Path, packed: Recipe) -> None:
    """Two processes read it by number."""
    environment = lmdb.open(str(tmp_path / "train.lmdb"), map_size=1 << 24)
    with environment, environment.begin(write=True) as transaction:
        for number, sample in enumerate(images()):
            transaction.put(f"{number:08}".encode(), pickle.dumps(sample))
    require_all(packed("Database", keyword="class", workers=2))


def test_records_of_tensorflow(tmp_path: Path, packed: Recipe) -> None:
    """Labels count from 1, as in the records of ImageNet that TensorFlow's scripts write."""
    (tmp_path / "records").mkdir()
    samples = list(images())
    for shard in range(2):
        writer = TFRecordWriter(str(tmp_path / "records" / f"train-{shard:05}-of-00002"))
        for image, label in samples[30 * shard : 30 * (shard + 1)]:
            writer.write(
                {"image/encoded": (image, "byte"), "image/class/label": (label + 1, "int")}
            )
        writer.close()
    require_all(packed("records", keyword="def"))
