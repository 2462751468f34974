"""The fast ResNet's hand-written gradients against autograd's, in float64, on any machine."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ai500.parallel.cuda_graph import gradients_capturable
from ai500.parallel.engines import Setting
from ai500.parallel.engines.data import DataParallel
from ai500.parallel.engines.mesh import make_mesh
from ai500.records import Parallelism
from ai500.train import precision
from ai500.workloads.image_classification import WORKLOAD
from ai500.workloads.kernels import reference
from ai500.workloads.kernels.reference import ReferenceKernels
from ai500.workloads.models import optimized_resnet
from ai500.workloads.models.fast_resnet import FastResNet, make_fast, unsupported_reason
from ai500.workloads.models.resnet import BasicBlock, Bottleneck, ResNet, small_resnet


def _model(version: str = "v1.5") -> ResNet:
    torch.manual_seed(3)
    model = ResNet(Bottleneck, (2, 2), width=8, classes=5, version=version)  # type: ignore[arg-type]
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    return model.double().to(memory_format=torch.channels_last)


@pytest.mark.parametrize("height, width", [(32, 32), (37, 30)])
def test_loss_gradients_and_running_statistics_are_the_ordinary_ones(
    height: int, width: int
) -> None:
    ordinary = _model()
    fast_model = make_fast(copy.deepcopy(ordinary), ReferenceKernels(), compute_dtype=torch.float64)
    images = torch.randn(3, 3, height, width, dtype=torch.float64)
    labels = torch.tensor([0, 4, 2])
    for _ in range(2):
        losses = []
        for model in (ordinary, fast_model):
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            losses.append(loss)
        torch.testing.assert_close(losses[1], losses[0])
    fast_parameters = dict(fast_model.named_parameters())
    for name, parameter in ordinary.named_parameters():
        torch.testing.assert_close(
            fast_parameters[name].grad, parameter.grad, msg=lambda m, n=name: n + m
        )
    torch.testing.assert_close(dict(fast_model.named_buffers()), dict(ordinary.named_buffers()))


@pytest.mark.parametrize("height, width", [(32, 32), (37, 30)])
def test_evaluation_and_names_are_the_ordinary_ones(height: int, width: int) -> None:
    ordinary = _model()
    images = torch.randn(2, 3, height, width, dtype=torch.float64)
    ordinary(images)  # running statistics that are not those of the beginning
    fast_model = make_fast(
        copy.deepcopy(ordinary).eval(), ReferenceKernels(), compute_dtype=torch.float64
    )
    before = copy.deepcopy(fast_model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(fast_model(images), ordinary.eval()(images))
    torch.testing.assert_close(fast_model.state_dict(), before, rtol=0, atol=0)
    assert list(fast_model.state_dict()) == list(ordinary.state_dict())
    again = copy.deepcopy(fast_model)
    assert again(images).requires_grad  # torch's operators, where gradients may be wanted


def test_an_evaluation_runs_through_the_kernels_but_where_gradients_may_be_wanted() -> None:
    joins: list[bool] = []

    class Watched(ReferenceKernels):
        def pointwise_add_relu(self, *arguments: Any) -> Any:
            joins.append(True)
            return super().pointwise_add_relu(*arguments)

    fast_model = make_fast(_model().eval(), Watched(), compute_dtype=torch.float64)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    fast_model(images)
    assert not joins
    with torch.no_grad():
        fast_model(images)
    assert len(joins) == 2 * 4  # the first and the last convolution of each block


def test_the_stem_is_the_7x7_convolution_of_stride_2() -> None:
    weight = torch.randn(4, 3, 7, 7, dtype=torch.float64)
    images = torch.randn(2, 3, 23, 18, dtype=torch.float64)
    rows, size = ReferenceKernels().space_to_depth(images, torch.float64)
    output = F.conv2d(reference.as_images(rows, size), reference.weight_to_depth(weight))
    torch.testing.assert_close(output, F.conv2d(images, weight, stride=2, padding=3))
    back = reference.weight_gradient_from_depth(reference.weight_to_depth(weight), 3)
    torch.testing.assert_close(back, weight)


def test_other_models_have_none_and_say_why() -> None:
    assert "ImageNet stem" in unsupported_reason(small_resnet(classes=3))
    assert "v1.5" in unsupported_reason(_model("v1"))
    assert "v1.5" in unsupported_reason(ResNet(BasicBlock, (1,), width=8, classes=2))
    synchronized = nn.SyncBatchNorm.convert_sync_batchnorm(_model())
    assert "synchronized" in unsupported_reason(synchronized)
    with pytest.raises(ValueError, match="ImageNet stem"):
        make_fast(small_resnet(classes=3), ReferenceKernels(), compute_dtype=torch.float32)


def test_autocast_does_not_reach_the_second_moments() -> None:
    """Rounded to BF16, variances that are differences would be off by percents."""
    dtypes: list[torch.dtype] = []

    class Watched(ReferenceKernels):
        def pointwise_norm(self, *arguments: Any) -> reference.PointwiseConv:
            conv = super().pointwise_norm(*arguments)
            dtypes.extend((conv.covariance.dtype, conv.norm.scale.dtype))
            return conv

    fast_model = make_fast(_model().float(), Watched(), compute_dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = fast_model(torch.randn(2, 3, 32, 32))
    assert set(dtypes) == {torch.float32}
    assert logits.dtype == torch.bfloat16


def test_a_second_backward_pass_is_refused() -> None:
    fast_model = make_fast(_model(), ReferenceKernels(), compute_dtype=torch.float64)
    loss = fast_model(torch.randn(2, 3, 32, 32, dtype=torch.float64)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass only"):
        loss.backward()


@pytest.mark.parametrize("name, dtype", optimized_resnet.COMPUTE_DTYPES.items())
def test_mixed_precisions_have_the_fast_form(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(optimized_resnet, "available", lambda device: True)
    monkeypatch.setattr(
        optimized_resnet, "usable_kernels", lambda device, tried: (ReferenceKernels(), str(tried))
    )
    model = _model()
    optimized = WORKLOAD.optimized(model, precision=name, device=torch.device("cpu"))
    assert optimized is not None
    assert optimized.model is model
    assert isinstance(model, FastResNet)
    assert model.compute_dtype is dtype
    assert optimized.kernels == f"fused (Triton): {model.kernels}; failed here: {dtype}"
    assert gradients_capturable(model, precision=name)
    assert not gradients_capturable(_model(), precision=name)


def test_the_record_says_why_kernels_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimized_resnet, "available", lambda device: True)
    errors = "FusedKernels(): no compiler"
    monkeypatch.setattr(optimized_resnet, "usable_kernels", lambda *_: (None, errors))
    device, alone = torch.device("cpu"), Parallelism(mode="data")
    engine = DataParallel(
        Setting(
            module=_model(), loss=F.cross_entropy, parallel=alone,
            mesh=make_mesh(alone, device=device), plan=None, input_shape=(4, 3, 32, 32),
            device=device, numerics=precision.make("mixed-bf16", device=device), collective=None,
            optimized=WORKLOAD.optimized,
        )
    )  # fmt: skip
    assert type(engine.module) is ResNet
    assert engine.describe()["kernels"] == f"torch's; failed here: {errors}"
