"""A run read through the public API: the shipped example, and a run made by the API itself."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

import ai500
from tests.support.docs_examples import ROOT

H200 = ROOT / "docs" / "examples" / "h200"


@pytest.fixture(scope="module")
def h200() -> ai500.Run:
    return ai500.open_run(H200)


def test_plain_records(h200: ai500.Run) -> None:
    assert h200.state == "finished"
    assert len(h200.trials) == h200.plan.trials == 5
    assert h200.score.vflops == pytest.approx(260.5e12, rel=1e-3)
    members = h200.members(trial=2)
    assert [member.member for member in members] == [0, 1]
    assert h200.ensemble(2).member_qualities == tuple(member.quality for member in members)
    epochs = list(h200.events("epoch", trial=1))
    assert len(epochs) == 2 * h200.plan.hyperparameters.epochs
    assert {event["trial"] for event in epochs} == {1}
    assert not [finding for finding in h200.findings if finding.severity == "violation"]


def test_meter_series_have_a_time_for_every_value(h200: ai500.Run) -> None:
    series = h200.meters(trial=1)
    watts = [meter for meter in series if meter.quantity == "watts"]
    assert watts
    for meter in series:
        assert len(meter.times) == len(meter.values) > 0
        assert list(meter.times) == sorted(meter.times)


def test_data_frames(h200: ai500.Run) -> None:
    trials = h200.frame("trials")
    assert list(trials["vflops"]) == [trial.vflops for trial in h200.trials]
    assert len(h200.frame("members", trial=1)) == 2
    assert set(h200.frame("events")["event"]) >= {"first_batch", "epoch", "end"}
    meters = h200.frame("meters", trial=1)
    assert len(meters) == sum(len(series.values) for series in h200.meters(1))
    with pytest.raises(ai500.InputError) as raised:
        h200.frame("weights")  # type: ignore[arg-type]
    assert raised.value.value == "weights"


def test_without_pandas_the_error_says_what_to_install(
    h200: ai500.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ai500.EnvironmentLacksError) as raised:
        h200.frame("trials")
    assert raised.value.remedy == "pip install pandas"


def test_a_notebook_shows_the_score_with_markup_escaped(h200: ai500.Run, tmp_path: Path) -> None:
    page = h200._repr_html_()
    assert "260.5 TVFLOPS" in page
    hostile = tmp_path / "<b>run"
    hostile.symlink_to(H200)
    assert "<b>run" not in ai500.open_run(hostile)._repr_html_()


def test_plots_are_the_report_s_figures(h200: ai500.Run, tmp_path: Path) -> None:
    assert h200.plots()[0] == "quality-over-epochs-top-1-accuracy"
    for name in h200.plots():
        plot = h200.plot(name)
        assert plot._repr_svg_().lstrip().startswith("<svg")
    h200.plot("quality").save(tmp_path / "quality.svg")
    assert (tmp_path / "quality.svg").stat().st_size > 1000
    with pytest.raises(ai500.InputError) as raised:
        h200.plot("nothing")
    assert raised.value.value == "nothing"


def test_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(ai500.RunFolderError):
        ai500.open_run(tmp_path)


def test_plan_needs_no_folder() -> None:
    config = ai500.load_config(
        overrides={"problem_class": "full", "system.device": "cuda", "system.nodes": 8,
                   "system.accelerators_per_node": 8}
    )  # fmt: skip
    plan = ai500.plan(config)
    assert (plan.ensemble_size, plan.parallel_degree, plan.system_scale) == (8, 8, 64)
