"""A node gets the samples its members use, each checked; a kill or a bad byte never goes unseen."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ai500.bagging.data_sampler import SAMPLERS
from ai500.core.errors import DataError
from ai500.data.generated import generate
from ai500.data.packed_store import PackedStore
from ai500.data.resumable_work import locked
from ai500.data.store import Samples
from ai500.parallel import data_duplicator
from ai500.parallel.data_duplicator import (
    Staged,
    StagedSplit,
    duplicate,
    expected_distinct,
    staged_bytes,
)
from tests.support import hostile_disk
from tests.support.ramp_images import CLASSES, COUNTS, Ramp

MEMBERS = [SAMPLERS["bootstrap"].draw(COUNTS["train"], seed=1, member=m) for m in range(2)]


@pytest.fixture
def store(tmp_path: Path) -> PackedStore:
    return generate(
        tmp_path / "store", Ramp(), name="ramp", classes=CLASSES, splits=COUNTS, workers=1
    )


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_duplicator, "BLOCK_BYTES", 20_000)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def flip(file: Path, place: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(place)
        byte = opened.read(1)
        opened.seek(place)
        opened.write(bytes([byte[0] ^ 1]))


def train(staged: Staged) -> StagedSplit:
    split = staged.splits["train"]
    assert isinstance(split, StagedSplit)
    return split


DUPLICATE = """
from tests.unit.parallel.test_data_duplicator import *
from ai500.core.errors import EnvironmentLacksError
data_duplicator.BLOCK_BYTES = 20_000
store = PackedStore.open(Path("store").absolute())
def stage(progress, workers=2):
    return duplicate(store, counts=MEMBERS, folder=Path("node").absolute(), workers=workers,
                     progress=progress)
"""


@pytest.mark.usefixtures("small_blocks")
def test_brings_what_the_members_use_and_nothing_else(store: PackedStore, tmp_path: Path) -> None:
    staged = duplicate(store, counts=MEMBERS, folder=tmp_path / "node")
    used = np.flatnonzero((MEMBERS[0] > 0) | (MEMBERS[1] > 0))
    assert np.array_equal(train(staged).indices, used)
    for name, indices in (("train", used), ("validation", np.arange(COUNTS["validation"]))):
        here: Samples = staged.splits[name]
        shuffled = np.random.default_rng(0).permutation(indices)
        rows = here.rows(shuffled)
        for field in store.fields:
            assert np.array_equal(rows[field.name], store.splits[name].array(field.name)[shuffled])
        labels = here.rows(shuffled, names=["labels"])
        assert np.array_equal(labels.pop("labels"), rows["labels"])
        assert labels == {}
        assert (here.count, here.fields) == (store.splits[name].count, store.fields)
    assert (staged.name, staged.sha256, staged.classes) == ("ramp", store.sha256, CLASSES)
    staged.verify()


def test_a_sample_that_is_not_here(store: PackedStore, tmp_path: Path) -> None:
    staged = duplicate(store, counts=MEMBERS[:1], folder=tmp_path / "node")
    absent = int(np.flatnonzero(MEMBERS[0] == 0)[5])
    present = int(np.flatnonzero(MEMBERS[0])[0])
    for wrong in (absent, -1, COUNTS["train"]):
        with pytest.raises(DataError) as raised:
            staged.splits["train"].rows(np.array([present, wrong]))
        assert (raised.value.key, raised.value.value) == ("train", wrong)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("stride", [1, 3, 50])
def test_dense_and_sparse_reading_bring_the_same(
    store: PackedStore, tmp_path: Path, stride: int
) -> None:
    counts = np.zeros(COUNTS["train"], dtype=np.uint8)
    counts[7::stride] = 1
    staged = duplicate(store, counts=[counts], folder=tmp_path / "node")
    drawn = np.flatnonzero(counts)
    assert np.array_equal(
        staged.splits["train"].rows(drawn)["images"],
        store.splits["train"].array("images")[drawn],
    )


def test_members_of_a_node_share_one_copy(store: PackedStore, tmp_path: Path) -> None:
    first = duplicate(store, counts=MEMBERS, folder=tmp_path / "node")
    file = first.path / "train.images.npy"
    before = file.stat().st_mtime_ns
    seen: list[int] = []
    second = duplicate(
        store,
        counts=MEMBERS[::-1],
        folder=tmp_path / "node",
        progress=lambda done, total: seen.append(done),
    )
    assert (second.path, seen, file.stat().st_mtime_ns) == (first.path, [], before)
    other = duplicate(store, counts=MEMBERS[:1], folder=tmp_path / "node")
    assert other.path != first.path


@pytest.mark.slow
def test_two_processes_on_a_node_copy_once(store: PackedStore, tmp_path: Path) -> None:
    body = """
import subprocess
if len(sys.argv) == 1:
    both = [subprocess.Popen([sys.executable, __file__, "child"]) for _ in range(3)]
    sys.exit(sum(child.wait() for child in both))
