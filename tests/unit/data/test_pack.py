"""Packing what people have: folders of images, with everything that is wrong in them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ai500.core.errors import DataError
from ai500.data.pack import Packed, pack
from ai500.data.packed_store import PackedStore
from ai500.data.readers import pixels
from ai500.data.readers.image_tree import EXPECTED_TREE
from ai500.data.readers.open_source import Options
from tests.support import hostile_disk

CLASSES = ("ant", "bee", "cow")


def pack_folder(
    source: Path, out: Path, *, workers: int | None = 1, progress: Any = None, **options: Any
) -> Packed:
    return pack(source, out, options=Options(**options), workers=workers, progress=progress)


def decode(file: Path, *, size: int) -> pixels.Pixels:
    return pixels.decode(file, size=size, dtype="uint8", name=file.name)


def paint(file: Path, *, value: int, width: int = 20, height: int = 12, mode: str = "RGB") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((height, width, 3), value, dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(file)


def plant(folder: Path, *, per_class: int = 10) -> Path:
    """A tree of classes; the pixels of each image tell its class and number."""
    for label, name in enumerate(CLASSES):
        for i in range(per_class):
            paint(folder / name / f"{i:03}.png", value=80 * label + i)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def packed_values(store: PackedStore, split: str) -> list[tuple[int, int]]:
    """Each sample's label and colour."""
    images, labels = (store.splits[split].array(name) for name in ("images", "labels"))
    assert (images == images[:, :1, :1, :1]).all()
    return list(zip(labels.tolist(), images[:, 0, 0, 0].tolist(), strict=True))


def test_train_and_val_folders(tmp_path: Path) -> None:
    plant(tmp_path / "birds" / "train")
    plant(tmp_path / "birds" / "val", per_class=2)
    (tmp_path / "birds" / "train" / "ant" / "notes.txt").write_text("not an image")
    packed = pack_folder(tmp_path / "birds", tmp_path / "store", size=8, workers=1)
    (tmp_path / "birds" / "readme.md").write_text("neither")
    packed = pack_folder(tmp_path / "birds", tmp_path / "store", size=8, workers=1)
    assert packed.unreadable == 0
    assert packed.ignored.examples == ["train/ant/notes.txt", "readme.md"]
    assert (packed.store.name, packed.store.classes) == ("birds", CLASSES)
    expected = [(label, 80 * label + i) for label in range(3) for i in range(10)]
    assert packed_values(packed.store, "train") == expected
    assert len(packed_values(packed.store, "validation")) == 6
    packed.store.verify()


def test_class_folders_alone_give_a_validation_split(tmp_path: Path) -> None:
    source = plant(tmp_path / "source")
    packed = pack_folder(source, tmp_path / "store", size=8, validation_fraction=0.2, workers=1)
    train = packed_values(packed.store, "train")
    held = packed_values(packed.store, "validation")
    assert len(train) == 24
    assert [label for label, _ in held] == [0, 0, 1, 1, 2, 2]
    assert sorted(train + held) == [
        (label, 80 * label + i) for label in range(3) for i in range(10)
    ]
    shutil.move(source, tmp_path / "moved" / "source")
    again = pack_folder(
        tmp_path / "moved" / "source", tmp_path / "again", size=8, validation_fraction=0.2
    )
    assert again.store.sha256 == packed.store.sha256


def test_a_tree_packed_into_itself_has_no_class_more(tmp_path: Path) -> None:
    source = plant(tmp_path / "source")
    pack_folder(source, source / "store", size=8, workers=1)
    assert pack_folder(source, source / "store", size=8).store.classes == CLASSES


def test_an_image_is_scaled_and_its_centre_cut(tmp_path: Path) -> None:
    pixels = np.zeros((64, 192, 3), dtype=np.uint8)
    pixels[:, :64] = (255, 0, 0)
    pixels[:, 64:128] = (0, 255, 0)
    pixels[:, 128:] = (0, 0, 255)
    flag = Image.fromarray(pixels)
    flag.save(tmp_path / "flag.png")
    scaled = np.asarray(flag.resize((48, 16), Image.Resampling.BILINEAR))
    decoded = decode(tmp_path / "flag.png", size=16)
    assert np.array_equal(decoded, scaled[:, 16:32])
    assert (decoded[:, 2:-2] == (0, 255, 0)).all()
    Image.fromarray(pixels.transpose(1, 0, 2)).save(tmp_path / "tall.png")
    assert np.array_equal(decode(tmp_path / "tall.png", size=16), decoded.transpose(1, 0, 2))


