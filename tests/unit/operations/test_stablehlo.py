"""StableHLO texts of JAX count like traced torch models (tests/support/stablehlo_texts.py)."""

from __future__ import annotations

from math import log2
from pathlib import Path

import pytest

from ai500.core.errors import InputError
from ai500.operations.count import OperationCount, count_trace
from ai500.operations.graph import Trace, graph_sha256, with_loss
from ai500.operations.rules import CONVENTIONS
from ai500.operations.stablehlo import trace_stablehlo
from ai500.operations.training_step import step_difference

TEXTS = Path(__file__).parent / "stablehlo_texts"
BATCH = 2


def text(name: str) -> str:
    return (TEXTS / f"{name}.mlir").read_text(encoding="utf-8")


def counted(trace: Trace, convention: str = "aiperf") -> OperationCount:
    return count_trace(trace, convention=convention)


def kinds(count: OperationCount) -> dict[str, tuple[int, int]]:
    return {
        kind: (part.forward, part.backward) for kind, part in count.by_kind.items() if part.total
    }


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize(
    ("name", "convolution"), [("resnet50", 8_174_272_512), ("resnet50-v1", 7_711_850_496)]
)
def test_resnet50_of_jax_counts_as_the_traced_torch_model(name, convolution, convention):
    from ai500.operations.torch_trace import trace
    from ai500.workloads.named_models import countable

    torch_trace = with_loss(trace(countable(name).model(), (BATCH, 3, 224, 224)), "softmax")
    expected = counted(torch_trace, convention)
    parameters = range(53 * 3 + 2)  # the running statistics follow them
    count = counted(trace_stablehlo(text(name), parameters=parameters), convention)
    assert count.by_kind["convolution"].forward == BATCH * convolution
    # A bias is a part of its layer in torch, an operator of its own in StableHLO.
    own_kinds = kinds(count)
    bias = own_kinds.pop("bias", (0, 0))
    own_kinds["dense"] = (own_kinds["dense"][0], own_kinds["dense"][1] + bias[1])
    assert own_kinds == kinds(expected)
    assert (count.total, count.update) == (expected.total, expected.update)
    assert (count.parameters, count.batch, count.unknown) == (expected.parameters, BATCH, {})


def test_block_of_a_transformer_by_hand():
    trace = trace_stablehlo(text("block"))
    tokens, width, heads, channels = BATCH * 6, 16, 2, 8
    products = width * 3 * width + width * width + width * 11
    scores = BATCH * heads * 6 * 6
    assert kinds(counted(trace)) == {
        "layer_norm": (7 * tokens * width, 0),
        "rms_norm": (7 * tokens * width, 0),
        "add": (tokens * width, 0),
        "div": (4 * scores, 0),
        "softmax": (13 * scores, 0),
        "matmul": (2 * 2 * scores * channels, 2 * 2 * 2 * scores * channels),
        "dense": (2 * tokens * products, 2 * 2 * tokens * products + 2 * products),
        "bias": (0, 2 * heads * channels),
    }
    assert trace.parameters == products + 11 * width + 4 * width


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_language_model_of_jax_is_the_traced_torch_model(convention):
    """Embedding, GELU by tanh and negative log-likelihood are layers: counts and graph agree."""
    import torch

    from ai500.operations.torch_trace import trace
    from ai500.workloads.language_model import CLASSES, WORKLOAD

    smoke = CLASSES["smoke"]
    tokens = torch.zeros(BATCH, *smoke.input_shape, dtype=torch.int64)
    of_torch = trace(WORKLOAD.model(smoke), tokens)
    of_jax = trace_stablehlo(text("language_model"), parameters=range(28), batch=BATCH)
    assert graph_sha256(of_jax) == graph_sha256(of_torch)
    assert counted(of_jax, convention).as_record() == counted(of_torch, convention).as_record()
    assert not counted(of_jax, convention).unknown


def test_arithmetic_that_is_no_gelu_counts_as_its_parts():
    """Another constant: an approximation of something else."""
    changed = text("language_model").replace("4.471500e-02", "5.471500e-02")
    assert "gelu" not in kinds(counted(trace_stablehlo(changed, parameters=range(28))))


def test_every_way_to_write_a_normalization_is_one():
    count = counted(trace_stablehlo(text("normalizations"), parameters=[0, 1]))
    elements = BATCH * 4 * 4 * 8
    assert kinds(count) == {
        "batch_norm": (3 * 7 * elements, 0),  # in one pass and two, and in inference
        "group_norm": (7 * elements, 0),
        "layer_norm": (7 * elements, 0),
        "rms_norm": (7 * elements, 0),
    }


def test_convolutions_by_hand():
    """Strides, groups, depth-wise, without padding, dilated and transposed."""
    macc = [
        BATCH * 16 * 16 * 9 * 3 * 8,
        BATCH * 16 * 16 * 9 * 2 * 8,
        BATCH * 8 * 8 * 9 * 1 * 8,
        BATCH * 6 * 6 * 9 * 8 * 8,
        BATCH * 2 * 2 * 9 * 8 * 8,
        BATCH * 2 * 2 * 16 * 8 * 6,  # transposed: positions of its input
    ]
    count = counted(trace_stablehlo(text("convolutions")), "matmul")
    assert count.by_kind["convolution"].forward == 2 * sum(macc)
    # The first convolution's data needs no gradient.
    assert count.by_kind["convolution"].backward == 2 * (2 * sum(macc) - macc[0])


