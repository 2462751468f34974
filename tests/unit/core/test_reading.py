"""Digests of files: regular ones of at most a size."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ai500.core.errors import InputError
from ai500.core.reading import HASH_BLOCK_BYTES, file_sha256


def test_a_file_of_several_blocks_is_hashed_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * (HASH_BLOCK_BYTES // 256 + 1)
    (tmp_path / "file").write_bytes(content)
    sizes: list[int] = []
    digest = file_sha256(tmp_path / "file", sizes.append, limit=len(content))
    assert digest == hashlib.sha256(content).hexdigest()
    assert sizes == [HASH_BLOCK_BYTES, 256]


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert file_sha256(path, limit=5)
    with pytest.raises(InputError) as caught:
        file_sha256(path, limit=4)
    assert caught.value.path == path


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_a_regular_file_is_hashed(tmp_path: Path, kind: str) -> None:
    paths = {"pipe": tmp_path / "pipe", "device": Path("/dev/zero"), "folder": tmp_path}
    os.mkfifo(paths["pipe"])
    with pytest.raises(InputError):
        file_sha256(paths[kind])
