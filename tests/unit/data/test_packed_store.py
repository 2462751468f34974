"""The packed store: the same bytes however it was made, and nothing wrong with it goes unseen."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ai500.core.errors import DataError, EnvironmentLacksError
from ai500.data.columns import Column
from ai500.data.generated import generate
from ai500.data.packed_store import PackedStore
from ai500.data.resumable_work import in_parallel
from ai500.data.store import Samples, digests_of
from ai500.records.fields import image_fields
from tests.support import hostile_disk
from tests.support.ramp_images import CLASSES, COUNTS, Ramp

SHA256 = "e038b9417d7eed35023da7454fceff36999f1a874c7affecf28b950889b126f2"


def make(
    path: Path,
    *,
    workers: int = 1,
    source: Ramp | None = None,
    expected_sha256: str | None = None,
) -> PackedStore:
    return generate(
        path,
        source or Ramp(),
        name="ramp",
        classes=CLASSES,
        splits=COUNTS,
        workers=workers,
        expected_sha256=expected_sha256,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


GENERATE = """
from tests.unit.data.test_packed_store import *
def make_with(progress, workers):
    return generate(Path("store"), Ramp(), name="ramp", classes=CLASSES, splits=COUNTS,
                    workers=workers, progress=progress)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PackedStore:
    return make(tmp_path_factory.mktemp("made") / "store")


def test_reads_what_was_made(store: PackedStore) -> None:
    store.verify()
    split: Samples = store.splits["train"]
    indices = np.array([4999, 0, 17, 17])
    rows = split.rows(indices)
    expected = [Ramp().draw("train", i, i + 1) for i in indices.tolist()]
    assert list(rows) == ["images", "labels"]
    for name, values in rows.items():
        assert np.array_equal(values, np.concatenate([sample[name] for sample in expected]))
    labels = split.rows(indices, names=["labels"])
    assert list(labels) == ["labels"]
    assert np.array_equal(labels["labels"], rows["labels"])
    assert (store.name, store.classes, split.count) == ("ramp", CLASSES, 5000)
    assert split.fields == store.fields == Ramp().fields


def test_is_the_same_on_every_machine(store: PackedStore) -> None:
    assert store.sha256 == SHA256


def test_files_open_with_numpy(store: PackedStore) -> None:
    for column in store.columns():
        array = np.load(column.path)
        assert (array.shape, array.dtype) == (column.shape, column.dtype)


def test_a_header_has_one_length_up_to_the_largest_store() -> None:
    column = Column(Path(), np.dtype("|u1"), (2**40, 4096, 4096, 16))
    assert len(column.header()) == 128


def test_digests_cover_image_and_label(store: PackedStore) -> None:
    split = store.splits["validation"]
    arrays = split.rows(np.arange(split.count))
    assert np.array_equal(digests_of(arrays, split.fields), split.digests)
    other = {**arrays, "labels": arrays["labels"] + 1}
    assert not np.any(digests_of(other, split.fields) == split.digests)
    # As the first edition's: copies and stores of images keep their digests.
    image, label = arrays["images"][0], arrays["labels"][0]
    digest = hashlib.blake2b(image.tobytes() + label.tobytes(), digest_size=8).digest()
    assert split.digests[0].tobytes() == digest


def test_a_pickled_split_carries_no_pixels(store: PackedStore) -> None:
    split = store.splits["train"]
    split.rows(np.array([1]))
    data = pickle.dumps(split)
    assert len(data) < 1000
    assert np.array_equal(pickle.loads(data).array("labels"), split.array("labels"))


def test_cannot_be_written_to(store: PackedStore) -> None:
    with pytest.raises(ValueError, match="read-only"):
        store.splits["train"].array("images")[0] = 0


@pytest.mark.parametrize("wrong", [-1, 5000])
def test_a_sample_out_of_range(store: PackedStore, wrong: int) -> None:
    with pytest.raises(DataError) as raised:
        store.splits["train"].rows(np.array([0, wrong]))
    assert (raised.value.key, raised.value.value) == ("train", wrong)


@pytest.mark.slow
def test_many_processes_make_the_same_bytes(store: PackedStore, tmp_path: Path) -> None:
    assert contents(make(tmp_path / "store", workers=3).path) == contents(store.path)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_a_kill_in_the_middle_loses_nothing(
    store: PackedStore, tmp_path: Path, workers: int
) -> None:
    body = f"make_with(die_after(1500), {workers})"
    hostile_disk.run(tmp_path, GENERATE + body)
    half = tmp_path / "store"
    assert (half / "building.jsonl").read_text().count("\n") >= 2
    with pytest.raises(DataError) as raised:
        PackedStore.open(half)
    assert raised.value.path == half / "manifest.json"
    seen: list[int] = []
    generate(half, Ramp(), name="ramp", classes=CLASSES, splits=COUNTS, workers=workers,
             progress=lambda done, total: seen.append(done))  # fmt: skip
    assert seen[0] >= 1500
    assert seen[-1] == sum(COUNTS.values())
    assert contents(half) == contents(store.path)


