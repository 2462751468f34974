"""Learning-rate policies at their corners."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path
from typing import Any

import pytest

from ai500.train.learning_rate import (
    LearningRate,
    cosine,
    learning_rate_of,
    polynomial,
    scaled_peak,
    step_decay,
)
from ai500.workloads.protocol import load_workload

POLICIES = [cosine, step_decay, polynomial]
COURSE: dict[str, Any] = {"peak": 2.0, "decay_steps": [50], "power": 2.0}


def test_linear_scaling() -> None:
    reference = load_workload("image_classification").problem_classes["full"].reference
    assert (reference.base_learning_rate, reference.reference_batch_size) == (0.1, 256)
    assert scaled_peak(reference, global_batch_size=1024) == pytest.approx(0.4)
    assert scaled_peak(reference, global_batch_size=256) == 0.1


@pytest.mark.parametrize("policy", POLICIES)
def test_warm_up_is_linear_and_ends_at_the_peak(policy: LearningRate) -> None:
    rates = [policy(step, total_steps=100, warmup_steps=10, **COURSE) for step in range(11)]
    assert rates[:10] == pytest.approx([0.2 * n for n in range(1, 11)])
    assert rates[9] == rates[10] == 2.0  # the last step of warm-up, and the first after it


@pytest.mark.parametrize("policy", POLICIES)
def test_no_warm_up_starts_at_the_peak(policy: LearningRate) -> None:
    assert policy(0, total_steps=100, warmup_steps=0, **COURSE) == 2.0


@pytest.mark.parametrize("policy", POLICIES)
def test_warm_up_to_the_last_step(policy: LearningRate) -> None:
    rates = [policy(step, total_steps=10, warmup_steps=10, **COURSE) for step in range(10)]
    assert rates == pytest.approx([0.2 * n for n in range(1, 11)])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_single_step(policy: LearningRate) -> None:
    assert policy(0, total_steps=1, warmup_steps=0, **COURSE) == 2.0
    assert policy(0, total_steps=1, warmup_steps=1, **COURSE) == 2.0


@pytest.mark.parametrize("policy", POLICIES)
def test_the_rate_never_rises_after_warm_up_and_stays_positive(policy: LearningRate) -> None:
    rates = [policy(step, total_steps=100, warmup_steps=10, **COURSE) for step in range(10, 100)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0


@pytest.mark.parametrize(("policy", "end"), [(cosine, 0.0), (polynomial, 0.0), (step_decay, 0.2)])
def test_after_the_end(policy: LearningRate, end: float) -> None:
    assert policy(100, total_steps=100, warmup_steps=10, **COURSE) == pytest.approx(end)
    assert policy(150, total_steps=100, warmup_steps=10, **COURSE) == pytest.approx(end)


def test_cosine_by_hand() -> None:
    assert cosine(55, peak=1.0, total_steps=100, warmup_steps=10) == pytest.approx(0.5)
    last = cosine(99, peak=1.0, total_steps=100, warmup_steps=10)
    assert last == pytest.approx(0.000305, abs=1e-6)  # (1 + cos(π 89/90)) / 2


@pytest.mark.parametrize(("power", "middle", "last"), [(1.0, 0.5, 1 / 90), (2.0, 0.25, 1 / 8100)])
def test_polynomial_by_hand(power: float, middle: float, last: float) -> None:
    def rate(step: int) -> float:
        return polynomial(step, peak=1.0, total_steps=100, warmup_steps=10, power=power)

    assert (rate(55), rate(99)) == (pytest.approx(middle), pytest.approx(last))


def test_step_decay_divides_by_ten_at_each_step_named() -> None:
    rates = [
        step_decay(step, peak=1.0, total_steps=90, warmup_steps=0, decay_steps=[30, 60, 80])
        for step in (0, 29, 30, 59, 60, 79, 80, 89)
    ]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_a_decay_inside_warm_up_counts_after_it() -> None:
    rates = [
        step_decay(step, peak=1.0, total_steps=20, warmup_steps=10, decay_steps=[5])
        for step in (4, 5, 9, 10)
    ]
    assert rates == pytest.approx([0.5, 0.6, 1.0, 0.1])


def test_the_full_class_decays_at_its_epochs() -> None:
    """Goyal et al.'s course over 90 epochs, from the hyper-parameters."""
    reference = load_workload("image_classification").problem_classes["full"].reference
    rate = learning_rate_of(reference, peak=3.2, steps_per_epoch=100)
    rates = [rate(epoch * 100) for epoch in (5, 29, 30, 60, 80)]
    assert rates == pytest.approx([3.2, 3.2, 0.32, 0.032, 0.0032])
    assert rate(0) == pytest.approx(3.2 / 500)


def test_the_power_reaches_the_policy() -> None:
    reference = load_workload("image_classification").problem_classes["smoke"].reference
    hyper = dataclasses.replace(
        reference, schedule="polynomial", decay_power=3.0, epochs=10, warmup_epochs=0
    )
    assert learning_rate_of(hyper, peak=1.0, steps_per_epoch=10)(50) == pytest.approx(0.125)


def test_the_picture_in_the_docs_is_what_the_policies_are() -> None:
    """`python docs/images/draw_learning_rate.py` draws it anew."""
    script = Path(__file__).parents[3] / "docs" / "images" / "draw_learning_rate.py"
    drawing = runpy.run_path(str(script))
    assert script.with_name("learning_rate.svg").read_text() == drawing["drawn"]() + "\n"
