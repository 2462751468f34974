"""The seed of an edition [D22]."""

from __future__ import annotations

import pytest

from ai500.config import load
from ai500.core.editions import CURRENT, edition_seed
from ai500.core.errors import ConfigError
from ai500.inventory import machine
from ai500.pipeline.planning import make_plan
from ai500.records import Plan


def planned(**settings: object) -> Plan:
    overrides = {key.replace("__", "."): value for key, value in settings.items()}
    return make_plan(load(overrides=overrides), machine.describe())


@pytest.mark.parametrize(
    ("edition", "seed"), [("2026-11", 1), ("2026-12", 2), ("2027-06", 8), ("2031-01", 51)]
)
def test_an_edition_has_a_seed_of_its_own(edition: str, seed: int) -> None:
    assert edition_seed(edition) == seed
    plan = planned(run__edition=edition)
    assert (plan.edition, plan.seed) == (edition, seed)


def test_a_run_is_of_the_current_edition() -> None:
    plan = planned()
    assert (plan.edition, plan.seed) == (CURRENT, edition_seed(CURRENT))


def test_a_seed_of_ones_own_is_kept_beside_the_edition() -> None:
    plan = planned(run__seed=7)
    assert (plan.edition, plan.seed) == (CURRENT, 7)


@pytest.mark.parametrize("edition", ["2026-10", "1999-01", "2026-13", "2026", "next", ""])
def test_what_is_no_edition_is_refused(edition: str) -> None:
    assert edition_seed(edition) is None
    with pytest.raises(ConfigError) as caught:
        planned(run__edition=edition)
    assert (caught.value.key, caught.value.value) == ("run.edition", edition)
