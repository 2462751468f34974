"""A submission of a search is verified from its workers' histories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ai500.ranking.site import build
from ai500.submission import archive, packing
from ai500.submission.manifest import MANIFEST, open_submission
from ai500.submission.rerun import rerun_config
from ai500.submission.verify import Verification, recompute
from tests.support.submitted import OPTIONS, contents, with_members_logs
from tests.support.synthetic_list import judged
from tests.support.synthetic_search import SearchShape, write_synthetic_search

FIRST = "trials/01/members/000/history.jsonl"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A submission of a search that keeps all rules."""
    folder = tmp_path_factory.mktemp("search")
    run = write_synthetic_search(folder / "run", SearchShape(trials=3, epoch_seconds=6.0))
    packing.submit(with_members_logs(run), folder / "s.ai500", options=OPTIONS)
    return contents(folder / "s.ai500")


def verified(files: dict[str, bytes], folder: Path) -> Verification:
    """Pack with a manifest that matches the files: no hash reveals a change."""
    forged = {name: content for name, content in files.items() if name != MANIFEST}
    packing.seal(forged, key=None)
    archive.pack(folder / "s.ai500", forged)
    with open_submission(folder / "s.ai500") as submission:
        return recompute(submission)


def test_a_search_that_keeps_all_rules_is_submitted_and_confirmed(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    result = verified(files, tmp_path)
    assert (result.problems, result.differences) == ((), ())
    assert result.confirmed
    assert result.score is not None
    assert result.score.search is not None
    assert result.score.vflops == result.score.flops


def test_the_list_of_searches_has_a_column_of_regulated_scores(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    archive.pack(tmp_path / "s.ai500", files)
    built = build(judged(tmp_path), tmp_path / "site", title="T")
    (entry,) = built.entries
    with open_submission(tmp_path / "s.ai500") as submission:
        score = recompute(submission).score
    assert score is not None and score.search is not None
    assert entry.regulated_score == score.search.regulated_score
    columns = (tmp_path / "site/index.html").read_text(encoding="utf-8")
    assert 'data-key="regulated_score"' in columns
    assert f"{entry.regulated_score}" in (tmp_path / "site/data/list.js").read_text("utf-8")


def test_a_faster_history_gives_another_score(files: dict[str, bytes], tmp_path: Path) -> None:
    lines = [json.loads(line) for line in files[FIRST].splitlines()]
    start = lines[0]["monotonic"]
    for line in lines:
        line["monotonic"] = start + (line["monotonic"] - start) / 2
    forged = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    result = verified(files | {FIRST: forged}, tmp_path)
    assert any(difference.key == "flops" for difference in result.differences)


def test_a_better_model_than_the_result_says_is_refused(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in files[FIRST].splitlines()]
    next(line for line in lines if line["event"] == "epoch")["entry"]["accuracy"] = 0.999
    forged = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    result = verified(files | {FIRST: forged}, tmp_path)
    assert "the histories of the workers" in result.problems[0]


def test_a_history_that_is_missing_is_named(files: dict[str, bytes], tmp_path: Path) -> None:
    left = {name: content for name, content in files.items() if name != FIRST}
    assert f"{FIRST}: missing" in verified(left, tmp_path).problems


def test_a_rerun_takes_the_search_s_settings(files: dict[str, bytes], tmp_path: Path) -> None:
    changed = files["config.toml"] + b"[automl]\nminutes = 7.0\n"
    forged = {name: c for name, c in files.items() if name != MANIFEST} | {"config.toml": changed}
    packing.seal(forged, key=None)
    archive.pack(tmp_path / "s.ai500", forged)
    with open_submission(tmp_path / "s.ai500") as submission:
        config = rerun_config(submission, local=None, runs=1, overrides={})
    assert config.automl.minutes == 7.0
    assert config.workload == "automl"
