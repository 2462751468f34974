"""The published figures of SPEC §1, recomputed from their inputs."""

from __future__ import annotations

import math

import pytest

from ai500.metrics import equations as score
from ai500.parallel.parallelism_controller import solve
from tests.support.papers import quality_of_penalty


def test_v3_section_2_apc_of_resnet50_at_batch_512() -> None:
    """23 GFLOP an image and 512 images: 11 776 GFLOP."""
    assert score.apc(23e9, batch_size=512) == 11_776e9


def test_v3_section_2_share_of_each_summit_node() -> None:
    """Over 4608 nodes 2.55 GFLOP each, cut and not rounded."""
    share = score.apc(23, batch_size=512) / 4608
    assert math.floor(share * 100) / 100 == 2.55


def test_v3_equation_4_apc_grows_with_the_ensemble() -> None:
    apc_of_one = score.apc(23e9, batch_size=512)
    assert score.apc(23e9, batch_size=512, ensemble_size=8) == 8 * apc_of_one


@pytest.mark.parametrize(("ensemble_size", "degree"), [(8, 8), (4, 16), (1, 64)])
def test_v3_equation_5_of_figure_7(ensemble_size: int, degree: int) -> None:
    """The three ways V3 Fig. 7 divides 64 accelerators."""
    solved = solve(
        ensemble_size=ensemble_size,
        parallel_degree=degree,
        system_scale=64,
        accelerators_per_node=8,
        least_ensemble_size=1,
    )
    assert solved.waves == 1
    assert solved.ensemble_size * solved.parallel_degree == 64


@pytest.mark.parametrize(("gain", "factor"), [(0.0045, 1.03), (0.0138, 1.10)])
@pytest.mark.parametrize("baseline", [0.70, 0.72, 0.74, 0.753])
def test_v2_table_8_gains_of_accuracy(gain: float, factor: float, baseline: float) -> None:
    """Factors of VFLOPS for 0.45 and 1.38 points of accuracy, n = 5."""
    before, after = (
        score.penalty_coefficient(quality, target_quality=0.763, exponent=5)
        for quality in (baseline, baseline + gain)
    )
    assert round(after / before, 2) == factor


@pytest.mark.parametrize(
    ("penalty", "target", "exponent", "quality"),
    [(0.96, 0.763, 5, 0.757), (0.44, 0.35, 10, 0.322)],
    ids=["image classification", "EWA"],
)
def test_v3_figure_5_penalties_imply_qualities(
    penalty: float, target: float, exponent: int, quality: float
) -> None:
    """Eq. 8 inverted."""
    implied = quality_of_penalty(penalty, target_quality=target, exponent=exponent)
    assert round(implied, 3) == quality
    again = score.penalty_coefficient(implied, target_quality=target, exponent=exponent)
    assert again == pytest.approx(penalty)


def test_v2_section_4_4_1_penalty_may_award() -> None:
    assert score.penalty_coefficient(0.78, target_quality=0.763, exponent=5) > 1


def test_d15_lower_is_better_inverts_the_ratio() -> None:
    better = score.penalty_coefficient(0.1, target_quality=0.2, exponent=2, direction="lower")
    worse = score.penalty_coefficient(0.4, target_quality=0.2, exponent=2, direction="lower")
    assert (better, worse) == (4.0, 0.25)


def test_equations_6_and_7() -> None:
    rate = score.flops(6e12, seconds=3)
    assert rate == 2e12
    assert score.vflops(rate, penalty_coefficient=0.5) == 1e12
