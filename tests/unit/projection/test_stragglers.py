"""Distributions of step times, against draws of which the slowest is known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ai500.core.errors import InputError
from ai500.projection import application
from ai500.projection.stragglers import (
    fit_epochs,
    fit_steps,
    log_spread,
    slowest_member,
)
from ai500.records.step_times import StepTimes, summarize

H200 = Path(__file__).parents[3] / "docs/examples/h200"
EPOCHS, STEPS = 50, 200


def log_normal(generator: np.random.Generator, count: int) -> NDArray[np.float64]:
    return np.exp(0.05 * generator.standard_normal(count))


def with_delays(generator: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Draw steps of which one in 250 is delayed by as much as a step, in the mean."""
    delayed = generator.random(count) < 0.004
    return log_normal(generator, count) * (1 + delayed * generator.exponential(1.0, count))


def measured(draw: Any, *, of: int = 1) -> list[StepTimes]:
    """Summarize epochs whose steps are each the slowest of so many."""
    generator = np.random.default_rng(1)
    epochs = [
        summarize(list(draw(generator, of * STEPS).reshape(STEPS, of).max(axis=1)))
        for _ in range(EPOCHS)
    ]
    return [epoch for epoch in epochs if epoch is not None]


def true_slowest(draw: Any, devices: int) -> float:
    """Return the mean slowest of so many devices over the mean of one, by a million draws."""
    generator = np.random.default_rng(2)
    rounds = max(1, 1_000_000 // devices)
    slowest = draw(generator, rounds * devices).reshape(rounds, devices).max(axis=1)
    return float(slowest.mean() / draw(generator, 1_000_000).mean())


@pytest.mark.parametrize("devices", [8, 64, 512, 4096])
@pytest.mark.parametrize("draw", [log_normal, with_delays])
def test_the_slowest_step_of_many_accelerators_is_predicted(draw: Any, devices: int) -> None:
    """From 10,000 measured steps; their tail beyond 1 in 1,000 is a hundred steps' and less."""
    fitted = fit_steps(measured(draw), devices=1, member_means=[])
    expected = true_slowest(draw, devices)
    loose = 0.02 if draw is log_normal else 0.25
    assert fitted.slowest(devices) == pytest.approx(expected, rel=loose)
    # The epochs' means hide what single steps do.
    means = [float(draw(np.random.default_rng(i), STEPS).mean()) for i in range(EPOCHS)]
    assert fit_epochs(means, member_means=[]).slowest(devices) - 1 < 0.3 * (expected - 1)


def test_steps_of_several_accelerators_are_their_slowest() -> None:
    """A run of P_degree 4 measured the slowest of four; one accelerator alone is faster."""
    fitted = fit_steps(measured(with_delays, of=4), devices=4, member_means=[])
    alone = fit_steps(measured(with_delays), devices=1, member_means=[])
    assert fitted.slowest(4) == pytest.approx(1.0)
    assert fitted.slowest(1) < 1
    ratio = fitted.slowest(64) / fitted.slowest(1)
    assert ratio == pytest.approx(alone.slowest(64), rel=0.15)


def test_steady_steps_have_no_stragglers() -> None:
    steady = StepTimes(100, *[0.25] * 7)
    fitted = fit_steps([steady, steady], devices=1, member_means=[0.25] * 3)
    assert fitted.slowest(100_000) == pytest.approx(1.0)
    assert (fitted.steps, fitted.member_spread) == (200, 0.0)
    assert slowest_member(100_000, spread=0.0) == 1.0


def test_the_slowest_member_of_many() -> None:
    assert slowest_member(1, spread=0.1) == 1.0
    assert 1.3 < slowest_member(1000, spread=0.1) < 1.45
    assert log_spread([1.0, 2.0]) == 0.0
    assert log_spread([1.0, 2.0, 4.0]) == pytest.approx(np.log(2.0))


def logged_steps(folder: Path, times: Any) -> Path:
    """Return a copy of the H200 run whose epochs have these step times."""
    run = folder / "run"
    shutil.copytree(H200, run)
    for log in run.glob("trials/*/members/*/events.jsonl"):
        logged = [json.loads(line) for line in log.read_text().splitlines()]
        for event in logged:
            if event["event"] == "epoch":
                event["step_times"] = times
        log.write_text("".join(json.dumps(event) + "\n" for event in logged))
    return run


def test_a_runs_own_steps_are_fitted_and_older_runs_fall_back(tmp_path: Path) -> None:
    times = {"count": 199, "minimum": 0.031, "p10": 0.032, "p50": 0.033, "p90": 0.034,
             "p99": 0.04, "p999": 0.06, "maximum": 0.07}  # fmt: skip
    run = application.read(logged_steps(tmp_path, times)).stragglers
    older = application.read(H200).stragglers
    assert older.steps is None
    # Ten trials' members, each epoch but the first.
    assert run.steps is not None and run.steps % 199 == 0 and run.steps > 1000
    assert run.slowest(1000) > 1.7 > older.slowest(1000)
    assert run.member_spread == older.member_spread


@pytest.mark.parametrize(
    "times",
    [
        {"count": 5},
        {"count": 5, "minimum": 2, "p10": 1, "p50": 1, "p90": 1, "p99": 1, "p999": 1, "maximum": 1},
        {"count": 5, "minimum": 0, "p10": 1, "p50": 1, "p90": 1, "p99": 1, "p999": 1, "maximum": 1},
        "fast",
    ],
)
def test_step_times_that_are_none_are_refused(tmp_path: Path, times: Any) -> None:
    with pytest.raises(InputError, match="step_times of epoch"):
        application.read(logged_steps(tmp_path, times))
