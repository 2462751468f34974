"""Operation counts the papers print, recomputed from the traced graph (SPEC §3, §4)."""

from __future__ import annotations

import pytest
import torch

from ai500.metrics.equations import scaling_ratio
from ai500.operations import OperationCount, count
from ai500.operations.published import AIPERF_TABLE_III
from ai500.operations.shipped import shipped_operations
from ai500.workloads.models.resnet import Version, resnet50
from tests.support.v2_roofline import FLOP_PER_PARAMETER

TRAIN_IMAGES, VALIDATION_IMAGES = 1_281_167, 50_000


def resnet50_count(version: Version, convention: str = "aiperf", batch: int = 1) -> OperationCount:
    with torch.device("meta"):
        model = resnet50(version=version)
    return count(model, (batch, 3, 224, 224), convention=convention, loss="softmax")


@pytest.fixture(scope="module")
def v1() -> OperationCount:
    return resnet50_count("v1")


def printed(value: float, *, like: float) -> bool:
    """Equal to the digits the paper prints: three of them."""
    return f"{value:.2e}" == f"{like:.2e}"


#: The printed figures that follow from the paper's own weights; the others are only recorded.
FOLLOWS = [
    (kind, direction)
    for kind, row in AIPERF_TABLE_III.items()
    for direction in ("forward", "backward")
    if direction not in row.recorded
]


@pytest.mark.parametrize(("kind", "direction"), FOLLOWS)
def test_aiperf_table_iii(v1: OperationCount, kind: str, direction: str) -> None:
    counted = v1 if kind == "total" else v1.by_kind[kind]
    assert printed(getattr(counted, direction), like=getattr(AIPERF_TABLE_III[kind], direction))


def test_aiperf_table_iii_exact_integers(v1: OperationCount) -> None:
    convolution, dense = v1.by_kind["convolution"], v1.by_kind["dense"]
    assert (convolution.forward, convolution.backward) == (7_711_850_496, 15_234_582_912)
    assert (dense.forward, dense.backward) == (4_096_000, 12_290_000)
    assert v1.total == 23_053_458_456
    assert printed(v1.total, like=2.31e10)


def test_aiperf_table_iii_ratios(v1: OperationCount) -> None:
    ratios = {
        kind: part.backward / part.forward for kind, part in v1.by_kind.items() if part.forward
    }
    assert round(ratios["convolution"], 4) == 1.9755
    assert round(ratios["dense"], 4) == 3.0005
    assert round(v1.backward / v1.forward, 4) == 1.9531


def test_aiperf_weights_give_softmax_and_average_pool(v1: OperationCount) -> None:
    """SPEC §4: the weights give 1.30e4 and, with the divisions, 108 544; the paper prints other."""
    assert v1.by_kind["softmax"].forward == 13_000
    assert v1.by_kind["average_pool"].forward == 100_352 + 4 * 2048


def test_aiperf_table_vii_per_epoch(v1: OperationCount) -> None:
    """Batch size 1: the update is in every image's backward pass."""
    training = TRAIN_IMAGES * v1.total
    validation = VALIDATION_IMAGES * v1.forward
    assert printed(TRAIN_IMAGES * v1.forward, like=1.00e16)
    assert printed(TRAIN_IMAGES * v1.backward, like=1.95e16)
    assert printed(training, like=2.95e16)
    assert printed(validation, like=3.90e14)
    assert printed(training + validation, like=2.99e16)


def test_spec_4_v1_5_convolution() -> None:
    v15 = resnet50_count("v1.5").by_kind["convolution"].forward
    assert v15 == 8_174_272_512
    assert 1.05 < v15 / 7_711_850_496 < 1.07


def test_v3_table_4_parameters(v1: OperationCount) -> None:
    assert v1.parameters == 25_557_032


def test_v2_table_5_scaling_ratio_of_the_network() -> None:
    """GFLOP of a step of 128 images per million parameters: V2 rounds both before it divides."""
    step = resnet50_count("v1", batch=128)
    ratio = scaling_ratio(step.total, parameters=step.parameters)
    assert ratio == pytest.approx(115.21, abs=0.01)
    operations = 1e9 * round(step.total / 128 / 1e9) * 128
    rounded = scaling_ratio(operations, parameters=step.parameters // 10**6 * 10**6)
    assert rounded == pytest.approx(FLOP_PER_PARAMETER["Image Classification"] / 1e3)


def test_v2_table_5_scaling_ratio_of_ewa_is_of_another_detector() -> None:
    """Ours has V2's 41 M parameters and 1.55 times the operations of its image, at batch 1."""
    ours = shipped_operations("extreme_weather", "full", "aiperf")
    assert ours is not None
    assert ours.parameters // 10**6 == 41
    ratio = scaling_ratio(ours.per_step(1), parameters=ours.parameters)
    assert ratio == pytest.approx(25.89, abs=0.01)
    assert ratio / (FLOP_PER_PARAMETER["EWA"] / 1e3) == pytest.approx(1.54, abs=0.01)


def test_d12_update_once_per_step(v1: OperationCount) -> None:
    batch = resnet50_count("v1", batch=32)
    assert batch.update == v1.update == 2 * (23_454_912 + 2_049_000)
    assert batch.forward == 32 * v1.forward
    assert batch.gradients == 32 * v1.gradients
    assert batch.total == 32 * (v1.forward + v1.gradients) + v1.update


def test_v3_table_3_and_matmul_on_resnet50() -> None:
    """V3: no factor 2 in the fully connected layer [D5]; matmul: torch's own count."""
    v3, matmul = resnet50_count("v1.5", "v3"), resnet50_count("v1.5", "matmul")
    assert v3.by_kind["dense"].forward == 2_048_000
    assert v3.by_kind["max_pool"].forward == 64 * 56 * 56
    assert v3.by_kind["batch_norm"].forward == 77_797_888 // 7
    assert (v3.update, matmul.update) == (0, 0)
    assert (matmul.forward, matmul.total) == (8_178_368_512, 24_299_077_632)
    other_kinds = set(matmul.by_kind) - {"convolution", "dense"}
    assert not any(matmul.by_kind[kind].total for kind in other_kinds)