@pytest.mark.parametrize("name", ["convolutions", "block"])
def test_a_step_of_jax_computes_the_derived_gradients(name):
    forward, step = trace_stablehlo(text(name)), trace_stablehlo(text(f"{name}_step"))
    assert step_difference(forward, step) == 0
    frozen = trace_stablehlo(text(name), parameters=[])
    gradients = counted(forward, "matmul").backward
    assert step_difference(frozen, step) == gradients // 2 > 0


def test_a_recomputed_forward_pass_is_a_difference_and_not_counted():
    forward, step = trace_stablehlo(text("layers")), trace_stablehlo(text("recomputed_step"))
    assert step_difference(forward, step) == 3 * BATCH * 8 * 8


def test_loops():
    count = counted(trace_stablehlo(text("loops"), parameters=[0]))
    assert kinds(count) == {
        "dense": (4 * 2 * 3 * 8 * 8, 4 * 2 * 2 * 3 * 8 * 8 + 2 * 4 * 8 * 8),
        "tanh": (4 * 15 * 3 * 8, 0),
        "mul": (10 * 3 * 3 * 8, 0),
        "compare": (1, 0),
    }
    assert count.unknown == {
        "stablehlo.while (unknown number of iterations)": 1,
        "stablehlo.case": 1,
    }
    assert count.parameters == 4 * 8 * 8


def test_transforms_and_complex_products_by_hand():
    count = counted(trace_stablehlo(text("spectral")))
    real_2d = 2.5 * BATCH * 12 * 8 * log2(12 * 8)
    along_rows = 5 * BATCH * 12 * 5 * log2(12)
    inverse = 2.5 * BATCH * 12 * 8 * log2(8)
    assert kinds(count) == {
        "fft": (round(real_2d) + round(along_rows) + round(inverse), 0),
        "mul": (6 * BATCH * 12 * 5, 0),
        # The weight's gradient, and the update of 25 parameters.
        "dense": (4 * 2 * BATCH * 12 * 5 * 5, 4 * 2 * BATCH * 12 * 5 * 5 + 2 * 25),
        "sort": (BATCH * 12 * 8 * 3, 0),
    }


def test_products_of_integers():
    module = """
module @m {
  func.func public @main(%arg0: tensor<8x16xi8>, %arg1: tensor<4x8xi8>) -> tensor<4x16xi32> {
    %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0] : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
    %1 = stablehlo.add %0, %0 : tensor<4x16xi32>
    return %1 : tensor<4x16xi32>
  }
}
"""  # noqa: E501
    assert counted(trace_stablehlo(module)).total == 2 * 4 * 8 * 16


def test_an_operator_without_a_rule_is_named():
    module = """
module @m {
  func.func public @main(%arg0: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %0 = stablehlo.cholesky %arg0, lower = true : tensor<4x4xf32>
    %1 = stablehlo.custom_call @lapack_sgeqrf(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %2 = sdy.manual_computation(%1) manual_axes={"x"} (%arg1: tensor<4x4xf32>) {
      %3 = stablehlo.tanh %arg1 : tensor<4x4xf32>
      sdy.return %3 : tensor<4x4xf32>
    } : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %2 : tensor<4x4xf32>
  }
}
"""
    count = counted(trace_stablehlo(module))
    assert count.unknown == {
        "stablehlo.cholesky": 1,
        "stablehlo.custom_call @lapack_sgeqrf": 1,
        "sdy.manual_computation": 1,
    }


@pytest.mark.parametrize("form", ["generic", "located"])
def test_every_printed_form_counts_the_same(form):
    """MLIR prints operations in a generic form, and with locations, if asked."""
    other, plain = trace_stablehlo(text(f"block_{form}")), trace_stablehlo(text("block"))
    assert kinds(counted(other)) == kinds(counted(plain))
    assert other.parameters == plain.parameters


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "HloModule jit_f, entry_computation_layout={...}",
        "func.func @main(%arg0: tensor<?x4xf32>) -> tensor<?x4xf32> {\n}",
        "func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n"
        "%0 = stablehlo.tanh %arg7 : tensor<4xf32>\n}",
        "func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n"
        "%0 = call @absent(%arg0) : (tensor<4xf32>) -> tensor<4xf32>\n}",
    ],
)
def test_text_that_is_no_module(wrong):
    with pytest.raises(InputError) as caught:
        trace_stablehlo(wrong)
    assert caught.value.key == "model"
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["block", "block_generic", "loops", "spectral", "convolutions"])
def test_damaged_text_is_refused_or_counted_but_nothing_else_happens(name):
    """Without one of its lines; and a text that ends early is always refused."""
    lines = text(name).splitlines()
    for number in range(len(lines)):
        try:
            trace_stablehlo("\n".join([*lines[:number], *lines[number + 1 :]]))
        except InputError as error:
            assert error.key == "model"
    for number in range(2, len(lines) - 1, 7):
        cut = "\n".join(lines[:number])
        with pytest.raises(InputError):
            trace_stablehlo(cut)


def test_an_argument_that_main_does_not_have():
    with pytest.raises(InputError) as caught:
        trace_stablehlo(text("block"), parameters=[99])
    assert (caught.value.key, caught.value.value) == ("parameters", [99])
