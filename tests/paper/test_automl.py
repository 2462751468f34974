"""AIPerf as it was published (SPEC §6): the regulated score, Table IV, the warm-up."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ai500.automl.counting import count_architecture, trace_of
from ai500.automl.rules import AT_LEAST_FP16
from ai500.automl.score import regulated_score
from ai500.meters.recorder import LONGEST_PERIOD_SECONDS
from ai500.operations.count import count_trace
from ai500.records import ProblemClass, Search
from ai500.workloads.models.architecture import initial_architecture
from ai500.workloads.models.architecture_network import Network
from ai500.workloads.protocol import load_workload

FULL: ProblemClass = load_workload("automl").problem_classes["full"]
SEARCHES = [
    pytest.param(problem_class.search, id=name)
    for name, problem_class in load_workload("automl").problem_classes.items()
]


def score(flops: float, error: float) -> float:
    return regulated_score(flops, error=error, validation_samples=50_000)


@given(flops=st.floats(1e9, 1e18), factor=st.floats(0.1, 10), error=st.floats(0.001, 0.999))
def test_aiperf_equation_3_grows_linearly_with_flops(
    flops: float, factor: float, error: float
) -> None:
    """§IV-D: the derivative with respect to FLOPS does not depend on FLOPS."""
    slope = score(flops, error) / flops
    assert score(factor * flops, error) / (factor * flops) == pytest.approx(slope)
    assert slope == pytest.approx(-math.log(error))
    assert slope > 0


@given(error=st.floats(0.01, 0.98))
def test_aiperf_equation_3_rewards_a_lower_error_the_more_the_lower_it_is(error: float) -> None:
    """§IV-D: the derivative with respect to the error grows in absolute value as it falls."""
    step = 1e-4

    def slope(at: float) -> float:
        return abs(score(1e15, at + step) - score(1e15, at - step)) / (2 * step)

    assert slope(error) == pytest.approx(1e15 / error, rel=1e-3)
    assert slope(error * 0.9) > slope(error)


def test_aiperf_table_4_fixed_configuration() -> None:
    search = FULL.search
    assert search is not None
    assert search.minutes >= 60
    assert FULL.target_quality == 0.30  # [D7]: the text says 35 %
    assert (FULL.train_samples, FULL.validation_samples) == (1_281_167, 50_000)
    assert (FULL.input_shape, FULL.classes) == ((3, 224, 224), 1000)
    assert not {"fp8", "int8"} & set(AT_LEAST_FP16)
    assert FULL.penalty_exponent == 0  # FLOPS is the score, the regulated score stands beside it


def test_aiperf_table_4_starts_at_resnet_50() -> None:
    search = FULL.search
    assert search is not None
    start = initial_architecture(search.initial, classes=1000, input_channels=3)
    assert (search.initial.kind, search.initial.blocks) == ("bottleneck", (3, 4, 6, 3))
    counted = count_architecture(start, input_shape=(3, 224, 224), convention="aiperf")
    assert counted.parameters == 25_557_032


def test_aiperf_table_3_is_of_the_start_v1() -> None:
    """[D16]: v1.5 is the start; `automl.initial_version = "v1"` starts at Table III's network."""
    search = FULL.search
    assert search is not None and search.initial.version == "v1.5"
    forward = {}
    for version in ("v1.5", "v1"):
        initial = dataclasses.replace(search.initial, version=version)
        start = initial_architecture(initial, classes=1000, input_channels=3)
        trace = trace_of(start, input_shape=(3, 224, 224))
        convolutions = [op for op in trace.ops if op.kind == "convolution"]
        only = dataclasses.replace(trace, ops=tuple(convolutions))
        forward[version] = count_trace(only, convention="aiperf").forward_per_sample
    assert forward == {"v1.5": 8_174_272_512, "v1": 7_711_850_496}


@pytest.mark.parametrize("search", SEARCHES)
def test_growth_is_capped_at_three_times_the_start(search: Search) -> None:
    """[D21]"""
    assert search.max_growth == 3.0


def test_aiperf_table_4_default_configuration() -> None:
    reference = FULL.reference
    assert reference.batch_size == 448
    assert (reference.optimizer, reference.momentum > 0) == ("sgd", True)
    assert reference.base_learning_rate == 0.1
    assert (reference.schedule, reference.decay_power) == ("inverse_time", 0.1 / 60)
    assert reference.epochs == 60
    assert load_workload("automl").loss_operator == "softmax"  # of the cross entropy


def test_aiperf_table_4_initial_weights_by_he_s_method() -> None:
    """[21] of the paper: a deviation of √(2 / fan)."""
    torch.manual_seed(0)
    smoke = load_workload("automl").problem_classes["smoke"]
    assert smoke.search is not None
    network = Network(initial_architecture(smoke.search.initial, classes=10, input_channels=3))
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d) and module.weight.numel() > 500:
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            assert module.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.15)


@pytest.mark.parametrize("search", SEARCHES)
def test_aiperf_section_4e_hpo_starts_at_the_fifth_round(search: Search) -> None:
    assert [search.tunes(number) for number in range(1, 8)] == [False] * 4 + [True] * 3


@pytest.mark.parametrize("search", SEARCHES)
def test_aiperf_section_4e_earlier_rounds_train_less(search: Search) -> None:
    """ "since the earlier rounds are trained insufficiently": a predicted accuracy ranks them."""
    epochs = [search.epochs_of(number, epochs=60) for number in range(1, 7)]
    assert epochs == sorted(epochs)
    assert epochs[3] < 60
    assert epochs[4:] == [60, 60]


def test_utilization_is_sampled_at_least_every_30_seconds() -> None:
    """AIPerf on its Fig. 5; the period grows in long runs, up to this."""
    assert LONGEST_PERIOD_SECONDS <= 30
