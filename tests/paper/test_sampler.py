"""V3 §3.3: the times a sample is drawn follow Poisson(1); 63.2 % occur, 36.8 % never."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ai500.bagging.data_sampler import BOOTSTRAPS

IMAGENET = 1_281_167


@pytest.mark.parametrize("name", ["bootstrap", "poisson"])
def test_v3_section_3_3_63_2_percent_of_the_samples_occur(name: str) -> None:
    shares = [
        np.count_nonzero(BOOTSTRAPS[name].draw(IMAGENET, seed=0, member=member)) / IMAGENET
        for member in range(20)
    ]
    # One member's share deviates by 0.04 points (binomial); the mean of 20 by 0.01.
    assert all(abs(share - (1 - math.exp(-1))) < 0.002 for share in shares)
    assert f"{np.mean(shares):.1%}" == "63.2%"
    assert f"{1 - np.mean(shares):.1%}" == "36.8%"


@pytest.mark.parametrize("name", ["bootstrap", "poisson"])
def test_v3_section_3_3_a_sample_is_drawn_once_on_average(name: str) -> None:
    counts = BOOTSTRAPS[name].draw(IMAGENET, seed=0, member=0)
    assert np.mean(counts) == pytest.approx(1, abs=0.005)
    assert np.var(counts) == pytest.approx(1, abs=0.01)
