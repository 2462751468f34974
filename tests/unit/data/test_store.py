"""The store protocols: a kind of store that `ai500` does not know works through them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ai500.core import plugins
from ai500.core.errors import DataError, InputError
from ai500.data.gather import Empty
from ai500.data.open_store import VerifiedSplit, open_store, reader_of
from ai500.data.packed_store import PackedStore
from ai500.data.resumable_work import Progress
from ai500.data.store import (
    Arrays,
    CheckReport,
    Digests,
    Indices,
    Problem,
    Store,
    digests_of,
)
from ai500.parallel.data_duplicator import Staged, duplicate
from ai500.records import Field, ProblemClass
from ai500.workloads.learnable_images import SMOKE

COUNTS = {"train": 10, "validation": 4}
FIELDS = (
    Field("heights", "input", "float32", (2, 3, 5)),
    Field("winds", "target", "float64", (2,)),
)


@dataclass
class Waves:
    """A split of two float fields, two samples to a chunk on disk."""

    name: str
    count: int
    fields: tuple[Field, ...] = FIELDS

    def read(self, indices: Indices) -> Arrays:
        heights = np.arange(self.count * 30, dtype=np.float32).reshape(-1, 2, 3, 5)
        winds = np.arange(2 * self.count, dtype=np.float64).reshape(-1, 2)
        return {"heights": heights[indices], "winds": winds[indices]}

    def rows(
        self, indices: Indices, *, names: Sequence[str] | None = None, empty: Empty = np.empty
    ) -> Arrays:
        return self.read(indices)

    def lengths(self, name: str) -> Indices:
        raise NotImplementedError

    def storage_chunks(self, indices: Indices) -> Indices:
        return indices // 2

    def path_of(self, number: int) -> Path:
        return Path("waves.bin")


@dataclass
class WaveStore:
    """A store in none of the built-in formats."""

    path: Path
    corrupt: bool = False

    name = "waves"
    sha256 = "a" * 64
    classes = ("calm", "storm")
    preparation = None
    fields = FIELDS

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return (path / "waves.bin").exists()

    @classmethod
    def open(cls, path: Path) -> WaveStore:
        return cls(path)

    @classmethod
    def check(cls, path: Path, progress: Progress | None = None) -> CheckReport:
        return CheckReport(path, ("14 waves",), {}, (Problem("waves.bin", 3, "breaks"),))

    @property
    def splits(self) -> Mapping[str, Waves]:
        return {name: Waves(name, count) for name, count in COUNTS.items()}

    def prepare(self, progress: Progress | None = None) -> None: ...

    def verify(self, progress: Progress | None = None) -> None: ...

    def digests(self, split: str) -> Digests:
        everything = np.arange(COUNTS[split])
        arrays = self.splits[split].rows(everything)
        return digests_of(arrays, FIELDS) + np.uint64(self.corrupt)

    def normalization(self) -> None: ...

    def require_fit(self, problem_class: ProblemClass) -> None: ...


@pytest.fixture
def waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(plugins.BUILT_IN["store"], "waves", f"{__name__}:WaveStore")
    monkeypatch.setattr(plugins, "_table", plugins._table.__wrapped__)
    (tmp_path / "waves.bin").touch()
    return tmp_path


def test_a_folder_is_opened_by_the_reader_that_recognizes_it(waves: Path, tiny_store: Path) -> None:
    store: Store = open_store(waves)
    assert isinstance(store, WaveStore)
    assert isinstance(open_store(tiny_store), PackedStore)
    assert str(reader_of(waves).check(waves).problems[0]) == "waves.bin: frame 3: breaks"


def test_any_store_is_staged_in_its_own_layout(waves: Path, tmp_path: Path) -> None:
    counts = np.array([0, 1, 2, 0, 0, 0, 1, 1, 0, 3], dtype=np.uint8)
    staged = duplicate(open_store(waves), counts=[counts], folder=tmp_path / "node", workers=2)
    Staged.open(staged.path).verify()
    for name, indices in (("train", np.array([9, 1, 1, 6])), ("validation", np.arange(4))):
        copied, stored = staged.splits[name].rows(indices), Waves(name, COUNTS[name]).rows(indices)
        assert [array.dtype for array in copied.values()] == [np.float32, np.float64]
        for field in FIELDS:
            assert np.array_equal(copied[field.name], stored[field.name])


def test_any_store_is_verified_by_its_digests(waves: Path, tmp_path: Path) -> None:
    store = WaveStore(waves, corrupt=True)
    with pytest.raises(DataError) as raised:
        VerifiedSplit(store.splits["train"], store.digests("train")).rows(np.array([2]))
    assert (raised.value.path, raised.value.value) == (Path("waves.bin"), 2)
    with pytest.raises(DataError) as raised:
        duplicate(store, counts=[np.ones(10, np.uint8)], folder=tmp_path / "node", workers=1)
    assert (raised.value.path, raised.value.value) == (Path("waves.bin"), 0)


def test_generated_samples_have_a_fixed_size() -> None:
    with pytest.raises(InputError) as raised:
        SMOKE.resized(5, height=None, width=None)
    assert (raised.value.key, raised.value.value) == ("frames", 5)
