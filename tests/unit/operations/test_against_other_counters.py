"""`matmul` against torch's own counter and fvcore, on twelve architectures."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ai500.operations.count import count_trace
from ai500.operations.graph import Trace
from ai500.operations.torch_trace import trace, trace_backward
from tests.support.architectures import ARCHITECTURES, GROUPED

pytestmark = pytest.mark.slow

ALL = pytest.mark.parametrize("name", ARCHITECTURES)


def on_meta(name: str) -> tuple[nn.Module, torch.Tensor]:
    """Meta tensors: there torch takes attention apart, so that its counter sees the products."""
    factory, shape, dtype = ARCHITECTURES[name]
    with torch.device("meta"):
        return factory(), torch.empty(shape, dtype=dtype)


def torch_counts(model: nn.Module, example: torch.Tensor) -> tuple[int, int]:
    """Forward, and forward + backward."""
    with FlopCounterMode(display=False) as counter:
        model(example)
    forward = counter.get_total_flops()
    with counter:
        model(example).sum().backward()
    return forward, counter.get_total_flops()


def grouped_excess(traced: Trace) -> int:
    """Excess of torch's counter, which does not divide a weight gradient by the groups."""
    excess = 0
    for op in traced.ops:
        if op.kind == "convolution":
            data, weight = op.shapes.inputs
            groups = data[1] // weight[1]
            convolution = Trace((op,), parameters=0, batch=1)
            excess += (groups - 1) * count_trace(convolution, convention="matmul").forward
    return excess


@ALL
def test_forward_equals_torch(name: str) -> None:
    model, example = on_meta(name)
    counted = count_trace(trace(model, example), convention="matmul")
    assert counted.forward == torch_counts(model, example)[0] > 0
    assert not counted.unknown


@ALL
def test_forward_and_backward_equal_torch(name: str) -> None:
    model, example = on_meta(name)
    traced = trace(model, example)
    counted = count_trace(traced, convention="matmul")
    excess = grouped_excess(traced) if name in GROUPED else 0
    assert (excess > 0) == (name in GROUPED)
    assert counted.total == torch_counts(model, example)[1] - excess


@ALL
def test_the_rule_equals_the_traced_backward_graph(name: str) -> None:
    model, example = on_meta(name)
    rule = count_trace(trace(model, example), convention="matmul").backward
    exact = count_trace(trace_backward(model, example), convention="matmul")
    assert exact.forward == rule
    assert not exact.unknown


@ALL
@pytest.mark.filterwarnings("ignore")  # fvcore's torch.jit.trace warns of its own deprecation
def test_twice_fvcore(name: str) -> None:
    """fvcore counts multiply-adds as one, and omits fused attention and torch's LSTM."""
    from fvcore.nn import FlopCountAnalysis

    on_device, example = on_meta(name)
    model = on_device.to_empty(device="cpu")
    example = torch.zeros(example.shape, dtype=example.dtype)
    analysis = FlopCountAnalysis(model, example).unsupported_ops_warnings(False)
    operators = analysis.uncalled_modules_warnings(False).by_operator()
    fvcore = sum(operators[key] for key in ("conv", "linear", "matmul", "addmm", "bmm", "einsum"))
    counted = count_trace(trace(model, example), convention="matmul")
    omitted = {
        "vision_transformer": counted.by_kind.get("matmul"),
        "gpt": counted.by_kind.get("matmul"),
        "recurrent": counted.by_module.get("lstm"),
    }.get(name)
    assert counted.forward == 2 * fvcore + (omitted.forward if omitted else 0)
