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

from ai500.core.events import Event
from ai500.ranking.read import judge_file
from ai500.ranking.registry import Decisions, Key, Organization, Registry
from ai500.ranking.review import review
from ai500.records import Plan, run_folder
from ai500.records.run_folder import RunFolder
from ai500.rules.registry import ENSEMBLE_RULES
from ai500.submission import signing
from ai500.submission.manifest import open_submission
from ai500.submission.verify import Verification, recompute
from tests.support import synthetic_run
from tests.support.forgeries import (
    CLOCKS,
    FORGERIES,
    Forgery,
    better_ensemble,
    copied,
    everywhere,
    in_file,
    in_logs,
    more_operations,
)
from tests.support.submitted import OPTIONS, packed, submittable_run
from tests.support.synthetic_run import official_shape

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[3] / "docs" / "verification.md"
EPOCH_SECONDS = 15.0
RERUN = "a rerun"
FULL = "`full` invented: 90 epochs in 180 s on a CPU"
FREE = "operations × 10⁹ at free level"
SMOKE = "`smoke` invented from nothing"
ERRORS = {"an ensemble's error × 0.5": 0.5, "an ensemble's error × 0.1": 0.1}
A_LIST = "a list with a registry"
OWNER, THIEF = OPTIONS.organization, "Thief University"


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
    assert set(table()) == {*FORGERIES, *ERRORS, FULL, FREE, SMOKE, *THEFTS}
    assert {name for name, found_by in table().items() if found_by == A_LIST} == set(THEFTS)


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


@pytest.mark.parametrize("name", ERRORS)
def test_a_smaller_error(name: str, key: Path, tmp_path: Path) -> None:
    """Eq. 8 has no bound where lower is better: the quality factor would be any number."""
    config = 'workload = "cosmology"\nproblem_class = "smoke"\n'
    shape = vars(official_shape("cosmology", "smoke")) | {"config": config}
    run = submittable_run(tmp_path / "run", **shape)
    target = run_folder.read(Plan, run.plan).definition.target_quality
    better_ensemble(lambda _: target * ERRORS[name])(run)
    assert_as_the_page_says(name, verified(run, key))


def test_smoke_invented_from_nothing(real: RunFolder, key: Path, tmp_path: Path) -> None:
    """The run that the others forge was itself written by a program, and nothing trained."""
    assert_as_the_page_says(SMOKE, verified(copied(real, tmp_path / "run"), key))


def test_full_invented_on_a_cpu(key: Path, tmp_path: Path) -> None:
    shape = official_shape("image_classification", "full", trials=3)
    assert shape.epochs == 90
    config = 'workload = "image_classification"\nproblem_class = "full"\n'
    run = submittable_run(
        tmp_path / "run", **vars(shape) | {"cores": 2, "epoch_seconds": 2.0, "config": config}
    )
    assert_as_the_page_says(FULL, verified(run, key))


def one_digit(run: RunFolder) -> None:
    """Change the first batch of one member by a millisecond."""

    def change(event: Event) -> Event:
        if (event["event"], event.get("trial"), event.get("member")) != ("first_batch", 1, 0):
            return event
        return event | {clock: event[clock] - 1e-3 for clock in CLOCKS}

    in_logs(run, change)


THEFTS: dict[str, tuple[Forgery, str, bool]] = {
    "another's run relabelled": (everywhere("Synthetic CPU", "Thief's CPU"), THIEF, True),
    "another's run with one digit changed": (one_digit, THIEF, True),
    "another's organization": (one_digit, OWNER, True),
    "unsigned": (one_digit, OWNER, False),
}
"""Change that a thief makes, the organization that he names, and whether he signs with his key."""


@pytest.mark.parametrize("name", THEFTS)
def test_a_theft_is_valid_alone_and_not_ranked(
    name: str, real: RunFolder, key: Path, tmp_path: Path
) -> None:
    forgery, organization, signed = THEFTS[name]
    stolen = copied(real, tmp_path / "run")
    forgery(stolen)
    fingerprint = signing.make_key(tmp_path / "thief.pem")
    options = replace(OPTIONS, organization=organization)
    thief_key = tmp_path / "thief.pem" if signed else None
    files = (
        packed(real, tmp_path / "own.ai500", key=key),
        packed(stolen, tmp_path / "stolen.ai500", options=options, key=thief_key),
    )
    own, theft = (judge_file(file, name=file.name, trusted_keys=None).ranked for file in files)
    assert own is not None
    assert theft is not None
    registry = Registry(
        organizations=(
            Organization(OWNER, (Key(str(own.claim.fingerprint)),)),
            Organization(THIEF, (Key(fingerprint),)),
        )
    )
    refused = review([theft, own], registry=registry, decisions=Decisions()).refused
    # Two signers of the same work: neither is ranked until the committee decides.
    held = {own.entry.id} if organization == THIEF else set()
    assert set(refused) == {theft.entry.id} | held


def test_a_cpu_of_another_host_is_not_shown(real: RunFolder, key: Path, tmp_path: Path) -> None:
    run = copied(real, tmp_path / "run")
    in_file("system.json", "hostname", value="login")(run)
    in_file("system.json", "cpu", value="Fast CPU")(run)
    file = packed(run, tmp_path / "forged.ai500", key=key)
    ranked = judge_file(file, name=file.name, trusted_keys=None).ranked
    assert ranked is not None
    assert ranked.entry.accelerator == "CPU: Synthetic CPU"
