"""Each forgery of the table in docs/verification.md, made from a real submission.

The forger recomputes all digests, scores and findings, and signs. Either the forgery is refused for
the reason that the table names, or the table says that only a rerun finds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from ai500.records.run_folder import RunFolder
from ai500.rules.registry import ENSEMBLE_RULES
from ai500.submission import signing
from ai500.submission.manifest import open_submission
from ai500.submission.verify import Verification, recompute
from tests.support import synthetic_run
from tests.support.forgeries import FORGERIES, Forgery, copied, more_operations
from tests.support.submitted import OPTIONS, packed, submittable_run
from tests.support.synthetic_run import official_shape

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[3] / "docs" / "verification.md"
EPOCH_SECONDS = 15.0
RERUN = "a rerun"
FULL = "`full` invented: 90 epochs in 180 s on a CPU"
FREE = "operations × 10⁹ at free level"
SMOKE = "`smoke` invented from nothing"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key.pem"
    signing.make_key(path)
    return path


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run that keeps all rules; forgers copy it."""
    with patch.object(synthetic_run, "EPOCH_SECONDS", EPOCH_SECONDS):
        return submittable_run(tmp_path_factory.mktemp("real") / "run")


def table() -> dict[str, str]:
    """Return forgery → what finds it, as the page says."""
    section = PAGE.read_text(encoding="utf-8").split("\n## Forgeries", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    return {name: found_by for name, found_by in rows if name not in ("forgery", "---")}


def verified(run: RunFolder, key: Path, level: str = "hardware") -> Verification:
    """Pack, sign and verify what a forger left."""
    options = replace(OPTIONS, level=level)  # type: ignore[arg-type]
    path = packed(run, run.path.parent / "forged.ai500", options=options, key=key)
    with open_submission(path) as submission:
        assert submission.signed
        return recompute(submission)


def reasons(result: Verification) -> Iterator[str]:
    yield from result.problems
    yield from result.broken
    yield from (difference.file for difference in result.differences)


def assert_as_the_page_says(name: str, result: Verification) -> None:
    found_by = table()[name]
    assert result.valid == (found_by == RERUN), list(reasons(result))
    texts = {rule.name: (rule.source, rule.text) for rule in ENSEMBLE_RULES}
    for rule in re.findall(r"\*(.+?)\*", found_by):
        assert rule in texts
        assert any(texts[rule][0] in reason for reason in result.broken), result.broken


def test_the_table_has_every_forgery() -> None:
    assert set(table()) == {*FORGERIES, FULL, FREE, SMOKE}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_or_named(
    name: str, real: RunFolder, key: Path, tmp_path: Path
) -> None:
    run = copied(real, tmp_path / "run")
    forgery: Forgery = FORGERIES[name]
    forgery(run)
    assert_as_the_page_says(name, verified(run, key))


def test_operations_at_free_level(real: RunFolder, key: Path, tmp_path: Path) -> None:
    run = copied(real, tmp_path / "run")
    more_operations(1e9)(run)
    assert_as_the_page_says(FREE, verified(run, key, level="free"))


def test_smoke_invented_from_nothing(real: RunFolder, key: Path, tmp_path: Path) -> None:
    """The run that the others forge was itself written by a program, and nothing trained."""
    assert_as_the_page_says(SMOKE, verified(copied(real, tmp_path / "run"), key))


def test_full_invented_on_a_cpu(key: Path, tmp_path: Path) -> None:
    shape = official_shape("image_classification", "full", trials=3)
    assert shape.epochs == 90
    config = 'workload = "image_classification"\nproblem_class = "full"\n'
    run = submittable_run(tmp_path / "run", **vars(shape) | {"cores": 2, "config": config})
    assert_as_the_page_says(FULL, verified(run, key))
