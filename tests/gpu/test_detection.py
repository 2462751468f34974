"""The detector on a real accelerator: torchvision's kernels as reference, and no waiting."""

from __future__ import annotations

import copy

import pytest
import torch

from ai500.parallel.engines import Setting
from ai500.parallel.engines.data import DataParallel
from ai500.parallel.engines.mesh import make_mesh
from ai500.records import Parallelism
from ai500.train import precision
from ai500.train.precision.loss_scaling import LossScaling
from ai500.workloads.detection.faster_rcnn import SMALL, FasterRCNN
from ai500.workloads.detection.losses import TrainingOutputs, detection_loss
from ai500.workloads.detection.nms import nms_mask
from ai500.workloads.detection.roi_align import roi_align

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="NO GPU: the detector is untested on one"
    ),
]
DEVICE = torch.device("cuda", 0)


def _labels(frames: int) -> torch.Tensor:
    labels = torch.full((frames, 15, 5), -1.0, device=DEVICE)
    labels[::2, 0] = torch.tensor([20.0, 30, 50, 70, 1], device=DEVICE)
    return labels


def _boxes(rows: int, number: int) -> torch.Tensor:
    corner = torch.rand(rows, number, 2, device=DEVICE) * 80
    return torch.cat([corner, corner + 4 + torch.rand(rows, number, 2, device=DEVICE) * 40], dim=2)


def test_suppression_is_torchvisions() -> None:
    ops = pytest.importorskip("torchvision.ops", reason="NO TORCHVISION to compare with")
    torch.manual_seed(0)
    boxes = _boxes(20, 500)
    scores = torch.arange(500, 0, -1, device=DEVICE).float()
    kept = nms_mask(boxes, torch.ones(20, 500, dtype=torch.bool, device=DEVICE), threshold=0.7)
    for row, mask in zip(boxes, kept, strict=True):
        assert torch.equal(ops.nms(row, scores, 0.7).sort().values, mask.nonzero().flatten())


def test_roi_align_is_torchvisions() -> None:
    ops = pytest.importorskip("torchvision.ops", reason="NO TORCHVISION to compare with")
    torch.manual_seed(0)
    features = torch.randn(2, 8, 24, 36, device=DEVICE, requires_grad=True)
    boxes = _boxes(2, 50)
    result = roi_align([features], boxes, strides=(4,), first_size=1.0, bins=7)
    as_xy = [image[:, [1, 0, 3, 2]].contiguous() for image in boxes]
    expected = ops.roi_align(features, as_xy, 7, 1 / 4, 2, aligned=True)
    result = result.flatten(0, 1).transpose(1, 2).reshape_as(expected)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)
    weight = torch.randn_like(expected)
    fused, reference = (
        torch.autograd.grad(out, features, weight, retain_graph=True)[0]
        for out in (result, expected)
    )
    torch.testing.assert_close(fused, reference, atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_step_never_waits_for_the_gpu() -> None:
    torch.manual_seed(0)
    model = FasterRCNN(SMALL).to(DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    images, labels = torch.randn(4, 16, 96, 144, device=DEVICE), _labels(4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        detection_loss(model(images, labels)).backward()
        optimizer.step()

    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_gradient_of_roi_align_is_the_same_each_time(kind: torch.dtype) -> None:
    """To the bit, although many boxes read one cell: torchvision's adds in any order."""
    torch.manual_seed(0)
    features = torch.randn(2, 8, 24, 36, device=DEVICE, dtype=kind, requires_grad=True)
    pooled = roi_align([features], _boxes(2, 500), strides=(4,), first_size=1.0, bins=7)
    weight = torch.randn_like(pooled)
    first, *repeated = (
        torch.autograd.grad(pooled, features, weight, retain_graph=True)[0] for _ in range(5)
    )
    assert all(torch.equal(first, other) for other in repeated)


def test_it_trains_in_mixed_precision() -> None:
    torch.manual_seed(0)
    model = FasterRCNN(SMALL).to(DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        outputs = model(torch.randn(4, 16, 96, 144, device=DEVICE), _labels(4))
        assert isinstance(outputs, TrainingOutputs)
        loss = detection_loss(outputs)
    loss.backward()
    assert outputs.classifying.logits.dtype == torch.float32
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["fp32", "mixed-bf16", "mixed-fp16"])
def test_a_recorded_step_gives_the_gradients_of_a_single_one(name: str) -> None:
    """Both see the same random proposals: each step has its seed, replayed or not."""
    alone, numerics = Parallelism(mode="data"), precision.make(name, device=DEVICE)
    if numerics.loss_scaling is not None:
        numerics.loss_scaling = LossScaling(scale=64.0)  # which does not overflow
    torch.manual_seed(2)
    module = FasterRCNN(SMALL).to(DEVICE, memory_format=torch.channels_last)
    engines = [
        DataParallel(
            Setting(
                module=copy.deepcopy(module), loss=lambda outputs, _: detection_loss(outputs),
                parallel=alone, mesh=make_mesh(alone, device=DEVICE), plan=None,
                input_shape=(4, 16, 96, 144), device=DEVICE, numerics=numerics, collective=None,
                forward=lambda model, inputs, labels: model(inputs, labels), may_capture=records,
            )
        )
        for records in (True, False)
    ]  # fmt: skip
    images, labels = torch.randn(4, 16, 96, 144, device=DEVICE), _labels(4)
    for engine in engines:
        engine.warm_up(images, labels)
    assert [engine.describe().get("captured") for engine in engines] == [True, None]
    for seed in range(3):
        images = torch.randn(4, 16, 96, 144, device=DEVICE)
        losses, gradients = [], []
        for engine in engines:
            engine.module.zero_grad(set_to_none=True)
            torch.manual_seed(seed)
            losses.append(float(engine.forward_backward(images, labels)))
            parts = [
                parameter.grad.flatten()
                for parameter in engine.parameters()
                if parameter.grad is not None
            ]
            gradients.append(torch.cat(parts))
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)
        assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.999
