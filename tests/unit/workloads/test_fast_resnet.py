"""The fast ResNet's hand-written gradients against autograd's, in float64, on any machine."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ai500.parallel.engines import fast_path as quick
from ai500.workloads.kernels import plain
from ai500.workloads.models.fast_resnet import FastResNet, fast, why_not
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
    quick = fast(copy.deepcopy(ordinary), plain.Plain(), working=torch.float64)
    images = torch.randn(3, 3, height, width, dtype=torch.float64)
    labels = torch.tensor([0, 4, 2])
    for _ in range(2):
        losses = []
        for model in (ordinary, quick):
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            losses.append(loss)
        torch.testing.assert_close(losses[1], losses[0])
    theirs = dict(quick.named_parameters())
    for name, parameter in ordinary.named_parameters():
        torch.testing.assert_close(theirs[name].grad, parameter.grad, msg=lambda m, n=name: n + m)
    torch.testing.assert_close(dict(quick.named_buffers()), dict(ordinary.named_buffers()))


@pytest.mark.parametrize("height, width", [(32, 32), (37, 30)])
def test_evaluation_and_names_are_the_ordinary_ones(height: int, width: int) -> None:
    ordinary = _model()
    images = torch.randn(2, 3, height, width, dtype=torch.float64)
    ordinary(images)  # running statistics that are not those of the beginning
    quick = fast(copy.deepcopy(ordinary).eval(), plain.Plain(), working=torch.float64)
    before = copy.deepcopy(quick.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(quick(images), ordinary.eval()(images))
    torch.testing.assert_close(quick.state_dict(), before, rtol=0, atol=0)
    assert list(quick.state_dict()) == list(ordinary.state_dict())
    again = copy.deepcopy(quick)
    assert again(images).requires_grad  # torch's operators, where gradients may be wanted


def test_an_evaluation_runs_through_the_kernels_but_where_gradients_may_be_wanted() -> None:
    joins: list[bool] = []

    class Watched(plain.Plain):
        def linear_join(self, *arguments: Any) -> Any:
            joins.append(True)
            return super().linear_join(*arguments)

    quick = fast(_model().eval(), Watched(), working=torch.float64)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    quick(images)
    assert not joins
    with torch.no_grad():
        quick(images)
    assert len(joins) == 2 * 4  # the first and the last convolution of each block


def test_the_stem_is_the_7x7_convolution_of_stride_2() -> None:
    weight = torch.randn(4, 3, 7, 7, dtype=torch.float64)
    images = torch.randn(2, 3, 23, 18, dtype=torch.float64)
    rows, size = plain.Plain().space_to_depth(images, torch.float64)
    found = F.conv2d(plain.as_images(rows, size), plain.to_depth(weight))
    torch.testing.assert_close(found, F.conv2d(images, weight, stride=2, padding=3))
    back = plain.from_depth(plain.to_depth(weight), 3)
    torch.testing.assert_close(back, weight)


def test_other_models_have_none_and_say_why() -> None:
    assert "ImageNet stem" in why_not(small_resnet(classes=3))
    assert "v1.5" in why_not(_model("v1"))
    assert "v1.5" in why_not(ResNet(BasicBlock, (1,), width=8, classes=2))
    synchronized = nn.SyncBatchNorm.convert_sync_batchnorm(_model())
    assert "synchronized" in why_not(synchronized)
    with pytest.raises(ValueError, match="ImageNet stem"):
        fast(small_resnet(classes=3), plain.Plain(), working=torch.float32)


def test_autocast_does_not_reach_the_second_moments() -> None:
    """Rounded to BF16, variances that are differences would be off by percents."""
    found: list[torch.dtype] = []

    class Watched(plain.Plain):
        def linear(self, *arguments: Any) -> plain.Linear:
            made = super().linear(*arguments)
            found.extend((made.covariance.dtype, made.normal.scale.dtype))
            return made

    quick = fast(_model().float(), Watched(), working=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = quick(torch.randn(2, 3, 32, 32))
    assert set(found) == {torch.float32}
    assert logits.dtype == torch.bfloat16


def test_a_second_backward_pass_is_refused() -> None:
    quick = fast(_model(), plain.Plain(), working=torch.float64)
    loss = quick(torch.randn(2, 3, 32, 32, dtype=torch.float64)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass only"):
        loss.backward()


@pytest.mark.parametrize("name, working", quick.WORKING.items())
def test_mixed_precisions_have_the_fast_form(
    monkeypatch: pytest.MonkeyPatch, name: str, working: torch.dtype
) -> None:
    monkeypatch.setattr(quick, "available", lambda device: True)
    monkeypatch.setattr(quick, "_that_run", lambda device, tried: (plain.Plain(), str(tried)))
    model = _model()
    quick.quicken(model, precision=name, device=torch.device("cpu"))
    assert isinstance(model, FastResNet)
    assert model.working is working
    assert model.failed_kernels == str(working)
    assert quick.graphable(model, precision=name)
    assert not quick.graphable(_model(), precision=name)


def test_why_a_step_is_not_a_fast_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "available", lambda device: True)
    monkeypatch.setattr(quick, "_that_run", lambda *_: (None, "Fused(): no compiler"))
    model = _model()
    quick.quicken(model, precision="mixed-bf16", device=torch.device("cpu"))
    told = quick.told(model, recorded=False, not_recorded="out of memory")
    assert "no compiler" in str(told["kernels"])
    assert told["recorded"] == "no: out of memory"
    assert quick.told(_model(), recorded=False, not_recorded="") == {}
