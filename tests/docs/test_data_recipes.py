"""The recipes for other formats and for published data, taken from their pages and run on files."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
from PIL import Image
from tfrecord.writer import TFRecordWriter

from ai500.data.climate.schema import CHANNELS
from ai500.data.pack import pack
from ai500.data.packed_store import PackedStore
from ai500.data.readers.open_source import Options
from ai500.workloads.cosmology import CLASSES as COSMOLOGY
from tests.support.climate_files import frames_of
from tests.support.docs_examples import ROOT, examples_of

COUNT, CLASSES = 60, 4

Recipe = Callable[..., PackedStore]


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Packs with the recipe of a page that defines `name`, in a folder with its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def pack_with(
        name: str, *, keyword: str, page: str = "data.md", workers: int = 1, **options: Any
    ) -> PackedStore:
        (recipe,) = (
            example.text
            for example in examples_of(ROOT / "docs" / page)
            if f"{keyword} {name}" in example.text
        )
        module = f"recipe_of_{name.lower()}"
        (tmp_path / f"{module}.py").write_text(recipe)
        chosen = Options(**{"size": 8} | options)
        return pack(f"{module}:{name}", tmp_path / "store", options=chosen, workers=workers).store

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


def test_frames_of_deepcam(tmp_path: Path, packed: Recipe) -> None:
    """Their channels are in another order, and last; the check finds nothing impossible then."""
    field_order = "TMQ U850 V850 UBOT VBOT QREFHT PS PSL T200 T500 PRECT TS TREFHT Z1000 Z200 ZBOT"
    order = [CHANNELS.index(name) for name in field_order.split()]
    for seed, split in enumerate(("train", "validation"), 1):
        (tmp_path / split).mkdir()
        for number, frame in enumerate(frames_of(seed)):
            with h5py.File(tmp_path / split / f"data-2000-{number:02}.h5", "w") as file:
                file["climate/data"] = frame[order].transpose(1, 2, 0)
                file["climate/labels_0"] = np.full(frame.shape[1:], number % 3, np.float32)
    limits = {"masks": (0.0, 2.0)}
    store = packed("deepcam", keyword="def", page="workloads.md", limits=limits)
    assert PackedStore.check(store.path).problems == ()
    split = store.splits["validation"]
    assert np.array_equal(split.array("images"), frames_of(2))
    assert split.array("masks")[:, 3, 4].tolist() == [number % 3 for number in range(7)]


def test_records_of_cosmoflow(tmp_path: Path, packed: Recipe) -> None:
    full = COSMOLOGY["full"]
    counts = np.zeros((128, 128, 128, 4), np.int16)
    counts[1, 2, 3] = (0, 1, 99, 9_999)
    for split in ("train", "validation"):
        (tmp_path / split).mkdir()
        file = tmp_path / split / "univ_0.tfrecord"
        writer = TFRecordWriter(str(file))
        writer.write({"x": (counts.tobytes(), "byte"), "y": ([0.5, -1.0, 1.0, 0.0], "float")})
        writer.close()
        file.write_bytes(gzip.compress(file.read_bytes(), 1))
    limits = {"parameters": (-1.0, 1.0)}
    store = packed("cosmoflow", keyword="def", page="workloads.md", limits=limits)
    assert store.fields == full.fields
    volume = store.splits["train"].array("volumes")[0]
    assert volume[:, 1, 2, 3].tolist() == [round(1000 * np.log(n + 1)) for n in (0, 1, 99, 9_999)]
    assert store.splits["train"].array("parameters")[0].tolist() == [0.5, -1, 1, 0]
