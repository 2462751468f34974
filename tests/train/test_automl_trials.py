"""Several trials of one real search: own seed, own history, own score; the report has all."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from ai500.automl.history import History
from ai500.records import Score, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import Start
from tests.support.searches import operations_once, settings

SECONDS = 20.0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_trial_is_a_search_of_its_own(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    run = tmp_path / "run"
    chosen = settings(tiny_store, seconds=SECONDS, workers=1)
    command = start("run", "--out", run, "--runs", "2", *chosen)
    assert command.wait(timeout=500) == 0, command.err
    whole = run_folder.read(Score, RunFolder(run).score)
    assert whole.search is not None and len(whole.trials) == 2
    initial = []
    for number, score in enumerate(whole.trials, start=1):
        history = History(RunFolder(run).trial(number).path / "members")
        lines = history.refresh()
        assert not history.unreadable and score.search is not None
        assert score.trial == number and score.seconds >= SECONDS
        assert score.operations + score.validation_operations == operations_once(lines)
        best = max(model.accuracy or 0.0 for model in history.models.values())
        assert score.ensemble_quality == pytest.approx(1 - best)
        assert score.search.models == len(history.models)
        # Parents come from the trial's own history alone.
        parents = {model.candidate.parent for model in history.models.values()}
        assert None in parents and parents - {None} <= set(history.models)
        initial.append(history.models["000-0001"].epochs[1].loss)
    assert whole.trials[0].seed != whole.trials[1].seed
    assert initial[0] != initial[1]  # other first weights, another order of the images
    kept = [trial.flops for trial in whole.trials if trial.trial in whole.kept_trials]
    assert whole.flops == pytest.approx(fmean(kept))
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "searched architectures 2 times" in page
    assert all(
        f"{trial.seed}" in page and f"{trial.ensemble_quality:.4f}" in page
        for trial in whole.trials
    )
    scored = start("score", run, "--json")
    assert scored.wait() == 0, scored.err
    assert len(json.loads(scored.out)["trials"]) == 2
