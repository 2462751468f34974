"""A kill in the middle loses nothing, whatever is packed: the store is the same to the last bit."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.support import hostile_disk

COUNT = 300


def arrays() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {"inputs": generator.normal(size=(COUNT, 3)), "targets": generator.normal(size=COUNT)}


def ragged() -> dict[str, Any]:
    offsets = np.concatenate([[0], np.cumsum(np.arange(COUNT) % 7)])
    values = np.arange(offsets[-1], dtype=np.int32)
    return {"inputs": values, "inputs_offsets": offsets, "targets": np.arange(COUNT) / 8}


def tar(folder: Path) -> str:
    with tarfile.open(folder / "photos.tar", "w") as archive:
        for number in range(COUNT):
            buffer = io.BytesIO()
            Image.new("RGB", (9, 8), (number % 256, 0, 0)).save(buffer, "PNG")
            data = buffer.getvalue() if number % 50 else b"damaged"
            member = tarfile.TarInfo(f"{'ant' if number % 2 else 'bee'}/{number}.png")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return "photos.tar"


def npz(folder: Path) -> str:
    np.savez(folder / "data.npz", **arrays())
    return "data.npz"


def compressed_npz(folder: Path) -> str:
    np.savez_compressed(folder / "data.npz", **arrays())
    return "data.npz"


def ragged_npz(folder: Path) -> str:
    np.savez(folder / "data.npz", **ragged())
    return "data.npz"


def ragged_compressed_npz(folder: Path) -> str:
    np.savez_compressed(folder / "data.npz", **ragged())
    return "data.npz"


def hdf5(folder: Path) -> str:
    with h5py.File(folder / "data.h5", "w") as file:
        for name, array in arrays().items():
            file[name] = array
    return "data.h5"


def parquet(folder: Path) -> str:
    columns = {name: array.tolist() for name, array in arrays().items()}
    pq.write_table(pa.table(columns), folder / "data.parquet", row_group_size=64)
    return "data.parquet"


def dataset(folder: Path) -> str:
    (folder / "own_data.py").write_text(
        "import torch\n"
        "from torch.utils.data import Dataset\n"
        "class Numbers(Dataset):\n"
        f"    def __len__(self): return {COUNT}\n"
        "    def __getitem__(self, number): return torch.full((4,), number * 0.5), number % 3\n"
    )
    return "own_data:Numbers"


def generator(folder: Path) -> str:
    (folder / "own_data.py").write_text(
        "def samples():\n"
        f"    for number in range({COUNT}):\n"
        "        yield {'inputs': [number] * 3, 'targets': number / 4}\n"
    )
    return "own_data:samples"


def ragged_generator(folder: Path) -> str:
    (folder / "own_data.py").write_text(
        "def samples():\n"
        f"    for number in range({COUNT}):\n"
        "        yield {'inputs': [number] * (number % 5), 'targets': number % 3}\n"
    )
    return "own_data:samples"


SOURCES: dict[str, Callable[[Path], str]] = {
    each.__name__: each
    for each in (
        tar, npz, compressed_npz, ragged_npz, ragged_compressed_npz, hdf5, parquet, dataset,
        generator, ragged_generator,
    )
}  # fmt: skip

PACK = """
from ai500.data import store_writer
from ai500.data.pack import pack
from ai500.data.readers.open_source import Options
store_writer.CHUNK_ROWS = store_writer.RAGGED_CHUNK_ROWS = 16
def make(folder, progress=None):
    return pack(SOURCE, Path(folder), options=Options(size=8), workers=1, progress=progress).store
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.slow
def test_a_kill_in_the_middle_loses_nothing(tmp_path: Path, kind: str) -> None:
    script = f"SOURCE = {SOURCES[kind](tmp_path)!r}\n" + PACK
    killed = hostile_disk.run(tmp_path, script + "make('whole'); make('store', die_after(150))")
    assert killed.returncode == -9, killed.stderr
    assert not (tmp_path / "store" / "manifest.json").exists()
    written = (tmp_path / "store" / "building.jsonl").read_text().splitlines()
    assert 9 <= len(written) < 19
    resumed = hostile_disk.run(
        tmp_path, script + "make('store', lambda done, total: print(done)).verify()"
    )
    assert resumed.returncode == 0, resumed.stderr
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


def test_a_kill_while_ragged_chunks_are_appended(tmp_path: Path) -> None:
    script = f"SOURCE = {ragged_generator(tmp_path)!r}\n" + PACK
    trap = """
real, calls = store_writer.Appender._append, []
def append(*arguments):
    real(*arguments)
    calls.append(1)
    if len(calls) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
make('whole')
store_writer.Appender._append = append
make('store')
"""
    assert hostile_disk.run(tmp_path, script + trap).returncode == -9
    resumed = hostile_disk.run(tmp_path, script + "make('store').verify()")
    assert resumed.returncode == 0, resumed.stderr
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


def test_a_stream_that_is_shuffled_anew_is_not_mixed_in(tmp_path: Path) -> None:
    (tmp_path / "own_data.py").write_text(
        "import random\n"
        "def samples():\n"
        f"    for number in random.SystemRandom().sample(range({COUNT}), {COUNT}):\n"
        "        yield {'inputs': number, 'targets': 0.5}\n"
    )
    script = "SOURCE = 'own_data:samples'\n" + PACK
    assert hostile_disk.run(tmp_path, script + "make('store', die_after(150))").returncode == -9
    body = """
from ai500.core.errors import DataError
try:
    make('store')
except DataError as error:
    print(error.value, error.path)
"""
    assert hostile_disk.run(tmp_path, script + body).stdout == "0 store\n"


def test_a_source_that_changed_is_not_mixed_in(tmp_path: Path) -> None:
    script = f"SOURCE = {npz(tmp_path)!r}\n" + PACK
    assert hostile_disk.run(tmp_path, script + "make('store', die_after(150))").returncode == -9
    np.savez(tmp_path / "data.npz", **{name: rows[:-1] for name, rows in arrays().items()})
    body = """
from ai500.core.errors import DataError
try:
    make('store')
except DataError as error:
    print(error.path)
"""
    assert hostile_disk.run(tmp_path, script + body).stdout == "store\n"
