"""Whatever valid entries come together, the list is written: systems, names and editions alike."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest

from ai500.ranking.entries import Entry, MemberWork, Rejected
from ai500.ranking.site import build
from tests.support.synthetic_list import entry, ranked

MEMORY = Path("/dev/shm")


def any_entry(number: int, generator: random.Random) -> Entry:
    """Choose from few names, editions and figures, so that many are equal."""
    choose = generator.choice
    metered = generator.random() < 0.5
    return entry(
        number,
        system=choose(["a", "A ", "b", "", "ß", "ss", "x" * 200]), organization=choose(["", "o"]),
        edition=choose(["2026-11", "2026-05", "2025-11"]), level=choose(["free", "hardware"]),
        workload=choose(["w", "v"]), problem_class="c",
        vflops=choose([1e-30, 1e12, 2e12, 1e30, 1e12 * generator.random() + 1]),
        lowest_vflops=choose([None, 1e-30, 1e12]), highest_vflops=choose([None, 1e12, 1e30]),
        quality_ratio=choose([0.0, 1e-30, 0.9, 1.0, 1e30]), penalty_exponent=choose([0, 1, 5]),
        flops=choose([1e-30, 1e12, 1e30]), system_scale=choose([1, 3, 10**9]),
        time_to_quality_seconds=choose([1e-30, 5.0, 1e30]),
        vflops_per_watt=choose([1e-30, 2e9, 1e30]) if metered else None,
        power_coverage=choose(["x", "y"]) if metered else None,
        regulated_score=choose([None, 1e9]),
    )  # fmt: skip


def every_list_is_written(seeds: range) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        for seed in seeds:
            generator = random.Random(seed)
            submissions = [
                ranked(
                    any_entry(number, generator), fingerprint=generator.choice([None, "a" * 64]),
                    work=tuple(
                        MemberWork(1, member, generator.choice([None, "w"]),
                                   tuple(generator.sample(range(30), generator.randrange(17))))
                        for member in range(generator.randrange(3))
                    ),
                )
                for number in range(generator.randrange(1, 7))
            ]  # fmt: skip
            bad = Rejected("bad.ai500", "", "", "", ("damaged",))
            # One folder for all: each list replaces the one before.
            built = build([*submissions, bad], Path(folder) / "site", title="t")
            assert len(built.entries) + len(built.rejected) == len(submissions) + 1
            pages = {path.stem for path in (Path(folder) / "site" / "entries").iterdir()}
            assert pages == {each.id for each in built.entries}


def test_two_results_of_one_system_in_one_edition_are_a_list(tmp_path: Path) -> None:
    one = [
        entry(n, system="One", organization="o", edition="2026-11", vflops=1e12 + n)
        for n in (0, 5, 10)
    ]
    built = build(map(ranked, one), tmp_path, title="t")
    assert sum(built.standings[each.id].rank is not None for each in built.entries) == len(
        {each.list_key for each in one}
    )


@pytest.mark.slow
def test_every_list_is_written() -> None:
    every_list_is_written(range(60))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_every_list_is_written_in_20000_cases(part: int) -> None:
    every_list_is_written(range(5_000 * part, 5_000 * (part + 1)))
