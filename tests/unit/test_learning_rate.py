"""Learning-rate policies at their corners."""

from __future__ import annotations

import pytest

from ai500.train.learning_rate import cosine, scaled_peak, step_decay


def test_linear_scaling() -> None:
    assert scaled_peak(0.1, global_batch_size=1024, reference_batch_size=256) == pytest.approx(0.4)


@pytest.mark.parametrize("policy", [cosine, step_decay])
def test_warm_up_is_linear_and_ends_at_the_peak(policy: object) -> None:
    assert callable(policy)
    rates = [
        policy(step, peak=1.0, total_steps=100, warmup_steps=10, decay_steps=[50])
        for step in range(11)
    ]
    assert rates[:10] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert rates[10] == pytest.approx(1.0)


def test_cosine_ends_near_zero_and_never_rises() -> None:
    rates = [cosine(step, peak=1.0, total_steps=100, warmup_steps=10) for step in range(10, 100)]
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.001
    assert cosine(55, peak=1.0, total_steps=100, warmup_steps=10) == pytest.approx(0.5)


def test_step_decay_divides_by_ten_at_each_step_named() -> None:
    rates = [
        step_decay(step, peak=1.0, total_steps=90, warmup_steps=0, decay_steps=[30, 60, 80])
        for step in (0, 29, 30, 59, 60, 79, 80, 89)
    ]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_no_warm_up_starts_at_the_peak() -> None:
    assert cosine(0, peak=0.5, total_steps=10, warmup_steps=0) == 0.5
