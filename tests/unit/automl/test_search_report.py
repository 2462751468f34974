"""The report of a search: what it says is what the histories tell."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from ai500.automl.history import Candidate, History
from ai500.automl.sections import (
    SearchData,
    models_table,
    read_search_data,
    trials_table,
    workers_table,
)
from ai500.pipeline.scoring import write_report
from ai500.records import Score, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.charts.tree import Node, Tree, lineage, log_ticks
from ai500.report.formats import flops
from ai500.report.run_data import read_run_data
from tests.support.synthetic_search import (
    SearchShape,
    candidate,
    trained,
    write_history,
    write_synthetic_search,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    shape = SearchShape(workers=2, trials=2, killed=frozenset({1}), spoiled=True, epoch_seconds=4)
    return write_synthetic_search(tmp_path_factory.mktemp("search") / "run", shape)


@pytest.fixture(scope="module")
def data(run: RunFolder) -> SearchData:
    return read_search_data(read_run_data(run))


def report(run: RunFolder) -> str:
    write_report(run)
    return run.report.read_text(encoding="utf-8")


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_headline_tables_and_figures_are_the_search_s(data: SearchData) -> None:
    text, score = words(report(data.run.folder)), data.run.score
    assert score.search is not None
    assert f"The score is {flops(score.flops)}" in text
    assert f"−ln(error) × FLOPS is {flops(score.search.regulated_score)}" in text
    for title in (
        "Score and regulated score over time", "Best error over time", "Search tree",
        "Best error over operations", "Workers over time", "Models", "Workers",
    ):  # fmt: skip
        assert title in text
    assert "bootstrap draws" not in text
    assert "Learning rate over steps" not in text
    assert "worker 0: line" in text
    assert "of history.jsonl is skipped: no JSON" in text


def test_every_model_is_in_the_table_the_best_first(data: SearchData) -> None:
    table = models_table(data)
    assert {row[0] for row in table.rows} == set(data.history.models)
    errors = [float(row[2]) for row in table.rows]
    assert errors == sorted(errors)
    assert table.rows[0][0] == data.trial.best_model
    assert sum(row[1] == "none" for row in table.rows) == 2
    assert any(row[7].endswith("TPE") for row in table.rows)


def test_workers_own_operations_are_all_there_are(data: SearchData) -> None:
    rows = workers_table(data).rows
    assert [row[0] for row in rows] == ["0", "1"]
    assert [row[7] for row in rows] == ["1", "2"]
    assert sum(int(row[2]) for row in rows) == data.trial.models


def test_trials_show_what_an_error_cost(data: SearchData) -> None:
    rows = trials_table(data.run.score).rows
    assert [row[0] for row in rows] == ["1", "2"]
    assert all(row[7].endswith("FLOP") for row in rows)
    assert data.score.operations_to_target_variation is not None


def test_the_run_s_figures_are_means_of_its_trials(run: RunFolder) -> None:
    score = run_folder.read(Score, run.score)
    first, second = (trial.search for trial in score.trials)
    assert score.search is not None and first is not None and second is not None
    mean = (first.regulated_score + second.regulated_score) / 2
    assert score.search.regulated_score == pytest.approx(mean)
    assert score.search.unreadable_lines == 2


def test_a_tree_of_a_thousand_models_is_drawn_once_each() -> None:
    nodes = [
        Node(f"m{n}", f"m{n // 2}" if n > 1 else None, 1e6 * n, 1 / (1 + n), f"<{n}>")
        for n in range(1, 1001)
    ]
    drawn = Tree(nodes, "m1000", "operations", "error").svg("Search tree")
    names = [node.name for node in lineage({node.name: node for node in nodes}, "m1000")]
    assert names == ["m1", "m3", "m7", "m15", "m31", "m62", "m125", "m250", "m500", "m1000"]
    assert drawn.count("<circle") == 1000 + len(names) - 1
    assert drawn.count('class="branch"') == 999
    assert "<7>" not in drawn
    assert "&lt;7&gt;" in drawn


def test_a_lineage_that_goes_in_a_circle_ends() -> None:
    nodes = {name: Node(name, other, 1.0, 0.5, "") for name, other in (("a", "b"), ("b", "a"))}
    assert len(lineage(nodes, "a")) == 2


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.9), (0.113, 0.61), (1e-4, 1.0), (0.5, 0.5)])
def test_ticks_of_a_logarithmic_axis_enclose_the_errors(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert ticks.low <= low * (1 + 1e-9)
    assert ticks.high >= high * (1 - 1e-9)
    assert ticks.low < ticks.high


def test_nothing_from_a_history_becomes_markup(tmp_path: Path) -> None:
    run = write_synthetic_search(tmp_path / "run", SearchShape(epoch_seconds=8))
    evil = "<script>alert(1)</script>"
    made: Candidate = candidate(f"000-{evil}", "000-0001", moves=(evil,))
    write_history(run.trial(1).members, 0, trained(made, at=2000, accuracies=[0.3]))
    history = History(run.trial(1).members)
    history.refresh()
    assert f"000-{evil}" in history.models
    page = report(run)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
