"""Step times of an epoch as quantiles."""

from __future__ import annotations

import pytest

from ai500.records.step_times import PROBABILITIES, summarize


def test_quantiles_are_those_of_the_steps() -> None:
    """Every probability's quantile of the times 1 to 1,001 ms is exact."""
    times = summarize([milliseconds / 1e3 for milliseconds in range(1001, 0, -1)])
    assert times is not None and times.count == 1001
    assert times.quantiles == pytest.approx(
        [1e-3 + probability for probability in PROBABILITIES.values()], rel=1e-4
    )


@pytest.mark.parametrize("seconds", [[], [0.1]])
def test_too_few_steps_were_not_measured(seconds: list[float]) -> None:
    assert summarize(seconds) is None