seen = []
stage(lambda done, total: seen.append(done)).verify()
print("copied" if seen else "found", flush=True)
"""
    done = hostile_disk.run(tmp_path, DUPLICATE + body)
    assert sorted(done.stdout.split()) == ["copied", "found", "found"], done.stderr


def test_a_copy_waits_for_the_lock(store: PackedStore, tmp_path: Path) -> None:
    """Linux lists who waits for it: the test depends on no race."""
    name = duplicate(store, counts=MEMBERS, folder=tmp_path / "first").path.name
    lock = (tmp_path / "node" / name).with_suffix(".lock")
    lock.parent.mkdir()
    begun: list[int] = []
    copying = threading.Thread(
        target=duplicate, args=(store,),
        kwargs={"counts": MEMBERS, "folder": lock.parent,
                "progress": lambda done, total: begun.append(done)},
    )  # fmt: skip
    with locked(lock):
        copying.start()
        waiter = re.compile(rf"-> FLOCK .*:{lock.stat().st_ino} ")
        while not waiter.search(Path("/proc/locks").read_text()):
            assert copying.is_alive()
            time.sleep(0.01)
        assert begun == []
    copying.join()
    assert begun


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.slow
def test_a_kill_in_the_middle_loses_nothing(store: PackedStore, tmp_path: Path) -> None:
    undisturbed = duplicate(store, counts=MEMBERS, folder=tmp_path / "other")
    hostile_disk.run(tmp_path, DUPLICATE + "stage(die_after(2000))")
    (half,) = (p for p in (tmp_path / "node").iterdir() if p.is_dir())
    with pytest.raises(DataError) as raised:
        Staged.open(half)
    assert raised.value.path == half
    # A row that was copied and then damaged is copied again; right ones are not touched.
    flip(half / "train.images.npy", 128 + 100)
    staged = duplicate(store, counts=MEMBERS, folder=tmp_path / "node")
    assert staged.path == half
    assert contents(half) == contents(undisturbed.path)


@pytest.mark.usefixtures("small_blocks")
def test_after_a_kill_the_store_is_read_only_for_what_is_missing(
    store: PackedStore, tmp_path: Path
) -> None:
    hostile_disk.run(tmp_path, DUPLICATE + "stage(die_after(2000), workers=1)")
    # The first rows are on the node: the store's own may now even be damaged.
    first = int(np.flatnonzero(MEMBERS[0] | MEMBERS[1])[0])
    flip(store.path / "train.images.npy", 128 + 192 * first)
    duplicate(store, counts=MEMBERS, folder=tmp_path / "node").verify()
    with pytest.raises(DataError) as raised:
        duplicate(store, counts=MEMBERS, folder=tmp_path / "other")
    assert (raised.value.path, raised.value.value) == (store.path / "train.images.npy", first)


@pytest.mark.usefixtures("small_blocks")
def test_a_corrupt_sample_of_the_store_is_named(store: PackedStore, tmp_path: Path) -> None:
    sample = int(np.flatnonzero(MEMBERS[0])[1000])
    flip(store.path / "train.images.npy", 128 + sample * 192 + 5)
    with pytest.raises(DataError) as raised:
        duplicate(store, counts=MEMBERS, folder=tmp_path / "node")
    assert (raised.value.path, raised.value.value) == (store.path / "train.images.npy", sample)
    flip(store.path / "train.images.npy", 128 + sample * 192 + 5)
    duplicate(store, counts=MEMBERS, folder=tmp_path / "node").verify()


def test_a_corrupt_label_of_the_store_is_named(store: PackedStore, tmp_path: Path) -> None:
    flip(store.path / "validation.labels.npy", 128 + 8 * 33)
    with pytest.raises(DataError) as raised:
        duplicate(store, counts=MEMBERS, folder=tmp_path / "node")
    assert raised.value.value == 33


def test_a_store_cut_off_meanwhile_is_named(store: PackedStore, tmp_path: Path) -> None:
    os.truncate(store.path / "train.images.npy", 500_000)
    with pytest.raises(DataError) as raised:
        duplicate(store, counts=MEMBERS, folder=tmp_path / "node")
    assert (raised.value.key, raised.value.path) == ("row", store.path / "train.images.npy")


def test_a_corrupt_copy_is_found_by_verify(store: PackedStore, tmp_path: Path) -> None:
    staged = duplicate(store, counts=MEMBERS, folder=tmp_path / "node")
    flip(staged.path / "train.images.npy", 128 + 192 * 44)
    with pytest.raises(DataError) as raised:
        staged.verify()
    assert raised.value.path == staged.path / "train.images.npy"


@pytest.mark.parametrize("position", [0, 1, 191])
def test_one_flipped_byte_of_any_copied_sample_is_found(
    store: PackedStore, tmp_path: Path, position: int
) -> None:
    """The first byte of the first image, the last of the last, and one between."""
    staged = duplicate(store, counts=MEMBERS, folder=tmp_path / "node")
    staged.verify()
    file = staged.path / "train.images.npy"
    images = (file.stat().st_size - 128) // 192
    flip(file, 128 + 192 * min(position, images - 1) + position)
    with pytest.raises(DataError):
        staged.verify()
    flip(file, 128 + 192 * min(position, images - 1) + position)
    staged.verify()


@pytest.mark.parametrize("damage", ["cut", "long", "gone", "mark"])
def test_a_damaged_finished_copy_is_made_again(
    store: PackedStore, tmp_path: Path, damage: str
) -> None:
    staged = duplicate(store, counts=MEMBERS, folder=tmp_path / "node")
    before = contents(staged.path)
    file = staged.path / "train.images.npy"
    if damage == "cut":
        os.truncate(file, 1000)
    elif damage == "long":
        os.truncate(file, 10**7)
    elif damage == "gone":
        file.unlink()
    else:
        (staged.path / "stage.json").write_text(json.dumps({"format": "other"}))
    duplicate(store, counts=MEMBERS, folder=tmp_path / "node")
    assert contents(staged.path) == before


def test_bootstraps_of_another_store(store: PackedStore, tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        duplicate(store, counts=[np.ones(3, dtype=np.uint8)], folder=tmp_path)
    assert (raised.value.key, raised.value.value) == ("samples", 3)
    with pytest.raises(DataError) as raised:
        duplicate(store, counts=[], folder=tmp_path)
    assert (raised.value.key, raised.value.path) == ("bootstraps", store.path)


def test_a_full_disk_is_explained_and_the_rest_kept(store: PackedStore, tmp_path: Path) -> None:
    body = """
