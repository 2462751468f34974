"""The identity of a model's graph: the same however it is computed, another for another model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ai500.operations.graph import IDENTITY_BATCH, Op, Shapes, Trace, graph_sha256
from ai500.operations.shipped import shipped_model
from ai500.operations.torch_trace import trace
from ai500.workloads.models.resnet import resnet50, small_resnet

INPUT = (IDENTITY_BATCH, 3, 24, 24)


def identity(model: nn.Module, shape: tuple[int, ...] = INPUT) -> str:
    return graph_sha256(trace(model, shape))


@pytest.fixture(scope="module")
def reference() -> str:
    return identity(small_resnet(classes=12))


def test_weights_memory_format_and_modules_names_do_not_matter(reference: str) -> None:
    torch.manual_seed(5)
    model = small_resnet(classes=12).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert identity(model) == reference
    assert identity(nn.Sequential(model)) == reference


def test_it_is_the_one_that_ships(reference: str) -> None:
    shipped = shipped_model("image_classification", "smoke")
    assert shipped is not None
    assert shipped.graph_sha256 == reference
    assert shipped_model("other_workload", "smoke") is None


@pytest.mark.parametrize("change", ["classes", "width", "dropout", "activation", "no norm"])
def test_another_model_has_another_identity(reference: str, change: str) -> None:
    model: nn.Module = small_resnet(
        classes=13 if change == "classes" else 12, width=24 if change == "width" else 16
    )
    if change == "dropout":
        model = nn.Sequential(model, nn.Dropout(0.1))
    if change == "activation":
        model.stem[2] = nn.GELU()  # type: ignore[operator,index]
    if change == "no norm":
        model.stem[1] = nn.Identity()  # type: ignore[operator,index]
    assert identity(model) != reference


def test_v1_and_v1_5_of_resnet50_differ() -> None:
    with torch.device("meta"):
        models = [resnet50(version=version) for version in ("v1", "v1.5")]  # type: ignore[arg-type]
    first, second = (identity(model, (IDENTITY_BATCH, 3, 64, 64)) for model in models)
    assert first != second


def test_a_bias_added_by_itself_is_the_same_as_inside_the_layer() -> None:
    shapes = Shapes(inputs=((2, 8), (8, 4)), outputs=((2, 4),))
    inside = Op("dense", shapes, {"parameters": 36})
    apart = Op("dense", shapes, {"parameters": 32})
    bias = Op("bias", Shapes(((2, 4), (4,)), ((2, 4),)), {"parameters": 4})
    copied = Op("data_movement", Shapes(((2, 4),), ((2, 4),)))
    assert graph_sha256(Trace((inside,), 36, 2)) == graph_sha256(
        Trace((apart, bias, copied), 36, 2)
    )
    assert graph_sha256(Trace((inside,), 36, 2)) != graph_sha256(Trace((apart,), 36, 2))


def test_operators_without_a_kind_are_hashed_by_name() -> None:
    shapes = Shapes(((2, 4),), ((2, 4),))
    first, second = (Op("unknown", shapes, operator=name) for name in ("mine::a", "mine::b"))
    assert graph_sha256(Trace((first,), 0, 2)) != graph_sha256(Trace((second,), 0, 2))