@pytest.mark.slow
def test_killed_at_every_chunk(store: PackedStore, tmp_path: Path) -> None:
    for done in (0, 1024, 2048, 3072, 4096, 5000, 5700):
        ended = hostile_disk.run(tmp_path, GENERATE + f"make_with(die_after({done}), 1)")
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    make(tmp_path / "store")
    assert contents(tmp_path / "store") == contents(store.path)


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    code = hostile_disk.run_and_see_all_end(tmp_path, GENERATE + "make_with(die_after(1024), 2)")
    assert code == -signal.SIGKILL


def test_a_killed_worker_is_explained_and_the_rest_kept(store: PackedStore, tmp_path: Path) -> None:
    deadly = tmp_path / "deadly"
    deadly.touch()
    source = Ramp(deadly_file=str(deadly))
    with pytest.raises(EnvironmentLacksError) as raised:
        make(tmp_path / "store", source=source, workers=2)
    assert (raised.value.key, raised.value.value) == ("workers", 2)
    deadly.unlink()
    assert contents(make(tmp_path / "store", source=source).path) == contents(store.path)


def test_ctrl_c_is_the_parents_from_a_workers_first_line_on() -> None:
    """A worker that is still importing would print a traceback."""
    ((_, held),) = in_parallel(
        [("mask", partial(signal.pthread_sigmask, signal.SIG_BLOCK, ()))], workers=2
    )
    assert signal.SIGINT in held
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_torn_line_of_the_journal_is_done_again(store: PackedStore, tmp_path: Path) -> None:
    hostile_disk.run(tmp_path, GENERATE + "make_with(die_after(3000), 1)")
    journal = tmp_path / "store" / "building.jsonl"
    journal.write_text(journal.read_text()[:-5])
    make(tmp_path / "store")
    assert contents(tmp_path / "store") == contents(store.path)


def test_a_full_disk_is_explained_and_the_rest_kept(store: PackedStore, tmp_path: Path) -> None:
    printed = hostile_disk.run_on_small_disk(
        tmp_path,
        GENERATE
        + """
from ai500.core.errors import EnvironmentLacksError
try:
    make_with(lambda done, total: fill_disk() if done else None, 1)
except EnvironmentLacksError as error:
    print(error)
print(Path("store/manifest.json").exists())
empty_disk()
seen = []
store = make_with(lambda done, total: seen.append(done), 1)
store.verify()
print(seen[0], store.sha256)
""",
        megabytes=4,
    )
    assert "cannot write store/train.images.npy (E" in printed
    assert "False" in printed
    assert printed.endswith(f"1024 {store.sha256}\n")


def test_too_small_a_disk_is_refused_before_the_work(tmp_path: Path) -> None:
    splits = {"train": 10**12}
    with pytest.raises(EnvironmentLacksError) as raised:
        generate(tmp_path / "store", Ramp(), name="ramp", classes=CLASSES, splits=splits)
    assert (raised.value.key, raised.value.value) == ("bytes", 208 * 10**12)
    assert raised.value.path == tmp_path / "store"


def test_no_permission_is_explained(tmp_path: Path) -> None:
    body = """
import tempfile
folder = Path(tempfile.mkdtemp())
folder.chmod(0o555)
become_nobody()
try:
    generate(folder / "store", Ramp(), name="ramp", classes=CLASSES, splits=COUNTS, workers=1)
except EnvironmentLacksError as error:
    print(error.exit_code, error)
"""
    done = hostile_disk.run(tmp_path, GENERATE + body)
    assert done.stdout.startswith("3 cannot write"), done.stderr
    assert "(EACCES)" in done.stdout


@pytest.mark.parametrize("file", ["train.images.npy", "validation.labels.npy", "train.digests.npy"])
def test_a_corrupt_byte_is_named(tmp_path: Path, file: str) -> None:
    store = make(tmp_path / "store")
    with (store.path / file).open("r+b") as opened:
        opened.seek(-3, os.SEEK_END)
        byte = opened.read(1)
        opened.seek(-3, os.SEEK_END)
        opened.write(bytes([byte[0] ^ 1]))
    with pytest.raises(DataError) as raised:
        PackedStore.open(store.path).verify()
    now = hashlib.sha256((store.path / file).read_bytes()).hexdigest()
    assert (raised.value.key, raised.value.value) == ("sha256", now)
    assert raised.value.path == store.path / file
    assert store.file_sha256[file] in str(raised.value)


