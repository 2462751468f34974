"""One version, and one digest of the whole package."""

from __future__ import annotations

import re
from pathlib import Path

import ai500
from ai500.core import __version__
from ai500.core.source import PACKAGE, source_sha256

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
