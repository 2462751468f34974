"""The recipe for WebDataset's shards, taken from its page and run on real shards."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ai500.data.pack import pack
from ai500.data.readers.open_source import Options
from tests.support.docs_examples import ROOT, examples_of


def test_shards_of_webdataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (recipe,) = (
        example.text
        for example in examples_of(ROOT / "docs" / "data.md")
        if "def shards" in example.text
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "webdataset_recipe.py").write_text(recipe)
    (tmp_path / "shards").mkdir()
    for shard in range(3):
        with tarfile.open(tmp_path / "shards" / f"{shard}.tar", "w") as archive:
            for number in range(20):
                buffer = io.BytesIO()
                value = 10 * (number % 4)
                Image.new("RGB", (12, 9), (value, value, value)).save(buffer, "JPEG", quality=95)
                files = {"jpg": buffer.getvalue(), "cls": str(number % 4).encode()}
                for suffix, data in files.items():
                    member = tarfile.TarInfo(f"{shard}{number:04}.{suffix}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    store = pack("webdataset_recipe:shards", tmp_path / "store", options=Options(size=8)).store
    assert sum(split.count for split in store.splits.values()) == 60
    assert store.classes == ("0", "1", "2", "3")
    for split in store.splits.values():
        colours = split.array("images")[:, 4, 4, 0].astype(int)
        assert np.abs(colours - 10 * split.array("labels")).max() <= 2
