"""A search in the terminal: live, in a log, its score; within 80 columns."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from ai500.automl.history import History, Work
from ai500.automl.program import SEARCH
from ai500.automl.progress import ProgressReader
from ai500.automl.score import timed_search
from ai500.automl.worker_view import WorkerView, worker_view
from ai500.bagging.member_views import Collector, MemberView, show
from ai500.cli import score_view, terminal
from ai500.records import Score, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.synthetic_search import (
    SearchShape,
    candidate,
    train_operations,
    trained,
    write_history,
    write_synthetic_search,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    shape = SearchShape(workers=3, killed=frozenset({1}), epoch_seconds=4.0)
    return write_synthetic_search(tmp_path_factory.mktemp("search") / "run", shape)


def printed(renderable: object) -> str:
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(renderable)
    return out.getvalue()


def test_workers_are_shown_from_their_histories(run: RunFolder) -> None:
    views = {worker: MemberView(worker, state="running") for worker in range(3)}
    Collector(
        run, trial=1, members=list(views), read_details=SEARCH.details_reader(run, 1)
    ).show_all(views)
    text = printed(terminal.members_table(list(views.values())))
    history = History(run.trial(1).members)
    last = max(name for name in timed_search(history, []).history.models if name.startswith("001"))
    assert last in text
    worker = worker_view(views[1])
    assert worker is not None
    assert worker.models == worker.round == int(last[-4:])
    assert f"{worker.best_error:.4f}" in text
    assert "0 of 3 workers done" in text
    assert max(map(len, text.splitlines())) <= 80
    line = terminal._line(views[1])
    assert f"worker 1  running  round {worker.round}  best error {worker.best_error:.4f}" in line


def test_a_worker_tells_how_much_of_its_time_is_left() -> None:
    view = MemberView(12, state="running", details=WorkerView(10, "012-0010", 1, 5, 10, 0.4, 9e9))
    view.epoch, view.epochs = 2, 60  # of the model that it trains now
    assert view.seconds_left is None
    show(view, {"event": "first_batch", "wall": time.time() - 30, "search_seconds": 120.0})
    assert view.seconds_left == pytest.approx(90, abs=5)
    show(view, {"event": "interrupted", "wall": time.time()})
    assert view.seconds_left is None
    show(view, {"event": "resumed", "wall": time.time(), "search_seconds": 119.0})
    table = printed(terminal.members_table([view]))
    assert "1 min 5" in table
    assert "1 min 5" in terminal._line(view)
    assert max(map(len, [*table.splitlines(), "  " + terminal._line(view)])) <= 80
    view.state = "done"
    assert view.seconds_left is None


def test_the_live_rate_counts_nothing_twice(tmp_path: Path) -> None:
    watch = ProgressReader(tmp_path)
    write_history(tmp_path, 0, [(0, candidate("a")), (4, Work("a", "train", 1, 0, 4, 4.0))])
    assert watch.refresh()[0].flops == pytest.approx(train_operations(4) / 4)
    write_history(tmp_path, 0, [(8, Work("a", "train", 1, 0, 4, 4.0))], attempt=2)
    assert watch.refresh()[0].flops == pytest.approx(train_operations(4) / 8)
    write_history(tmp_path, 0, trained(candidate("b", "a"), at=9, accuracies=[0.3]))
    view = watch.refresh()[0]
    assert (view.models, view.model, view.epoch, view.best_error) == (2, "b", 1, 0.7)


def test_the_score_of_a_search_names_its_window(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    score = run_folder.read(Score, run.score)
    score_view.show_score(score, [])
    text = " ".join(capsys.readouterr().out.split())
    assert score.search is not None
    assert "highest since the first batch, at 2 min" in text
    assert "regulated" in text
    assert f"{score.search.models} models of {score.search.architectures} architectures" in text
