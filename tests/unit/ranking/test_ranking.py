"""The list: ranks, the site's files, and what is refused, without browser and training."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai500.core.errors import InputError
from ai500.metrics.quality import quality_ratio
from ai500.ranking import editions
from ai500.ranking.entries import Entry, Ranked, Rejected
from ai500.ranking.pages import script
from ai500.ranking.site import MARK, build
from ai500.ranking.standings import by_list, standings
from ai500.report.charts import svg
from tests.support.synthetic_list import TITLE, entry, identity, ranked, snapshot, synthetic_list


def listed(number: int, vflops: float, **changes: object) -> Entry:
    """Make an entry of a fixed list, of a system of its own."""
    defaults: dict[str, object] = {
        "system": f"system {number}", "organization": "o", "edition": "2026-11",
        "workload": "w", "problem_class": "c", "level": "free", "vflops": vflops,
    }  # fmt: skip
    return entry(number, **(defaults | changes))


def ranks(*entries: Entry) -> list[int | None]:
    standing = standings(entries)
    return [standing[entry.id].rank for entry in entries]


def test_more_vflops_is_a_better_rank() -> None:
    assert ranks(listed(1, 2e12), listed(2, 3e12), listed(3, 1e12)) == [2, 1, 3]


def test_v2_figure_14_ranks_by_vflops_not_by_flops() -> None:
    # V2 §7.4: compression reaches the best FLOPS (939 T), mixed precision the best VFLOPS (642 T).
    compressed = listed(1, 6.0e14, flops=9.39e14)
    mixed = listed(2, 6.42e14, flops=7.18e14)
    assert ranks(compressed, mixed) == [2, 1]


def test_a_list_without_searches_has_no_column_of_regulated_scores(tmp_path: Path) -> None:
    build([ranked(entry(1))], tmp_path, title=TITLE)
    assert "regulated_score" not in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_equal_results_share_a_rank_and_the_next_is_skipped() -> None:
    assert ranks(listed(1, 5e12), listed(2, 7e12), listed(3, 7e12), listed(4, 5e12)) == [3, 1, 1, 3]


def test_equal_results_are_ordered_by_time_to_quality() -> None:
    slow = listed(1, 7e12, time_to_quality_seconds=100.0)
    quick = listed(2, 7e12, time_to_quality_seconds=90.0)
    (members,) = by_list([slow, quick]).values()
    assert members == [quick, slow]


def test_a_system_is_ranked_once_by_its_best_result() -> None:
    old = listed(1, 2e12, system="Same", edition="2026-05")
    new = listed(2, 3e12, system=" same ", edition="2026-11")
    namesake = listed(3, 1e12, system="Same", organization="another organization")
    assert ranks(old, new, namesake) == [None, 1, 2]


def test_each_edition_has_ranks_of_its_own() -> None:
    old = listed(1, 2e12, system="Same", edition="2026-05")
    new = listed(2, 3e12, system="Same", edition="2026-11")
    standing = standings([old, new])
    assert (standing[old.id].rank, standing[old.id].edition_rank) == (None, 1)
    assert (standing[new.id].rank, standing[new.id].edition_rank) == (1, 1)


def metered(number: int, per_watt: float | None, **changes: object) -> Entry:
    coverage = None if per_watt is None else "accelerators"
    figures: dict[str, object] = {"vflops_per_watt": per_watt, "power_coverage": coverage}
    return listed(number, 1e12 * number, **(figures | changes))


def energy_ranks(*entries: Entry) -> list[int | None]:
    standing = standings(entries)
    return [standing[entry.id].energy_rank for entry in entries]


def test_places_per_watt_stand_beside_those_by_vflops() -> None:
    frugal, fast, unmetered = metered(1, 5e9), metered(2, 3e9), metered(3, None)
    assert energy_ranks(frugal, fast, unmetered) == [1, 2, None]
    assert ranks(frugal, fast, unmetered) == [3, 2, 1]


def test_places_per_watt_compare_only_equal_coverage() -> None:
    nodes = metered(1, 2e9, power_coverage="whole nodes")
    worse = metered(2, 1e9, power_coverage="whole nodes")
    assert energy_ranks(nodes, worse, metered(3, 9e9)) == [1, 2, 1]


def test_a_system_is_placed_once_by_its_best_result_per_watt() -> None:
    fast = metered(2, 3e9, system="Same", edition="2026-11")
    frugal = metered(1, 5e9, system="Same", edition="2026-05")
    standing = standings([fast, frugal])
    assert [standing[e.id].rank for e in (fast, frugal)] == [1, None]
    assert [standing[e.id].energy_rank for e in (fast, frugal)] == [None, 1]
    assert [standing[e.id].edition_energy_rank for e in (fast, frugal)] == [1, 1]


def test_ranks_that_the_trials_leave_open() -> None:
    def measured(number: int, low: float, mean: float, high: float) -> Entry:
        return listed(number, mean, lowest_vflops=low, highest_vflops=high)

    once = {"lowest_vflops": None, "highest_vflops": None}
    entries = [
        measured(1, 8e12, 9e12, 10e12),  # clear of all others
        measured(2, 5e12, 6e12, 7e12),  # its fastest trial meets none of the first's
        measured(3, 4e12, 4.5e12, 5e12),  # meets the second at one end, the fourth at the other
        measured(4, 3e12, 3.5e12, 4e12),
        listed(5, 1e12, **once),  # one trial
        listed(6, 1e12, edition="2026-05", **once),  # equal
    ]
    found = standings(entries)
    overlaps = [(found[each.id].first_overlap, found[each.id].last_overlap) for each in entries]
    assert overlaps == [(None, None), (2, 3), (2, 4), (3, 4), (5, 6), (5, 6)]
    own = [found[each.id].edition_first_overlap for each in entries]
    assert own == [None, 2, 2, 3, None, None], "each edition by itself"


@pytest.mark.parametrize("name", ["workload", "problem_class", "level"])
def test_ranks_compare_only_within_one_list(name: str) -> None:
    assert ranks(listed(1, 2e12), listed(2, 3e12, **{name: "other"})) == [1, 1]


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


def test_an_unchanged_site_is_not_written_again(tmp_path: Path) -> None:
    build(synthetic_list(5), tmp_path, title=TITLE)
    again = build(synthetic_list(5), tmp_path, title=TITLE)
    assert (again.written, again.removed) == (0, 0)


def test_entries_that_are_no_longer_ranked_are_removed(tmp_path: Path) -> None:
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


def test_files_of_an_interrupted_build_are_removed(tmp_path: Path) -> None:
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
    record = json.loads(mark.read_text())
    mark.write_text(json.dumps(record | {"files": [*record["files"], f"entries/{stale.name}"]}))
    build(synthetic_list(3), tmp_path / "site", title=TITLE)
    assert not stale.exists()


def test_a_forged_mark_removes_nothing_else(tmp_path: Path) -> None:
    build(synthetic_list(2), tmp_path / "site", title=TITLE)
    victim = tmp_path / "victim.html"
    victim.write_text("keep")
    mark = tmp_path / "site" / MARK
    record = json.loads(mark.read_text())
    mark.write_text(json.dumps(record | {"files": ["../victim.html", str(victim), 7]}))
    with pytest.raises(InputError) as caught:
        build(synthetic_list(2), tmp_path / "site", title=TITLE)
    assert caught.value.path == tmp_path / "site"
    mark.write_text(json.dumps(record | {"files": ["../victim.html", str(victim)]}))
    build(synthetic_list(2), tmp_path / "site", title=TITLE)
    assert victim.read_text() == "keep"


@pytest.mark.parametrize("content", [None, "not JSON", '{"format": "other"}', "[]"])
def test_a_folder_with_other_files_is_refused(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    if content is not None:
        (tmp_path / MARK).write_text(content)
    before = snapshot(tmp_path)
    with pytest.raises(InputError) as caught:
        build(synthetic_list(1), tmp_path, title=TITLE)
    assert caught.value.path == tmp_path
    assert snapshot(tmp_path) == before


def test_without_a_valid_submission_the_list_is_empty(tmp_path: Path) -> None:
    """An entry that is refused from now on does not stay on a page of yesterday."""
    build(synthetic_list(1), tmp_path / "site", title=TITLE)
    bad = Rejected("bad.ai500", "", "", "", ("events.jsonl is damaged", "1 of at least 3 trials"))
    built = build([bad], tmp_path / "site", title=TITLE)
    assert (built.entries, built.rejected) == ([], [bad])
    assert list((tmp_path / "site" / "entries").iterdir()) == []
    assert "events.jsonl is damaged" in (tmp_path / "site" / "rejected.html").read_text()


def test_untrusted_text_is_escaped_in_every_file(tmp_path: Path) -> None:
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


def test_data_is_recovered_from_its_script() -> None:
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
def test_logarithmic_ticks_enclose_the_values(
    low: float, high: float, labels: tuple[str, ...]
) -> None:
    assert svg.log_ticks(low, high).labels == labels


def test_very_many_decades_have_few_ticks() -> None:
    ticks = svg.log_ticks(1e3, 9e18)
    assert len(ticks.values) <= 9
    assert (ticks.low, ticks.high) == (1e3, 1e19)


def test_ticks_of_the_largest_doubles() -> None:
    assert svg.log_ticks(1e12, 2e307).high == 1e300


@pytest.mark.parametrize("power", range(-30, 31))
def test_one_value_beside_a_round_one_has_an_axis(power: int) -> None:
    """A single system of 50 W, but for the rounding, was not listed."""
    for factor in (1, 2, 3, 5):
        value = factor * 10.0**power
        for near in (math.nextafter(value, 0), value, math.nextafter(value, math.inf)):
            ticks = svg.log_ticks(near, near, limit=5)
            assert ticks.low <= near * (1 + 1e-9)
            assert ticks.low < ticks.high
            assert ticks.high >= near * (1 - 1e-9)


def test_an_entry_whose_pages_fail_is_refused_alone(tmp_path: Path) -> None:
    built = build(
        [ranked(listed(1, 2e12)), ranked(listed(2, float("inf")))], tmp_path / "site", title=TITLE
    )
    assert [entry.id for entry in built.entries] == [identity(1)]
    (refused,) = built.rejected
    assert refused.file == f"{identity(2)}.ai500"


def test_history_of_a_single_result_and_of_many(tmp_path: Path) -> None:
    assert "<svg" in editions.history_chart([listed(1, 2e12)]).svg("t")
    best = editions.best_of_editions(
        [listed(1, 2e12), listed(2, 3e12), listed(3, 1e12, edition="2026-05")]
    )
    assert [(edition, entry.vflops) for edition, entry in best.items()] == [
        ("2026-05", 1e12),
        ("2026-11", 3e12),
    ]


def test_the_sum_of_an_edition_has_each_system_once() -> None:
    twice = [listed(1, 2e12, system="a"), listed(2, 3e12, system="a"), listed(3, 5e12)]
    assert editions.sum_of_editions([*twice, listed(4, 1e12, edition="2026-05")]) == [
        ("2026-05", 1e12),
        ("2026-11", 8e12),
    ]
