"""Packing samples of a user's Python code: data sets, generators, and what goes wrong in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ai500.core.errors import DataError
from ai500.data.pack import pack
from ai500.data.readers import python_source
from ai500.data.readers.open_source import Options
from ai500.records.fields import Field

MODULE = '''
import io
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

class Volumes(Dataset):
    """A PyTorch data set of float volumes and float parameters."""
    def __len__(self):
        return 50
    def __getitem__(self, number):
        return {"inputs_volume": torch.full((2, 3), float(number)),
                "targets": torch.tensor([number / 4, -number], dtype=torch.float32), "note": "x"}

class Pictures(Dataset):
    classes = ["cat", "dog"]
    def __len__(self):
        return 20
    def __getitem__(self, number):
        return Image.new("RGB", (20 + number, 15), (number, 0, 0)), number % 2

class Stream(IterableDataset):
    def __iter__(self):
        return ({"inputs": torch.arange(3) + number, "targets": 0.5 * number}
                for number in range(300))

def both():
    return {"train": Volumes(), "val": Volumes()}

def texts():
    """Tokens of different lengths, a class, and an encoded image."""
    for number in range(120):
        buffer = io.BytesIO()
        Image.new("L", (9, 9), number).save(buffer, "PNG")
        image = buffer.getvalue() if number != 7 else b"no image"
        yield {"inputs_tokens": list(range(number % 6)), "inputs_picture": image,
               "targets_labels": number % 3}

def late():
    for number in range(200):
        yield {"inputs": np.zeros(3 if number < 150 else 4), "targets": 0.0}

def fails():
    yield {"inputs": 0.0, "targets": 0.0}
    raise RuntimeError("the disk of the cluster is away")

def other_keys():
    for number in range(200):
        yield {"inputs": 1.0, "targets": 1.0} if number < 150 else {"inputs": 1.0}

def strings():
    return [{"inputs": "text", "targets": 1.0}] * 9

def numbers():
    return [1, 2, 3]

def unnamed():
    return [{"a": 1.0, "b": 2.0}] * 9

def nothing():
    return iter(())

def loader():
    return DataLoader(Volumes(), batch_size=4)

def only_train():
    return {"train": Volumes(), "other": Volumes()}

def broken():
    raise OSError("no such server")
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the current folder, as a user has it."""
    (tmp_path / "own_data.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    python_source.load.cache_clear()
    yield "own_data"
    sys.path[:] = before
    sys.modules.pop("own_data", None)
    python_source.load.cache_clear()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_a_data_set_by_number(module: str, tmp_path: Path, workers: int) -> None:
    packed = pack(f"{module}:Volumes", tmp_path / "store", workers=workers)
    store = packed.store
    assert store.fields == (
        Field("volume", "input", "float32", (2, 3)), Field("targets", "target", "float32", (2,)),
    )  # fmt: skip
    assert packed.ignored.examples == ["own_data:Volumes: note"]
    numbers = []
    for split in store.splits.values():
        arrays = split.rows(np.arange(split.count))
        numbers += arrays["volume"][:, 0, 0].tolist()
        assert (arrays["targets"][:, 0] * 4 == arrays["volume"][:, 0, 0]).all()
    assert sorted(numbers) == list(range(50))
    assert store.splits["validation"].count == 5


def test_pictures_of_any_size_and_their_classes(module: str, tmp_path: Path) -> None:
    store = pack(f"{module}:Pictures", tmp_path / "store", options=Options(size=8), workers=1).store
    assert store.classes == ("cat", "dog")
    assert [(field.dtype, field.shape, field.limits) for field in store.fields] == [
        ("uint8", (8, 8, 3), None), ("int64", (), (0, 1)),
    ]  # fmt: skip
    train = store.splits["train"]
    assert (train.array("images")[:, 4, 4, 0] % 2 == train.array("labels")).all()


def test_a_stream_of_unknown_length(module: str, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    store = pack(
        f"{module}:Stream", tmp_path / "store", progress=lambda *now: seen.append(now)
    ).store
    counts = {name: split.count for name, split in store.splits.items()}
    assert sum(counts.values()) == 300
    assert 15 <= counts["validation"] <= 45  # each sample by itself: 10 % on average
    assert seen[-1] == (300, 0)
    values = np.concatenate([split.array("targets") for split in store.splits.values()])
    assert sorted(values.tolist()) == [0.5 * number for number in range(300)]


def test_ragged_tokens_and_encoded_images(module: str, tmp_path: Path) -> None:
    packed = pack(f"{module}:texts", tmp_path / "store", options=Options(size=8))
    store = packed.store
    assert (packed.unreadable, store.classes) == (1, ("0", "1", "2"))
    assert {field.name: (field.shape, field.limits) for field in store.fields} == {
        "picture": ((8, 8, 3), None), "tokens": ((-1,), None), "labels": ((), (0, 2)),
    }  # fmt: skip
    for split in store.splits.values():
        lengths = np.diff(split.array("tokens.offsets"))
        assert (lengths % 3 == split.array("labels")).all()
    store.verify()


def test_splits_of_ones_own(module: str, tmp_path: Path) -> None:
    store = pack(f"{module}:both", tmp_path / "store", workers=1).store
    assert [split.count for split in store.splits.values()] == [50, 50]


@pytest.mark.parametrize(
    ("factory", "key", "value"),
    [
        ("late", "inputs", 150),
        ("other_keys", "targets", 150),
        ("strings", "inputs", "str128"),
        ("numbers", "own_data:numbers", "int"),
        ("unnamed", "own_data:unnamed", ["a", "b"]),
        ("nothing", "own_data:nothing", 0),
        ("loader", "own_data:loader", "DataLoader"),
        ("only_train", "own_data:only_train", ["train", "other"]),
        ("fails", "own_data:fails", "RuntimeError"),
        ("broken", "own_data:broken", "OSError"),
        ("missing", "own_data:missing", "AttributeError"),
    ],
)
def test_code_that_gives_no_samples(
    module: str, tmp_path: Path, factory: str, key: str, value: object
) -> None:
    with pytest.raises(DataError) as raised:
        pack(f"{module}:{factory}", tmp_path / "store", workers=1)
    assert (raised.value.key, raised.value.value) == (key, value)
    assert raised.value.remedy or factory == "nothing"
    assert not (tmp_path / "store" / "manifest.json").exists()


def test_the_line_that_failed_is_named(module: str, tmp_path: Path) -> None:
    line = MODULE.splitlines().index('    raise OSError("no such server")') + 1
    with pytest.raises(DataError) as raised:
        pack(f"{module}:broken", tmp_path / "store")
    assert (raised.value.key, raised.value.value) == (f"{module}:broken", "OSError")
    assert f"own_data.py, line {line})" in str(raised.value)


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        pack("no_such_module:factory", tmp_path / "store")
    assert raised.value.value == "ModuleNotFoundError"
