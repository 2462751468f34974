"""The wheel, unpacked outside the source tree: complete, described as CITATION.cff, and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.support.docs_examples import ROOT


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index",
         "--no-build-isolation", "--disable-pip-version-check", "--wheel-dir", folder, ROOT],
        check=True,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "unpacked")
    return folder / "unpacked"


def test_every_file_of_the_source_is_in_the_wheel(unpacked: Path) -> None:
    source = ROOT / "src" / "ai500"
    tracked = subprocess.run(
        ["git", "ls-files", "."], cwd=source, capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(tracked) > 400
    assert [name for name in tracked if not (unpacked / "ai500" / name).is_file()] == []


def test_the_metadata_has_links_classifiers_and_the_authors(unpacked: Path) -> None:
    (file,) = unpacked.glob("*.dist-info/METADATA")
    metadata = Parser().parsestr(file.read_text(encoding="utf-8"))
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    author = re.search(r'authors:\n  - name: "(.*)"', citation)
    version = re.search(r"^version: (.*)$", citation, re.MULTILINE)
    assert author is not None and metadata["Author"] == author.group(1)
    assert version is not None and metadata["Version"] == version.group(1)
    assert len(metadata.get_all("Project-URL", [])) >= 2
    classifiers = metadata.get_all("Classifier", [])
    assert {each.partition(" :: ")[0] for each in classifiers} >= {"Topic", "Programming Language"}
    assert metadata["License-Expression"] == "Apache-2.0"


def test_it_runs_without_the_source_tree(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "import sys, ai500, ai500.__main__ as m; "
        "assert ai500.__file__.startswith(sys.argv.pop(1)); sys.exit(m.main())"
    )
    for words in (["--version"], ["plan", "--json"]):
        ended = subprocess.run(
            [sys.executable, "-P", "-c", code, str(unpacked), *words], cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(unpacked)}, capture_output=True, text=True,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.strip()
