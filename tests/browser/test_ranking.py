"""The list in a real Chromium, from a file and from a web server.

Debian's chromium is required (`apt-get install chromium`); without it these tests fail.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page

from ai500.core.units import human_seconds, human_si
from ai500.ranking.entries import Drawing, Rejected
from ai500.ranking.site import build
from ai500.report.charts.roofline import Mark, Roof, RooflineChart, Slope
from tests.support.chromium import BROKEN_NAMES, TEXT_COLLISIONS, contrast, luminance
from tests.support.synthetic_list import identity, ranked
from tests.support.synthetic_site import (
    ENTRIES,
    FIRST,
    FORMULA,
    HOSTILE,
    INKS,
    LISTS,
    PAGES,
    STANDINGS,
    best,
    cells,
    rows,
    served,
    visit,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site") / "the list"
    rejected = Rejected("late/bad.ai500", HOSTILE, "someone", "2026-11", (HOSTILE, "a reason"))
    submissions = [ranked(listed) for listed in ENTRIES]
    for number in (0, 1):
        chart = RooflineChart(
            [Roof("peak", 1e15)], [Slope("memory", 1e12)], [Mark(HOSTILE, 9e2, 1e14)]
        )
        drawing = Drawing("The member under its roofline", HOSTILE, chart.svg(HOSTILE))
        submissions[number] = replace(submissions[number], rooflines=(drawing,))
    build([*submissions, rejected], path, title="Synthetic list")
    return path


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with served(folder) as address:
        yield address


@pytest.fixture
def local(folder: Path) -> str:
    return folder.as_uri()


@pytest.fixture(params=["file", "http"])
def root(request: pytest.FixtureRequest, local: str, server: str) -> str:
    """Address of the site, for tests of what a browser may forbid to a file."""
    return local if request.param == "file" else server


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Open a page on which a dialog, an error or a console message fails the test."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    messages: list[str] = []

    def stop(dialog: Dialog) -> None:
        messages.append(f"dialog {dialog.message}")
        dialog.dismiss()

    page.on("dialog", stop)
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    yield page
    page.close()
    assert messages == []


def test_the_first_view_is_the_longest_list_by_rank(page: Page, root: str) -> None:
    page.goto(f"{root}/index.html")
    expected = best(FIRST)[:50]
    assert rows(page) == expected
    assert [cell.split()[0] for cell in cells(page, "Rank")] == [
        f"{STANDINGS[entry.id].rank}" for entry in expected
    ]
    assert cells(page, "VFLOPS") == [f"{human_si(entry.vflops)}VFLOPS" for entry in expected]
    times = [human_seconds(entry.time_to_quality_seconds) for entry in expected]
    assert cells(page, "Time to quality") == times
    per_watt = [entry.flops_per_watt for entry in expected]
    assert None in per_watt
    assert [text == "not measured" for text in cells(page, "FLOPS/W")] == [
        value is None for value in per_watt
    ]


def test_numbers_are_rounded_as_everywhere_else(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html#q=halves")
    assert cells(page, "VFLOPS") == [f"{human_si(1.0625e15)}VFLOPS"] == ["1.062 PVFLOPS"]
    assert cells(page, "Time to quality") == [human_seconds(2.25)] == ["2.2 s"]
    assert cells(page, "Quality") == ["0.7812 / 0.759 ✓"]


def test_ranks_that_the_trials_leave_open_are_marked(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html")
    shown = [STANDINGS[entry.id] for entry in rows(page)]
    marks = [cell.split()[1:] for cell in cells(page, "Rank")]
    assert marks == [
        [f"{each.first_overlap}–{each.last_overlap}"] if each.first_overlap else []
        for each in shown
    ]
    assert 0 < marks.count([]) < len(marks)
    page.get_by_label("Edition").select_option("2026-05")
    shown = [STANDINGS[entry.id] for entry in rows(page)]
    assert [cell.split()[1:] for cell in cells(page, "Rank")] == [
        [f"{each.edition_first_overlap}–{each.edition_last_overlap}"]
        if each.edition_first_overlap
        else []
        for each in shown
    ]


def test_the_chart_is_that_of_the_list_that_is_shown(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html")
    chart = page.locator("#top figure:visible")
    assert chart.locator("rect.bar").count() == 10
    first = best(FIRST)[0]
    assert chart.locator("text").all_text_contents().count(f"1. {first.system}") == 1
    page.get_by_label("Workload").select_option("extreme_weather")
    assert "Extreme weather" in chart.locator("figcaption").inner_text()
    other = best(("extreme_weather", "full", "hardware"))[0]
    assert chart.locator("text").all_text_contents().count(f"1. {other.system}") == 1
    page.get_by_label("Workload").select_option("*")
    page.get_by_label("Level").select_option("*")
    assert chart.count() == 0, "ranks of several lists do not compare"


def test_the_charts_of_each_list(page: Page, local: str) -> None:
    page.goto(f"{local}/charts.html")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(TEXT_COLLISIONS) == [], width
    section = page.locator("main section").first
    ranked_entries = best(FIRST)
    size = section.locator("figure", has_text="VFLOPS against accelerators")
    assert size.locator("circle").count() == len(ranked_entries)
    assert size.locator("polyline.theoretical").count() == 1
    quality = section.locator("figure", has_text="Quality against FLOPS")
    assert quality.locator("polyline.theoretical").count() > 1
    power = section.locator("figure", has_text="VFLOPS against watts of")
    assert power.count() == 2, "accelerators and whole nodes do not compare"
    # Without hovering, the figures are in a table.
    section.locator("summary").first.click()
    row = section.locator("tbody tr").first
    assert ranked_entries[0].full_name in row.inner_text()
    assert f"{human_si(ranked_entries[0].flops)}FLOPS" in row.inner_text()


def test_a_phone_shows_entries_before_filters_and_charts(page: Page, local: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{local}/index.html")
    top = {name: page.locator(name).first.bounding_box() for name in ("#list tbody tr", "#top")}
    entries, chart = top["#list tbody tr"], top["#top"]
    assert entries is not None and entries["y"] < 844, "an entry is on the first screen"
    assert chart is not None and chart["y"] > entries["y"]
    assert not page.locator("#controls").is_visible()
    page.locator("#filters summary").click()
    assert page.locator("#controls").is_visible()


def test_every_column_is_explained_without_hovering(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html")
    titles = page.locator("#list th[data-key]").evaluate_all("all => all.map(h => h.title)")
    page.get_by_text("How to read the columns").click()
    explained = page.locator("#columns + dl dd").all_inner_texts()
    assert explained == titles and all(titles)


def test_rooflines_of_both_entries_compare(page: Page, local: str) -> None:
    a, b, without = ENTRIES[0], ENTRIES[1], ENTRIES[2]
    page.goto(f"{local}/compare.html#a={a.id}&b={b.id}")
    page.locator("#result .drawings svg").nth(1).wait_for()
    figures = page.locator("#result .drawings figure")
    assert [text.partition(":")[0] for text in figures.locator("h3").all_inner_texts()] == [
        f"{a.system}, {a.edition}", f"{b.system}, {b.edition}",
    ]  # fmt: skip
    drawn = figures.locator("svg").first.evaluate("svg => svg.getBoundingClientRect().height")
    assert drawn > 100
    assert figures.locator("text").filter(has_text=HOSTILE).count() == 2
    page.goto("about:blank")
    page.goto(f"{local}/compare.html#a={a.id}&b={without.id}")
    page.locator("#result h2").nth(10).wait_for()
    assert f"No roofline submitted: {without.system}" in page.locator("#result").inner_text()


CLICK = """key => {
  const header = document.querySelector(`#list th[data-key="${key}"]`);
  header.querySelector('button').click();
  return [header.getAttribute('aria-sort'), document.querySelectorAll('[aria-sort]').length];
}"""


def test_every_column_sorts_both_ways(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html")
    headers = page.eval_on_selector_all(
        "#list th[data-key]", "all => all.map(header => [header.dataset.key, header.dataset.first])"
    )
    assert len(headers) == 15
    for key, first in headers[1:]:  # the first view is by rank
        for direction in (first, "down" if first == "up" else "up"):
            word = "ascending" if direction == "up" else "descending"
            assert page.evaluate(CLICK, key) == [word, 1]
            places = key == "energy_rank"
            values = [getattr(STANDINGS[e.id] if places else e, key) for e in rows(page)]
            known = [v.lower() if isinstance(v, str) else v for v in values if v is not None]
            assert known == sorted(known, reverse=direction == "down"), key
            assert None not in values[: len(known)], "values that were not measured are last"


def test_pages_follow_each_other(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html")
    expected = best(FIRST)
    assert len(expected) > 50
    assert page.locator("#previous").is_disabled()
    page.locator("#next").click()
    assert rows(page) == expected[50:100]
    assert page.locator("#page").inner_text() == f"page 2 of {-(-len(expected) // 50)}"
    page.locator("#search").fill("synthetic")
    assert page.locator("#page").inner_text().startswith("page 1")


def test_filters_and_the_places_of_an_edition(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html")
    page.get_by_label("Edition").select_option("2026-05")
    page.get_by_label("Organization").select_option("Test Centre")
    page.locator("#every").check()
    shown = rows(page)
    expected = [
        entry for entry in LISTS[FIRST]
        if entry.edition == "2026-05" and entry.organization == "Test Centre"
    ]  # fmt: skip
    assert sorted(entry.id for entry in shown) == sorted(entry.id for entry in expected)
    places = [STANDINGS[entry.id].edition_rank for entry in shown]
    assert [cell.split()[0] for cell in cells(page, "Rank")] == [
        f"{place}" if place else "—" for place in places
    ]
    known = [place for place in places if place]
    assert known == sorted(known)


def test_another_list_is_a_filter_away(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html")
    page.get_by_label("Workload").select_option("extreme_weather")
    assert rows(page) == best(("extreme_weather", "full", "hardware"))[:50]
    page.get_by_label("Workload").select_option("*")
    page.get_by_label("Level").select_option("*")
    assert "ranks compare only within one list" in page.locator("#count").inner_text()
    system = page.locator('#list tbody td[data-label="System"]').first
    assert system.locator("small").count() == 2


def test_search_finds_and_says_when_nothing_matches(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html")
    page.locator("#search").fill("DEMO mi300")
    assert rows(page) == []
    page.locator("#search").fill("sample mi300")
    matches = rows(page)
    assert matches and all("Sample" in entry.organization for entry in matches)
    page.locator("#search").fill("no such thing")
    assert page.locator("#empty").is_visible()
    page.locator("#clear").click()
    count = page.locator("#count").inner_text()
    assert count.startswith(f"{len(ENTRIES)} entries")


def test_a_view_can_be_linked(page: Page, browser: Browser, root: str) -> None:
    page.goto(f"{root}/index.html")
    page.get_by_label("Accelerator").select_option("Synthetic MI300")
    page.locator("#search").fill("sample")
    page.locator('[data-key="system_scale"] button').click()
    page.wait_for_url("**sort=system_scale**")
    link, seen = page.url, rows(page)
    assert seen
    other = browser.new_page()
    other.goto(link)
    assert rows(other) == seen
    assert other.locator("#search").input_value() == "sample"
    assert other.locator('[data-key="system_scale"]').get_attribute("aria-sort") == "descending"
    other.close()
    page.locator("#reset").click()
    assert rows(page) == best(FIRST)[:50]
    page.wait_for_url("**/index.html#")


def test_a_strange_link_still_shows_a_list(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html#sort=__proto__&page=-7&pick=x,y&level=%3Cb%3E&dir=7")
    assert page.locator("#empty").is_visible()
    page.locator("#clear").click()
    assert len(rows(page)) == 50


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_what_is_shown_can_be_downloaded(page: Page, root: str, kind: str) -> None:
    page.goto(f"{root}/index.html#workload=*&problem_class=*&level=*&every=1&q=405")
    page.locator("#search").fill(FORMULA)
    page.locator("#search").fill("hyperlink")
    with page.expect_download() as event:
        page.locator(f"#{kind}").click()
    assert event.value.suggested_filename == f"ai500-list.{kind}"
    text = event.value.path().read_text(encoding="utf-8")
    exported = json.loads(text) if kind == "json" else list(csv.DictReader(text.splitlines()))
    (row,) = exported
    assert float(row["vflops"]) == 1.1e12
    assert row["id"] == identity(405)
    # A spreadsheet must not run a stranger's text.
    assert row["system"] == (FORMULA if kind == "json" else f"'{FORMULA}")


def test_two_entries_compare_layer_by_layer(page: Page, root: str) -> None:
    page.goto(f"{root}/index.html")
    page.locator("#list tbody input").nth(0).check()
    assert "choose a second one" in page.locator("#picked-names").inner_text()
    page.locator("#list tbody input").nth(1).check()
    a, b = rows(page)[:2]
    page.locator("#compare").click()
    page.locator("#result h2").nth(10).wait_for()
    assert a.accelerator != b.accelerator
    assert page.locator("#result h2").count() == 11
    row = page.locator("tr", has=page.locator('th:text-is("device")'))
    assert row.get_attribute("class") == "differs"
    assert row.locator("td").all_inner_texts() == [a.accelerator, b.accelerator]
    same = page.locator("tr", has=page.locator('th:text-is("operating system")'))
    assert same.get_attribute("class") == ""
    vflops = page.locator("tr", has=page.locator('th:text-is("VFLOPS")'))
    assert vflops.locator("td").nth(0).get_attribute("class") == "better"
    page.locator("#differences").check()
    assert page.locator("#result tbody tr").count() == page.locator("#result .differs").count() > 0
    page.locator("#swap").click()
    page.locator("#result h2").nth(10).wait_for()
    assert row.locator("td").all_inner_texts() == [b.accelerator, a.accelerator]


def test_the_comparison_offers_what_is_searched(page: Page, local: str) -> None:
    page.goto(f"{local}/compare.html")
    for side, text in (("First", "synthetic 00003"), ("Second", "synthetic 00004")):
        page.get_by_label(f"{side} entry", exact=True).locator("input").fill(text)
        page.locator(".found button").first.click()
    page.locator("#result h2").nth(10).wait_for()
    assert "Synthetic 00003" in page.locator(".chosen").nth(0).inner_text()
    assert "Synthetic 00004" in page.locator(".chosen").nth(1).inner_text()


def test_entries_of_different_lists_are_not_called_better(page: Page, local: str) -> None:
    a, b = LISTS[FIRST][0], LISTS["extreme_weather", "full", "hardware"][0]
    page.goto(f"{local}/compare.html#a={a.id}&b={b.id}")
    page.locator("#result h2").nth(10).wait_for()
    assert "do not compare" in page.locator("#result .verdict").inner_text()
    assert page.locator(".better").count() == 0


def test_per_watt_is_better_only_of_the_same_parts(page: Page, local: str) -> None:
    metered = [entry for entry in LISTS[FIRST] if entry.power_coverage is not None]
    a = metered[0]
    other = next(entry for entry in metered if entry.power_coverage != a.power_coverage)
    same = next(
        entry for entry in metered[1:]
        if entry.power_coverage == a.power_coverage and entry.vflops_per_watt != a.vflops_per_watt
    )  # fmt: skip
    row = page.locator("tr", has=page.locator('th:text-is("VFLOPS per watt")'))
    for b, better in ((other, 0), (same, 1)):
        page.goto("about:blank")
        page.goto(f"{local}/compare.html#a={a.id}&b={b.id}")
        page.locator("#result h2").nth(10).wait_for()
        assert row.locator(".better").count() == better
        covered = [text.partition(" of ")[2] for text in row.locator("td").all_inner_texts()]
        assert covered == [a.power_coverage, b.power_coverage]
    page.goto(f"{local}/index.html#q={a.system}&edition={a.edition}")
    assert cells(page, "VFLOPS/W")[0].splitlines()[1] == a.power_coverage


def test_an_entry_compares_with_itself(page: Page, local: str) -> None:
    entry = ENTRIES[0].id
    page.goto(f"{local}/compare.html#a={entry}&b={entry}")
    page.locator("#result h2").nth(10).wait_for()
    assert page.locator("#result .differs").count() == 0


def test_history_has_a_line_for_each_list(page: Page, local: str) -> None:
    page.goto(f"{local}/history.html")
    assert page.locator("svg").count() == len(LISTS)
    assert page.locator("svg polyline.ensemble").count() == len(LISTS)
    assert page.locator("svg polyline.member").count() > 0
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(TEXT_COLLISIONS) == [], width
    link = page.locator("main table a").first
    led = link.get_attribute("href")
    link.click()
    page.wait_for_url(f"**/{led}")
    assert page.locator(".verdict").count() == 1


def test_an_entry_shows_its_places_and_its_history(page: Page, local: str) -> None:
    entry = next(entry for entry in ENTRIES if STANDINGS[entry.id].rank is None)
    page.goto(f"{local}/entries/{entry.id}.html")
    assert "Not ranked by itself" in page.locator(".verdict").inner_text()
    assert page.locator("svg polyline.ensemble").count() == 1
    page.get_by_text("compare", exact=True).click()
    page.locator("#result h2").nth(10).wait_for()


def test_a_script_in_a_submission_is_text(page: Page, local: str) -> None:
    for where in visit(page, local):
        if where == "index.html":
            page.locator("#search").fill("alert(1)")
            assert page.locator("#list tbody a").inner_text() == HOSTILE
        assert page.locator("img").count() == 0
        assert page.evaluate("[...document.scripts].every(script => script.src && !script.text)")
        if where not in ("compare.html", "history.html", "about.html"):
            assert HOSTILE in (page.locator("main").text_content() or "")


def test_nothing_but_the_sites_own_files_is_asked_for(page: Page, root: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for _ in visit(page, root):
        pass
    page.wait_for_load_state("networkidle")
    asked = [url for url in asked if not url.startswith(("data:", "about:"))]
    assert len(asked) > len(PAGES)
    assert [url for url in asked if not url.startswith(root)] == []


def test_the_keyboard_alone_is_enough(page: Page, local: str) -> None:
    page.goto(f"{local}/index.html")
    press = page.keyboard.press
    focused = "document.activeElement.closest('[data-key]')?.dataset.key"
    press("/")
    page.keyboard.type("sample/")  # the second slash is text
    assert page.locator("#search").input_value() == "sample/"
    press("Backspace")
    while page.evaluate(focused) != "vflops":
        press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline not in ("none", "hidden"), "focus has to be seen"
    press("Enter")
    assert page.locator('[data-key="vflops"]').get_attribute("aria-sort") == "descending"
    press("Space")
    assert page.locator('[data-key="vflops"]').get_attribute("aria-sort") == "ascending"
    assert page.evaluate(focused) == "vflops", "sorting leaves the focus where it was"
    first = rows(page)[0]
    while page.evaluate("document.activeElement.tagName") != "A":
        press("Tab")
    press("Enter")
    page.wait_for_url(f"**/entries/{first.id}.html")


def test_no_page_scrolls_sideways(page: Page, local: str) -> None:
    for where in visit(page, local):
        for width in (360, 390, 800, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, where
            # The comparison's columns have equal widths: a long name breaks there.
            if not where.startswith("compare"):
                assert page.evaluate(BROKEN_NAMES) == [], (where, width)


def test_a_phone_shows_cards_that_sort(page: Page, local: str) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(f"{local}/index.html")
    page.locator('[data-key="flops"] button').click()
    shown = [entry.flops for entry in rows(page)]
    assert shown == sorted(shown, reverse=True)
    assert page.locator("#list tbody td").first.evaluate("cell => cell.offsetWidth") < 328


SCHEMES: tuple[Any, ...] = ("light", "dark")


def test_text_stands_out(page: Page, local: str) -> None:
    for where in visit(page, local):
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (luminance(background) > 0.5) == (scheme == "light")
            inks: dict[str, str] = page.evaluate(INKS)
            assert len(inks) > 2
            for colours, element in inks.items():
                ink, behind = colours.split("|")
                assert contrast(ink, behind) >= 4.5, f"{where}, {element}: {colours}"  # WCAG AA


def test_paper_is_white_and_without_controls(page: Page, local: str) -> None:
    page.emulate_media(color_scheme="dark", media="print")
    page.goto(f"{local}/index.html")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#controls").is_visible()
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