try:
    stage(lambda done, total: fill_disk())
except EnvironmentLacksError as error:
    print(error)
empty_disk()
stage(None).verify()
print("verified")
"""
    prepared = DUPLICATE.replace('Path("store").absolute()', f"Path({str(store.path)!r})")
    printed = hostile_disk.run_on_small_disk(tmp_path, prepared + body, megabytes=3)
    assert re.match(r"cannot write .*/node/.* \((ENOSPC|EFBIG)\): ", printed)
    assert printed.endswith("verified\n")


def test_too_small_a_disk_is_refused_before_the_work(store: PackedStore, tmp_path: Path) -> None:
    body = """
try:
    stage(None)
except EnvironmentLacksError as error:
    print(error, list(Path("node").rglob("*.npy")))
"""
    prepared = DUPLICATE.replace('Path("store").absolute()', f"Path({str(store.path)!r})")
    printed = hostile_disk.run_on_small_disk(tmp_path, prepared + body, megabytes=1)
    needed = 208 * COUNTS["validation"] + 216 * np.count_nonzero(MEMBERS[0] | MEMBERS[1])
    assert f"the node's copy needs {needed} bytes" in printed
    assert "are free" in printed
    assert "[]" in printed


def test_no_permission_is_explained(store: PackedStore, tmp_path: Path) -> None:
    body = """
import tempfile
folder = Path(tempfile.mkdtemp())
folder.chmod(0o555)
store.splits["train"].array("labels")
become_nobody()
try:
    duplicate(store, counts=MEMBERS, folder=folder / "node")
except EnvironmentLacksError as error:
    print(error.exit_code, error)
"""
    done = hostile_disk.run(tmp_path, DUPLICATE + body)
    assert "(EACCES)" in done.stdout, done.stderr


def test_a_pickled_split_carries_no_pixels(store: PackedStore, tmp_path: Path) -> None:
    split = train(duplicate(store, counts=MEMBERS, folder=tmp_path / "node"))
    split.rows(split.indices[:3])
    data = pickle.dumps(split)
    assert len(data) < 1000
    assert np.array_equal(pickle.loads(data).indices, split.indices)


@pytest.mark.parametrize(("members", "share"), [(1, 0.632), (2, 0.865), (4, 0.982)])
def test_expected_distinct(members: int, share: float) -> None:
    assert expected_distinct(1_281_167, members=members) / 1_281_167 == pytest.approx(
        share, abs=1e-3
    )
    exact = 100 * (1 - (1 - 1 / 100) ** (100 * members))
    assert expected_distinct(100, members=members) == pytest.approx(exact)
    assert expected_distinct(10**6, members=members) == pytest.approx(
        10**6 * -math.expm1(-members), rel=1e-5
    )


def test_expected_distinct_at_the_edges() -> None:
    assert expected_distinct(1, members=1) == 1
    assert expected_distinct(1, members=0) == 0
    assert expected_distinct(100, members=0) == 0


@pytest.mark.parametrize("members", [1, 2])
def test_the_plan_foretells_the_copy(store: PackedStore, tmp_path: Path, members: int) -> None:
    staged = duplicate(store, counts=MEMBERS[:members], folder=tmp_path / "node")
    planned = staged_bytes(
        COUNTS["train"],
        validation_samples=COUNTS["validation"],
        sample_bytes=200,
        members=members,
    )
    size = sum(file.stat().st_size for file in staged.path.glob("*.npy"))
    assert size == pytest.approx(planned, rel=0.02)
