"""The cache of the classes' data: a damaged store is made again."""

from __future__ import annotations

import os
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


def test_a_damaged_store_in_the_cache_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI500_CACHE", str(tmp_path / "cache"))
    store = generate_store("language_model", "smoke")
    for damage in (no_manifest, half_a_manifest, a_cut_file):
        damage(store.path)
        assert generate_store("language_model", "smoke").sha256 == store.sha256
        assert list(store.path.parent.iterdir()) == [store.path]


def test_a_users_own_folder_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.mkdir()
    (path / "notes.txt").touch()
    with pytest.raises(DataError):
        generate_store("language_model", "smoke", path=path)
    assert (path / "notes.txt").exists()
