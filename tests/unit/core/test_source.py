"""One version, and one digest of the whole package."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import ai500
from ai500.core import __version__
from ai500.core.source import PACKAGE, Checkout, checkout_of, source_sha256, tree_sha256

ROOT = Path(__file__).parents[3]


def test_the_version_is_the_same_everywhere() -> None:
    assert ai500.__version__ == __version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == __version__  # type: ignore[index]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {__version__}" in changelog


def test_the_digest_covers_the_whole_package() -> None:
    assert Path(ai500.__file__).parent == PACKAGE
    assert re.fullmatch("[0-9a-f]{64}", source_sha256())


def test_the_digest_covers_data_beside_the_code_and_no_compiled_files(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("1\n")
    (tmp_path / "counts.json").write_text("{}\n")
    digest = tree_sha256(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "code.pyc").write_bytes(b"compiled")
    assert tree_sha256(tmp_path) == digest
    (tmp_path / "counts.json").write_text('{"forward": 1}\n')
    assert tree_sha256(tmp_path) != digest


def test_the_commit_of_a_checkout_and_its_changes(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    git("init", "-q")
    assert checkout_of(package) == Checkout(None, None), "git does not track it yet"
    git("add", ".")
    git("commit", "-qm", "first")
    assert checkout_of(package) == Checkout(git("rev-parse", "HEAD"), dirty=False)
    (package / "__init__.py").write_text("changed = True\n")
    assert checkout_of(package) == Checkout(git("rev-parse", "HEAD"), dirty=True)
