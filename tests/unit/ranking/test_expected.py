"""`ai500 rank --expect`: what it names has to be a submission that was judged and ranked."""

from __future__ import annotations

from pathlib import Path

from ai500.cli.rank import _unranked
from ai500.ranking.entries import Rejected
from ai500.ranking.judging import find_submissions
from ai500.ranking.site import Built


def test_what_was_not_judged_is_not_ranked(tmp_path: Path) -> None:
    for name in ("good.ai500", "bad.ai500", "notes.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link.ai500").symlink_to("good.ai500")
    refused = [Rejected(name, "", "", "", ("why",)) for name in ("bad.ai500", "link.ai500")]
    built = Built([], {}, refused, {}, 0, 0)
    files = find_submissions(tmp_path)
    names = ("good.ai500", "bad.ai500", "notes.txt", "link.ai500", "absent.ai500")
    expected = [tmp_path / name for name in names]
    missing = _unranked(expected, tmp_path, files, built, quiet=True)
    assert missing == expected[1:]
