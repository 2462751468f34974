"""Proofs of an entry: by its events, its predictions, and another team's rerun."""

from __future__ import annotations

import dataclasses
import hashlib
import html
from pathlib import Path
from typing import Any

import pytest

from ai500.core.errors import AI500Error
from ai500.ranking.proofs import MEANINGS, load_confirmations
from ai500.ranking.site import build
from ai500.submission.confirmations import confirmation_path, write_confirmation
from tests.support.synthetic_list import TITLE, entry, ranked


def confirmed(folder: Path, team: str, kind: Any, *, file: bytes, good: bool = True) -> Path:
    """Keep a confirmation of a file, as `verify` writes it, in a team's folder."""
    (folder / team).mkdir(parents=True, exist_ok=True)
    submission = folder / team / "one.ai500"
    submission.write_bytes(file)
    path = write_confirmation(
        submission, kind, confirmed=good, statement="said in a sentence", details={}
    )
    assert path == confirmation_path(submission, kind)
    submission.unlink()
    return path


FILE, OTHER_FILE = b"one", b"another"
ENTRY = ranked(entry(1, organization="First University"))
SHA256 = hashlib.sha256(FILE).hexdigest()
ONE = dataclasses.replace(ENTRY, claim=dataclasses.replace(ENTRY.claim, sha256=SHA256))


@pytest.mark.parametrize(
    ("checks", "proven"),
    [
        ([], "events"),
        ([("Second Laboratory", "predictions", FILE, True)], "events + predictions"),
        ([("Second Laboratory", "rerun", FILE, True)], "events + rerun"),
        (
            [("Committee", "rerun", FILE, True), ("Committee", "predictions", FILE, True)],
            "events + predictions + rerun",
        ),
        ([("Second Laboratory", "rerun", FILE, False)], "events"),
        ([("first university ", "rerun", FILE, True)], "events"),
        ([("Second Laboratory", "rerun", OTHER_FILE, True)], "events"),
    ],
)
def test_a_confirmation_proves_what_its_team_may_say(
    tmp_path: Path, checks: list[tuple[str, str, bytes, bool]], proven: str
) -> None:
    (tmp_path / "kept").mkdir()
    for team, kind, file, good in checks:
        confirmed(tmp_path / "kept", team, kind, file=file, good=good)
    built = build(
        [ONE], tmp_path / "site", title=TITLE, checks=load_confirmations(tmp_path / "kept")
    )
    assert [each.proven for each in built.entries] == [proven]
    page = html.unescape((tmp_path / "site" / "entries" / f"{ONE.entry.id}.html").read_text())
    for kind, (name, meaning) in MEANINGS.items():
        assert (f"<dt>{name}</dt>" in page and meaning in page) is (kind in proven.split(" + "))
    for team, _, file, _ in checks:
        assert (f"by {team} on" in page) is (file == FILE)


def test_the_page_about_the_list_says_what_each_proof_means(tmp_path: Path) -> None:
    build([ONE], tmp_path, title=TITLE)
    about = html.unescape((tmp_path / "about.html").read_text())
    assert all(name in about and meaning in about for name, meaning in MEANINGS.values())


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', "{"])
def test_a_damaged_confirmation_is_an_error(tmp_path: Path, content: str) -> None:
    path = confirmed(tmp_path, "Team", "rerun", file=FILE)
    path.write_text(content)
    with pytest.raises(AI500Error):
        load_confirmations(tmp_path)
