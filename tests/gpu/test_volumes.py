"""The fused kernels for volumes against torch's own operators."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, max_pool3d

from ai500.workloads import volume_kernels
from ai500.workloads.cosmology import CLASSES, WORKLOAD
from ai500.workloads.models.cosmoflow import CosmoFlow, cosmoflow
from ai500.workloads.volume_inputs import contrasts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: not tested here"),
]
DEVICE = torch.device("cuda", 0)


@pytest.mark.parametrize("edge", [8, 32, 48])
def test_mirroring_in_one_pass_equals_flips(edge: int) -> None:
    torch.manual_seed(edge)
    volumes = torch.randint(-32_768, 32_767, (9, 4, edge, edge, edge), dtype=torch.int16).to(DEVICE)
    draws = torch.rand(9, 3, device=DEVICE)
    draws[0], draws[1] = 0.0, 0.5
    assert volume_kernels.supports_mirroring(volumes)
    fields = {"volumes": volumes, "parameters": torch.rand(9, 4, device=DEVICE)}
    inputs, _ = WORKLOAD.train_inputs(CLASSES["smoke"], fields, draws)
    for sample in range(9):
        axes = [1 + axis for axis in range(3) if draws[sample, axis] >= 0.5]
        expected = contrasts(volumes[sample : sample + 1])[0].flip(axes)
        assert torch.equal(inputs[sample], expected)
    assert inputs.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(2, 3, 4, 6, 8), (3, 32, 16, 16, 16)])
def test_pooling_equals_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    # Few distinct values: many ties, of which torch takes the first.
    x = torch.randint(-4, 5, shape, device=DEVICE).to(dtype).requires_grad_()
    bias = torch.randint(-2, 3, shape[1:2], device=DEVICE).to(dtype).requires_grad_()
    own = volume_kernels.pool(x, bias, slope=0.25)
    reference = max_pool3d(leaky_relu(x + bias.view(-1, 1, 1, 1), 0.25), 2)
    assert torch.equal(own, reference)
    weights = torch.randint(-3, 4, own.shape, device=DEVICE).to(dtype)
    for gradient, expected in zip(
        _gradients(own, weights, x, bias), _gradients(reference, weights, x, bias), strict=True
    ):
        torch.testing.assert_close(
            gradient, expected, rtol=1e-2 if dtype != torch.float32 else 0, atol=0
        )


def _gradients(outputs: Tensor, weights: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad((outputs * weights).float().sum(), leaves)


def test_a_nan_survives_pooling() -> None:
    x = torch.zeros(1, 4, 4, 4, 4, device=DEVICE)
    x[0, 1, 2, 1, 3] = torch.nan
    pooled = volume_kernels.pool(x, torch.zeros(4, device=DEVICE), slope=0.3)
    assert int(pooled.isnan().sum()) == 1
    assert bool(pooled[0, 1, 1, 0, 1].isnan())


def test_the_fused_model_computes_the_same_gradients() -> None:
    torch.manual_seed(3)
    plain = cosmoflow((4, 32, 32, 32), width=32).to(DEVICE)
    fused: CosmoFlow = copy.deepcopy(plain)
    assert WORKLOAD.optimized(fused, precision="fp32", device=DEVICE) is not None
    volumes = torch.randn(4, 4, 32, 32, 32, device=DEVICE)
    volumes = volumes.contiguous(memory_format=torch.channels_last_3d)
    for model in (plain, fused):
        model(volumes).square().sum().backward()
    for own, reference in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, reference.grad, rtol=1e-4, atol=1e-5)
