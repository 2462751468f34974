"""Published hashes of the files that a store was packed from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from ai500.data import published_files
from ai500.data.published_files import FILE, PublishedFile, compare_published, record, recorded

TRAIN, DEVKIT = "ILSVRC2012_img_train.tar", "ILSVRC2012_devkit_t12.tar.gz"


def test_the_published_hashes_of_imagenet() -> None:
    """Digests as torchvision's `ImageNet` and image-net.org print them."""
    assert published_files.PUBLISHED_MD5 == {
        "ILSVRC2012_img_train.tar": "1d675b47d978889d74fa0da5fadfb00e",
        "ILSVRC2012_img_val.tar": "29b22e2961454d5413ddabcf34fc5622",
        "ILSVRC2012_devkit_t12.tar.gz": "fa75699e90414af021442c21a62c3abf",
    }


def test_files_are_compared_by_name_and_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / TRAIN).write_bytes(b"published")
    (tmp_path / DEVKIT).write_bytes(b"changed")
    (tmp_path / "other.tar").write_bytes(b"unknown")
    md5 = hashlib.md5(b"published").hexdigest()
    monkeypatch.setitem(published_files.PUBLISHED_MD5, TRAIN, md5)
    progress: list[tuple[int, int]] = []
    published = published_files.published_files(tmp_path)
    files = compare_published(
        published, progress=lambda done, total: progress.append((done, total))
    )
    assert [(file.name, file.same) for file in files] == [(TRAIN, True), (DEVKIT, False)]
    assert progress[-1] == (16, 16)
    assert published_files.published_files(tmp_path / TRAIN) == [tmp_path / TRAIN]
    assert published_files.published_files(tmp_path / "other.tar") == []
    assert published_files.published_files(tmp_path / "nowhere") == []


def test_the_comparison_belongs_to_one_store(tmp_path: Path) -> None:
    files = [PublishedFile(TRAIN, "a" * 32, "b" * 32)]
    assert recorded(tmp_path, sha256="c") is None
    record(tmp_path, sha256="c", files=files)
    assert recorded(tmp_path, sha256="c") == files
    assert recorded(tmp_path, sha256="d") is None
    (tmp_path / FILE).write_text(json.dumps({"store_sha256": "c", "files": [{"name": 1}]}))
    assert recorded(tmp_path, sha256="c") is None
