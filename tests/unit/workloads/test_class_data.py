"""The cache of the classes' data: a damaged store is made again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ai500.core.errors import DataError
from ai500.data.packed_store import MANIFEST
from ai500.workloads.class_data import generate_store


def no_manifest(store: Path) -> None:
    (store / MANIFEST).unlink()


def half_a_manifest(store: Path) -> None:
    (store / MANIFEST).write_bytes((store / MANIFEST).read_bytes()[:100])


def a_cut_file(store: Path) -> None:
    os.truncate(next(store.glob("train.*.npy")), 100)


@pytest.mark.slow
def test_a_damaged_store_in_the_cache_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI500_CACHE", str(tmp_path / "cache"))
    store = generate_store("language_model", "smoke")
    for damage in (no_manifest, half_a_manifest, a_cut_file):
        damage(store.path)
        assert generate_store("language_model", "smoke").sha256 == store.sha256
        hidden = store.path.with_name(f".{store.path.name}.lock")
        assert set(store.path.parent.iterdir()) <= {store.path, hidden}


REPAIR = """
import sys, time
from ai500.workloads import class_data

clear = class_data._clear
def slow_clear(folder):
    print("repairs", flush=True)
    time.sleep(1)  # the others see the damaged store meanwhile
    clear(folder)
class_data._clear = slow_clear
print(class_data.generate_store("language_model", "smoke").sha256)
"""


@pytest.mark.slow
def test_of_several_processes_one_repairs_a_damaged_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI500_CACHE", str(tmp_path / "cache"))
    store = generate_store("language_model", "smoke")
    no_manifest(store.path)
    command = [sys.executable, "-c", REPAIR]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    lines = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sorted(lines) == sorted([[store.sha256], [store.sha256], ["repairs", store.sha256]])


def test_a_users_own_folder_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.mkdir()
    (path / "notes.txt").touch()
    with pytest.raises(DataError):
        generate_store("language_model", "smoke", path=path)
    assert (path / "notes.txt").exists()