def test_a_missing_and_a_short_file_are_named(tmp_path: Path) -> None:
    store = make(tmp_path / "store")
    file = store.path / "train.labels.npy"
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    with pytest.raises(DataError) as raised:
        PackedStore.open(store.path)
    assert (raised.value.key, raised.value.value) == ("bytes", len(data) - 1)
    assert raised.value.path == file
    file.unlink()
    with pytest.raises(DataError) as raised:
        PackedStore.open(store.path)
    assert (raised.value.path, raised.value.value) == (file, None)


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ({"name": "other", "sha256": "a"}, "sha256", "a"),
        ({"classes": ["cat"], "sha256": "b"}, "sha256", "b"),
        ({"format": "ai500 store 9"}, "format", "ai500 store 9"),
        ({"splits": {"train": {}}}, None, "KeyError"),
        ({"splits": [1]}, None, "AttributeError"),
    ],
)
def test_a_changed_manifest_is_named(
    tmp_path: Path, change: dict[str, object], key: str | None, value: str
) -> None:
    path = make(tmp_path / "store").path
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(DataError) as raised:
        PackedStore.open(path)
    assert (raised.value.key, raised.value.value) == (key, value)
    assert raised.value.path == path / "manifest.json"


@pytest.mark.parametrize("text", ["", "{", "[]", "\0\xff"])
def test_a_broken_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DataError) as raised:
        PackedStore.open(tmp_path)
    assert raised.value.path == tmp_path / "manifest.json"


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "a.zip").touch()
    for path in (tmp_path / "nowhere", tmp_path, tmp_path / "a.zip"):
        with pytest.raises(DataError) as raised:
            PackedStore.open(path)
        assert raised.value.path == path
        assert "ai500 data pack" in raised.value.remedy


def test_a_finished_store_is_used(store: PackedStore) -> None:
    before = (store.path / "train.images.npy").stat().st_mtime_ns
    assert make(store.path, expected_sha256=store.sha256) == store
    assert (store.path / "train.images.npy").stat().st_mtime_ns == before


def test_another_store_is_not_overwritten(store: PackedStore) -> None:
    with pytest.raises(DataError) as raised:
        make(store.path, expected_sha256="f" * 64)
    assert (raised.value.key, raised.value.value) == ("sha256", store.sha256)
    with pytest.raises(DataError) as raised:
        generate(store.path, Ramp(), name="ramp", classes=CLASSES, splits={"train": 1})
    assert (raised.value.key, raised.value.value) == ("sha256", store.sha256)


def test_another_half_made_store_is_not_mixed_in(tmp_path: Path) -> None:
    hostile_disk.run(tmp_path, GENERATE + "make_with(die_after(1500), 1)")
    with pytest.raises(DataError) as raised:
        make(tmp_path / "store", source=Ramp(step=8))
    assert (raised.value.key, raised.value.path) == ("plan", tmp_path / "store")


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for path in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(DataError) as raised:
            make(path)
        assert raised.value.path == path
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_other_bytes_than_expected_are_refused_and_deleted(
    store: PackedStore, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as raised:
        make(tmp_path / "store", expected_sha256="0" * 64)
    assert raised.value.value == store.sha256
    assert not list((tmp_path / "store").glob("*.npy"))
    make(tmp_path / "store", expected_sha256=store.sha256)


@pytest.mark.slow
def test_two_processes_make_one_store(store: PackedStore, tmp_path: Path) -> None:
    body = """
import subprocess
if len(sys.argv) == 1:
    both = [subprocess.Popen([sys.executable, __file__, "child"]) for _ in range(2)]
    sys.exit(sum(child.wait() for child in both))
make_with(None, 1)
"""
    done = hostile_disk.run(tmp_path, GENERATE + body)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "store") == contents(store.path)


def test_a_source_that_breaks_its_word_is_named(tmp_path: Path) -> None:
    class TwoClasses(Ramp):
        fields = image_fields(8, 8, classes=2)

    with pytest.raises(DataError) as raised:
        generate(tmp_path / "s", TwoClasses(), name="ramp", splits={"train": 9})
    assert (raised.value.key, raised.value.value) == ("labels", 2)
    assert raised.value.path == tmp_path / "s"
