"""Sections: every block is rendered and escaped; files of instruments can't inject markup."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from ai500.core import events, schema
from ai500.core.errors import InputError
from ai500.inventory.node import describe
from ai500.pipeline.scoring import write_report
from ai500.records import Cluster
from ai500.records.run_folder import RunFolder
from ai500.report.charts.bars import BarRow, MeanBars, StackedBar, StackedBars
from ai500.report.charts.line_chart import LineChart, curve
from ai500.report.charts.roofline import Mark, Roof, RooflineChart, Slope
from ai500.report.page import Page, prose, render
from ai500.report.run_data import read_run_data
from ai500.report.run_sections import mapping_table, timeline_figure
from ai500.report.section import (
    Beside,
    Block,
    Card,
    Cards,
    Figure,
    Folded,
    Grid,
    Item,
    Items,
    Listing,
    Notice,
    Paragraph,
    Section,
    Table,
    named_figures,
)
from ai500.report.section_files import read_sections, write_section
from tests.support.synthetic_run import Shape, write_synthetic_run

HOSTILE = "<script>alert(1)</script>\"'"
CHARTS = [
    StackedBars((HOSTILE, "b"), [StackedBar(HOSTILE, [0.7, 0.3])], HOSTILE),
    MeanBars([BarRow(HOSTILE, [1.0, 2.0], HOSTILE)], HOSTILE),
    RooflineChart([Roof(HOSTILE, 1e12)], [Slope(HOSTILE, 1e9)], [Mark(HOSTILE, 1e3, 1e11)]),
]


def every_block(text: str) -> list[Block]:
    return [
        Paragraph(text, "lead"),
        Paragraph(text, "warning"),
        Table((text, text), [(text, text)], (1,), [0], text, text, text, "kernels"),
        Grid([*(Figure(text, chart, text, text) for chart in CHARTS), Figure(text, None, text)]),
        Items([Item(text, text, "note", text)], text),
        Listing(text, text),
        Cards([Card(text, text, text)]),
        Notice(text, "invalid", text, [text], text),
        Folded(text, [Paragraph(text)]),
        Beside([Paragraph(text)], Figure(text, CHARTS[0], text, text)),
    ]


def rendered(*sections: Section) -> str:
    return render(Page("title", "kicker", "heading", "facts", [], sections))


def test_figures_of_one_title_have_names_of_their_own() -> None:
    figures = [Figure("Loss", CHARTS[0], "1"), Figure("Loss", CHARTS[1], "2")]
    named = named_figures([Grid([*figures, Figure("No chart", None, "3")])])
    assert {name: figure.caption for name, figure in named.items()} == {"loss": "1", "loss-2": "2"}


def test_sections_of_one_title_have_identifiers_of_their_own() -> None:
    text = rendered(*(Section(title, []) for title in ("The system", "Score", "The System", "—")))
    assert re.findall(r'id="([^"]*)"', text) == ["the-system", "score", "the-system-2"]


def test_a_long_page_has_contents_that_lead_to_its_sections() -> None:
    titles = ["Score", "", "System", "System", "Findings"]
    text = rendered(*(Section(title, []) for title in titles))
    links = re.findall(r'<a href="#([^"]*)">([^<]*)</a>', text)
    assert links == [
        ("score", "Score"),
        ("system", "System"),
        ("system-2", "System"),
        ("findings", "Findings"),
    ]
    assert {anchor for anchor, _ in links} <= set(re.findall(r'id="([^"]*)"', text))
    assert "<nav" not in rendered(*(Section(title, []) for title in titles[:3]))


def test_rows_beyond_those_shown_are_folded_away() -> None:
    rows = [(f"row {number}", "cell") for number in range(5)]
    text = rendered(Section("", [Table(("a", "b"), rows, noun="figures", shown=2)]))
    head, _, folded = text.partition("3 more figures")
    assert "row 1" in head and "row 2" not in head
    assert "row 4" in folded


def test_a_point_has_its_values_as_a_tooltip() -> None:
    chart = LineChart([curve([(1, 0.5), (2, 0.75)], "mean", dots="all")], "epoch", "loss")
    assert "<title>loss 0.75 at epoch 2</title>" in chart.svg("")


def test_every_text_of_every_block_is_shown_and_escaped() -> None:
    page = rendered(Section(HOSTILE, every_block(HOSTILE)))
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 30
    for number in range(10):
        assert f"text {number}" in rendered(Section("", [every_block(f"text {number}")[number]]))


def test_a_section_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    section = Section("Instrument", every_block("text"))
    run = RunFolder(tmp_path)
    write_section(run, "instrument", section)
    (read,) = read_sections(run)
    assert rendered(read) == rendered(section)


def test_the_report_shows_the_sections_of_instruments(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape())
    write_section(run, "instrument", Section("Instrument", every_block(HOSTILE)))
    write_report(run)
    page = run.report.read_text(encoding="utf-8")
    assert '<section id="instrument">' in page
    assert "<script" not in page


@pytest.mark.parametrize(
    "change",
    [
        {"title": 7},
        {"unknown": "key"},
        {"blocks": [{"text": "a", "style": "onload"}]},
        {"blocks": [{"figures": [{"title": "a", "chart": "<svg>", "caption": ""}]}]},
        {"blocks": [{"figures": [{"title": "a", "chart": {"roofs": [], "slopes": [], "marks": []},
                                  "caption": ""}]}]},
        {"blocks": [{"figures": [{"title": "a", "chart": {
            "roofs": [{"name": "a", "flops": -1.0, "theoretical": False}], "slopes": [],
            "marks": []}, "caption": ""}]}]},
    ],
)  # fmt: skip
def test_a_damaged_section_is_named_and_the_report_goes_on(
    tmp_path: Path, change: dict[str, object]
) -> None:
    run = RunFolder(tmp_path)
    plain = schema.encode(Section("Instrument", [Paragraph("text")]))
    run.sections.mkdir()
    run.section("instrument").write_text(json.dumps({**plain, **change}))
    (section,) = read_sections(run)
    assert section.title == "Instrument"
    assert "Not shown" in rendered(section)


def test_markup_is_no_chart() -> None:
    with pytest.raises(InputError):
        schema.decode(Figure, {"title": "a", "chart": "<svg/>", "caption": ""})


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("see `ai500 check`.", "see <code>ai500 check</code>."),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("a ` alone", "a ` alone"),
        ("`a` and ` alone", "<code>a</code> and ` alone"),
        ("plain", "plain"),
    ],
)
def test_words_in_backticks_are_code(text: str, html: str) -> None:
    assert prose(text) == html


def test_on_a_cluster_the_members_ran_where_the_nodes_recorded(tmp_path: Path) -> None:
    """The plan maps members to nodes; Slurm chooses, and the nodes record themselves."""
    run = write_synthetic_run(tmp_path / "run", Shape(members=3, slots=4))
    systems = run.trial(1).path / "systems"
    described = json.dumps(schema.encode(describe()))
    systems.mkdir(exist_ok=True)
    for file in systems.iterdir():
        file.unlink()
    for name in ("gpu-07-000", "gpu-09-000", "gpu-09-001"):
        (systems / f"{name}.json").write_text(described)
    data = read_run_data(run)
    assert data.hosts == {0: ["gpu-07", "gpu-09"], 1: ["gpu-09"]}
    assert "gpu" not in str(mapping_table(data).rows)
    cluster = Cluster("c", "p", ("a", "b"), {}, 4, 4, 1, None, False, "24.05")
    data = dataclasses.replace(data, plan=dataclasses.replace(data.plan, cluster=cluster))
    assert mapping_table(data).rows == [
        ("gpu-07, gpu-09", "0"), ("gpu-09", "1"), ("not recorded", "2"),
    ]  # fmt: skip


def test_the_spread_of_the_first_waves_launches_is_named(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape(members=4, slots=2))
    assert "launched" not in timeline_figure(read_run_data(run), noun="member").caption
    first = next(event for event in events.read(run.events) if event["event"] == "first_batch")
    # Members 2 and 3 are the second wave.
    for member, late in enumerate((0.0, 1.5, 60.0, 60.0)):
        launch = {"event": "start", "member": member, "monotonic": first["monotonic"] + late - 2}
        events.append(run.events, [first | launch])
    caption = timeline_figure(read_run_data(run), noun="member").caption
    assert "launched within 1.5 s." in caption