def test_scaling_down_is_antialiased(tmp_path: Path) -> None:
    pixels = np.zeros((64, 64, 3), dtype=np.uint8)
    pixels[:, ::2] = 255
    Image.fromarray(pixels).save(tmp_path / "stripes.png")
    inner = decode(tmp_path / "stripes.png", size=8)[:, 1:-1]
    assert np.all(np.abs(inner.astype(int) - 127) <= 3)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_every_kind_of_image_becomes_rgb(tmp_path: Path, mode: str) -> None:
    file = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    paint(file, value=255, mode=mode)
    image = decode(file, size=4)
    assert image.shape == (4, 4, 3)
    assert image.min() >= 250


def test_unreadable_images_are_left_out_and_reported(tmp_path: Path) -> None:
    source = plant(tmp_path / "source" / "train").parent
    plant(source / "validation", per_class=2)
    broken = [
        ("train/ant/000.png", b""),
        ("train/bee/004.png", (source / "train/bee/004.png").read_bytes()[:60]),
        ("train/cow/009.png", b"not an image at all"),
        ("validation/bee/001.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 40),
    ]
    for name, data in broken:
        (source / name).write_bytes(data)
    packed = pack_folder(source, tmp_path / "store", size=8, workers=1)
    assert packed.unreadable == 4
    listed = json.loads((tmp_path / "store" / "unreadable.json").read_text())
    assert [entry["file"] for entry in listed] == [name for name, _ in broken]
    assert all(entry["why"] for entry in listed)
    gone = {(0, 0), (1, 84), (2, 169)}
    expected = {(label, 80 * label + i) for label in range(3) for i in range(10)} - gone
    values = packed_values(packed.store, "train")
    assert len(values) == 27
    assert set(values) == expected
    assert len(packed_values(packed.store, "validation")) == 5
    packed.store.verify()
    assert pack_folder(source, tmp_path / "store", size=8).unreadable == 4


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    for i in range(4):
        file = tmp_path / "source" / "ant" / f"{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"no")
    with pytest.raises(DataError) as raised:
        pack_folder(tmp_path / "source", tmp_path / "store", size=8)
    assert (raised.value.key, raised.value.value) == ("train", 3)


PACK = """
from tests.unit.data.test_pack import *
from ai500.data import store_writer
from ai500.data.columns import Column
store_writer.CHUNK_ROWS = 5
def pack(progress, workers):
    return pack_folder(Path("source"), Path("store"), size=8, workers=workers, progress=progress)
"""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_a_kill_in_the_middle_loses_nothing(tmp_path: Path, workers: int) -> None:
    source = plant(tmp_path / "source")
    for name in ("ant/003.png", "cow/000.png", "cow/009.png"):
        (source / name).write_bytes(b"broken")
    whole = pack_folder(source, tmp_path / "whole", size=8, workers=1)
    hostile_disk.run(tmp_path, PACK + f"pack(die_after(12), {workers})")
    assert not (tmp_path / "store" / "manifest.json").exists()
    done = hostile_disk.run(
        tmp_path, PACK + f"pack(lambda done, total: print(done), {workers}).store.verify()"
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 12
    assert contents(tmp_path / "store") == contents(whole.store.path)


@pytest.mark.parametrize("step", ["write", "finish", "manifest"])
def test_a_kill_while_the_gaps_close_loses_nothing(tmp_path: Path, step: str) -> None:
    source = plant(tmp_path / "source")
    for name in ("ant/003.png", "ant/004.png", "cow/000.png"):
        (source / name).write_bytes(b"broken")
    whole = pack_folder(source, tmp_path / "whole", size=8, workers=1)
    traps = {
        "write": """
real, calls = Column.write, []
def write(*arguments):
    real(*arguments)
    calls.append(1)
    if all_done and len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
Column.write = write
""",
        "finish": """
real_finish, finished = Column.finish, []
def finish(column):
    real_finish(column)
    finished.append(1)
    if len(finished) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
Column.finish = finish
""",
        "manifest": """
real_sha = store_writer.identity
def identity(body):
    os.kill(os.getpid(), signal.SIGKILL)
store_writer.identity = identity
""",
    }
    progress = """
all_done = False
def progress(done, total):
    global all_done
    if done == total:
        all_done = True
        if "calls" in globals():
            calls.clear()
pack(progress, 1)
"""
    hostile_disk.run(tmp_path, PACK + traps[step] + progress)
    assert not (tmp_path / "store" / "manifest.json").exists()
    assert (tmp_path / "store" / "building.json").exists()
    hostile_disk.run(tmp_path, PACK + "pack(None, 1).store.verify()")
    assert contents(tmp_path / "store") == contents(whole.store.path)


def test_a_source_that_changed_is_not_mixed_in(tmp_path: Path) -> None:
    source = plant(tmp_path / "source")
    hostile_disk.run(tmp_path, PACK + "pack(die_after(12), 1)")
    paint(source / "ant" / "zzz.png", value=1)
    with pytest.raises(DataError) as raised:
        pack_folder(source, tmp_path / "store", size=8)
    assert (raised.value.key, raised.value.path) == ("plan", tmp_path / "store")


def test_a_full_disk_is_explained_and_the_rest_kept(tmp_path: Path) -> None:
    source = plant(tmp_path / "source", per_class=40)
    body = f"""
from ai500.core.errors import EnvironmentLacksError
os.symlink({str(source)!r}, "source")
def fill(done, total):
    if done:
        fill_disk()
def pack(progress, workers):
    return pack_folder(Path("source"), Path("store"), size=32, workers=workers, progress=progress)
try:
    pack(fill, 1)
except EnvironmentLacksError as error:
    print(error.exit_code, error)
empty_disk()
pack(None, 1).store.verify()
print("verified")
"""
    printed = hostile_disk.run_on_small_disk(tmp_path, PACK + body, megabytes=2)
    assert printed.startswith("3 cannot write store/")
    assert printed.endswith("verified\n")


def test_no_permission_is_explained(tmp_path: Path) -> None:
    source = plant(tmp_path / "source")
    body = """
import shutil, tempfile
from ai500.core.errors import AI500Error
shared = Path(tempfile.mkdtemp())
shutil.copytree("source", shared / "source")
shared.chmod(0o555)
become_nobody()
try:
    pack_folder(shared / "source", shared / "store", size=8, workers=1)
except AI500Error as error:
    print(error.exit_code, error)
"""
    done = hostile_disk.run(tmp_path, PACK + body)
    assert "(EACCES)" in done.stdout, done.stderr
    assert done.stdout.startswith("3 ")
    assert source.exists()


def test_an_unreadable_folder_is_named(tmp_path: Path) -> None:
    plant(tmp_path / "source")
    body = """
import shutil, tempfile
from ai500.core.errors import AI500Error
shared = Path(tempfile.mkdtemp())
shared.chmod(0o777)
shutil.copytree("source", shared / "source")
(shared / "source" / "bee").chmod(0)
become_nobody()
os.chdir(shared)
try:
    pack_folder(shared / "source", shared / "store", size=8, workers=1)
except AI500Error as error:
    print(error.exit_code, error)
"""
    done = hostile_disk.run(tmp_path, PACK + body)
    assert "source/bee: cannot list this folder: Permission denied" in done.stdout, done.stderr
    assert done.stdout.startswith("2 ")


def test_trees_that_are_none(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "store"
    with pytest.raises(DataError) as raised:
        pack_folder(source, out)
    assert raised.value.path == source
    source.mkdir()
    (source / "stray.png").touch()
    with pytest.raises(DataError) as raised:
        pack_folder(source, out)
    assert (raised.value.path, raised.value.remedy) == (source, EXPECTED_TREE)
    plant(source)
    (source / "empty").mkdir()
    with pytest.raises(DataError) as raised:
        pack_folder(source, out)
    assert raised.value.path == source / "empty"
    assert not out.exists()


def test_a_validation_class_that_is_not_in_train(tmp_path: Path) -> None:
    plant(tmp_path / "source" / "train")
    paint(tmp_path / "source" / "val" / "dog" / "1.png", value=1)
    with pytest.raises(DataError) as raised:
        pack_folder(tmp_path / "source", tmp_path / "store")
    assert raised.value.path == tmp_path / "source" / "val" / "dog"


def test_an_empty_validation_folder(tmp_path: Path) -> None:
    plant(tmp_path / "source" / "train")
    (tmp_path / "source" / "val").mkdir()
    with pytest.raises(DataError) as raised:
        pack_folder(tmp_path / "source", tmp_path / "store")
    assert raised.value.path == tmp_path / "source" / "val"


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 2.0])
def test_an_impossible_fraction(tmp_path: Path, fraction: float) -> None:
    plant(tmp_path / "source")
    with pytest.raises(DataError) as raised:
        pack_folder(tmp_path / "source", tmp_path / "store", validation_fraction=fraction)
    assert (raised.value.key, raised.value.value) == ("--validation", fraction)


@pytest.mark.parametrize("size", [0, -1, 5000])
def test_an_impossible_size(tmp_path: Path, size: int) -> None:
    with pytest.raises(DataError) as raised:
        pack_folder(plant(tmp_path / "source"), tmp_path / "store", size=size)
    assert (raised.value.key, raised.value.value) == ("size", size)


def test_another_store_is_not_overwritten(tmp_path: Path) -> None:
    source = plant(tmp_path / "source")
    pack_folder(source, tmp_path / "store", size=8, workers=1)
    before = contents(tmp_path / "store")
    with pytest.raises(DataError) as raised:
        pack_folder(source, tmp_path / "store", size=9)
    stored = PackedStore.open(tmp_path / "store")
    assert (raised.value.key, raised.value.value) == ("sha256", stored.sha256)
    assert contents(tmp_path / "store") == before
