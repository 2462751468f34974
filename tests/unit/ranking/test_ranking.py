"""The list: places, the site's files, what is refused; no browser and no training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai500.core.errors import InputError, RuleError
from ai500.metrics.quality import quality_ratio
from ai500.ranking import editions
from ai500.ranking.entries import Entry, Ranked, Rejected, implausible
from ai500.ranking.pages import script
from ai500.ranking.site import MARK, build
from ai500.ranking.standings import by_list, standings
from tests.support.synthetic_list import TITLE, entry, identity, ranked, snapshot, synthetic_list


def one(number: int, vflops: float, **changes: object) -> Entry:
    """An entry of one and the same list, of a system of its own."""
    plain: dict[str, object] = {
        "system": f"system {number}", "organization": "o", "edition": "2026-11",
        "workload": "w", "problem_class": "c", "level": "free", "vflops": vflops,
    }  # fmt: skip
    return entry(number, **(plain | changes))


def places(*entries: Entry) -> list[int | None]:
    found = standings(entries)
    return [found[each.id].place for each in entries]


def test_more_vflops_is_a_better_place() -> None:
    assert places(one(1, 2e12), one(2, 3e12), one(3, 1e12)) == [2, 1, 3]


def test_v2_figure_14_ranks_by_vflops_not_by_flops() -> None:
    # V2 §7.4: compression reaches the best FLOPS (939 T), mixed precision the best VFLOPS (642 T).
    compressed = one(1, 6.0e14, flops=9.39e14)
    mixed = one(2, 6.42e14, flops=7.18e14)
    assert places(compressed, mixed) == [2, 1]


def test_equal_results_share_a_place_and_the_next_is_skipped() -> None:
    assert places(one(1, 5e12), one(2, 7e12), one(3, 7e12), one(4, 5e12)) == [3, 1, 1, 3]


def test_equals_stand_by_time_to_quality() -> None:
    slow = one(1, 7e12, time_to_quality_seconds=100.0)
    quick = one(2, 7e12, time_to_quality_seconds=90.0)
    (members,) = by_list([slow, quick]).values()
    assert members == [quick, slow]


def test_a_system_has_one_place_its_best() -> None:
    old = one(1, 2e12, system="Same", edition="2026-05")
    new = one(2, 3e12, system=" same ", edition="2026-11")
    namesake = one(3, 1e12, system="Same", organization="another organization")
    assert places(old, new, namesake) == [None, 1, 2]


def test_each_edition_has_places_of_its_own() -> None:
    old = one(1, 2e12, system="Same", edition="2026-05")
    new = one(2, 3e12, system="Same", edition="2026-11")
    found = standings([old, new])
    assert (found[old.id].place, found[old.id].edition_place) == (None, 1)
    assert (found[new.id].place, found[new.id].edition_place) == (1, 1)


@pytest.mark.parametrize("name", ["workload", "problem_class", "level"])
def test_places_compare_only_within_one_list(name: str) -> None:
    assert places(one(1, 2e12), one(2, 3e12, **{name: "other"})) == [1, 1]


def test_quality_counts_the_right_way_where_lower_is_better() -> None:
    assert quality_ratio(0.2, target=0.25, direction="lower") == 1.25
    assert quality_ratio(0.3, target=0.25, direction="lower") < 1
    assert quality_ratio(0.3, target=0.25, direction="higher") == 1.2
    assert quality_ratio(0.0, target=0.25, direction="lower") == 0.0


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    submissions = list(synthetic_list(30))
    build(submissions, tmp_path / "one", title=TITLE)
    build(reversed(submissions), tmp_path / "other", title=TITLE)
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "other")


def test_a_site_that_is_built_again_is_left_alone(tmp_path: Path) -> None:
    build(synthetic_list(5), tmp_path, title=TITLE)
    again = build(synthetic_list(5), tmp_path, title=TITLE)
    assert (again.written, again.removed) == (0, 0)


def test_what_is_no_longer_ranked_leaves_the_site(tmp_path: Path) -> None:
    build(synthetic_list(6), tmp_path, title=TITLE)
    (tmp_path / "CNAME").write_text("list.example.org")
    built = build(synthetic_list(4), tmp_path, title=TITLE)
    assert built.removed == 4  # two pages, two scripts
    assert (tmp_path / "CNAME").exists()
    fresh = tmp_path / "fresh"
    build(synthetic_list(4), fresh, title=TITLE)
    assert snapshot(fresh).items() <= snapshot(tmp_path).items()
    assert {path.stem for path in (tmp_path / "entries").iterdir()} == {
        identity(number) for number in range(4)
    }


def test_what_an_interrupted_build_left_is_cleaned_up(tmp_path: Path) -> None:
    def ends_early() -> Iterator[Ranked]:
        yield from synthetic_list(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(ends_early(), tmp_path / "site", title=TITLE)
    assert not (tmp_path / "site").exists()
    build(synthetic_list(3), tmp_path / "site", title=TITLE)
    # As after a power cut between marking the new files and removing the old ones.
    stale = tmp_path / "site" / "entries" / f"{identity(99)}.html"
    stale.write_text("half")
    mark = tmp_path / "site" / MARK
    told = json.loads(mark.read_text())
    mark.write_text(json.dumps(told | {"files": [*told["files"], f"entries/{stale.name}"]}))
    build(synthetic_list(3), tmp_path / "site", title=TITLE)
    assert not stale.exists()


def test_a_forged_mark_removes_nothing_else(tmp_path: Path) -> None:
    build(synthetic_list(2), tmp_path / "site", title=TITLE)
    victim = tmp_path / "victim.html"
    victim.write_text("mine")
    mark = tmp_path / "site" / MARK
    told = json.loads(mark.read_text())
    mark.write_text(json.dumps(told | {"files": ["../victim.html", str(victim), 7]}))
    with pytest.raises(InputError, match="not a site"):
        build(synthetic_list(2), tmp_path / "site", title=TITLE)
    mark.write_text(json.dumps(told | {"files": ["../victim.html", str(victim)]}))
    build(synthetic_list(2), tmp_path / "site", title=TITLE)
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("content", [None, "not JSON", '{"format": "other"}', "[]"])
def test_a_folder_of_something_else_is_refused(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    if content is not None:
        (tmp_path / MARK).write_text(content)
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match="Choose another --out"):
        build(synthetic_list(1), tmp_path, title=TITLE)
    assert snapshot(tmp_path) == before


def test_without_a_valid_submission_nothing_is_written(tmp_path: Path) -> None:
    bad = Rejected("bad.ai500", "", "", "", ("events.jsonl is damaged", "1 of at least 3 trials"))
    with pytest.raises(RuleError, match=r"bad\.ai500: events\.jsonl is damaged; 1 of at least"):
        build([bad], tmp_path / "site", title=TITLE)
    assert not (tmp_path / "site").exists()


def test_strangers_text_is_escaped_in_every_file(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script>\u2028<img src=x onerror=alert(1)>"
    bad = entry(0, system=hostile, organization=hostile, edition=hostile, accelerator=hostile)
    again = entry(1, system=hostile, organization=hostile, level=bad.level)
    rejected = Rejected(hostile, hostile, hostile, hostile, (hostile,))
    build([ranked(bad), ranked(again), rejected], tmp_path, title=hostile)
    for name, data in snapshot(tmp_path).items():
        text = data.decode()
        assert "<img" not in text, name
        assert "<script>" not in text, name
        assert "\u2028" not in text or name.endswith(".html"), name
    assert b"&lt;script&gt;alert(1)" in (tmp_path / "entries" / f"{identity(0)}.html").read_bytes()


def test_data_survives_its_script() -> None:
    value = {"a": "</script>\u2028\u2029&<>'\"\\", "b": [1.5e300, None, True]}
    text = script("ai500.list", value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text.removeprefix("ai500.list(").removesuffix(");\n")) == value


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (1.1e12, 1.9e12, ("1 T", "2 T")),
        (5e12, 5e12, ("5 T", "10 T")),
        (1e12, 1e12, ("1 T", "2 T")),
        (3e12, 4e13, ("2 T", "5 T", "10 T", "20 T", "50 T")),
        (3e11, 4e13, ("300 G", "1 T", "3 T", "10 T", "30 T", "100 T")),
        (3e11, 4e14, ("100 G", "1 T", "10 T", "100 T", "1 P")),
    ],
)
def test_logarithmic_ticks_enclose_what_is_drawn(
    low: float, high: float, labels: tuple[str, ...]
) -> None:
    assert editions.logarithmic_ticks(low, high).labels == labels


def test_very_many_decades_have_few_ticks() -> None:
    ticks = editions.logarithmic_ticks(1e3, 9e18)
    assert len(ticks.values) <= 9
    assert (ticks.low, ticks.high) == (3.0, 19.0)


def test_no_figure_is_too_large_to_be_drawn() -> None:
    assert editions.logarithmic_ticks(1e12, 2e307).high == 300.0


@pytest.mark.parametrize("change", [{"quality_ratio": float("inf")}, {"vflops_per_watt": 2e307}])
def test_figures_beyond_all_machines_are_implausible(change: dict[str, float]) -> None:
    assert implausible(one(1, 2e12)) == []
    (reason,) = implausible(one(1, 2e12, **change))
    assert "not a plausible number" in reason


def test_a_page_that_can_not_be_made_leaves_no_half_of_a_site(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        build([ranked(one(1, 2e12)), ranked(one(2, float("inf")))], tmp_path / "site", title=TITLE)
    assert not (tmp_path / "site").exists()


def test_history_of_a_single_result_and_of_many(tmp_path: Path) -> None:
    assert "<svg" in editions.history_chart([one(1, 2e12)]).svg("t")
    best = editions.best_of_editions([one(1, 2e12), one(2, 3e12), one(3, 1e12, edition="2026-05")])
    assert [(edition, each.vflops) for edition, each in best.items()] == [
        ("2026-05", 1e12),
        ("2026-11", 3e12),
    ]
