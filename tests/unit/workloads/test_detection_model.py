"""The detector as a whole: shapes that never depend on values, its count, and that it learns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from ai500.cli import app
from ai500.operations import count
from ai500.workloads.detection.faster_rcnn import RESNET50_FPN, SMALL, FasterRCNN
from ai500.workloads.detection.losses import TrainingOutputs, detection_loss
from ai500.workloads.detection.mean_average_precision import mean_average_precision

TINY = dataclasses.replace(
    SMALL,
    channels=2,
    classes=2,
    width=8,
    pyramid_channels=16,
    hidden=64,
    candidates=64,
    proposals=64,
    sampled=32,
    scored=64,
    detections=20,
)
HEIGHT, WIDTH = 64, 96


def _shapes(frames: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Noise with up to three bright boxes: squarish ones in channel 0, long ones in channel 1."""
    draw = np.random.default_rng(seed)
    images = draw.normal(0, 0.3, (frames, 2, HEIGHT, WIDTH)).astype(np.float32)
    labels = np.full((frames, 15, 5), -1.0, dtype=np.float32)
    for frame in range(frames):
        for row in range(draw.integers(0, 4)):
            kind = int(draw.integers(2))
            high, wide = draw.integers(10, 22, 2) if kind == 0 else draw.integers((8, 24), (14, 40))
            top, left = draw.integers(HEIGHT - high), draw.integers(WIDTH - wide)
            images[frame, kind, top : top + high, left : left + wide] += 1.5
            labels[frame, row] = (top, left, top + high, left + wide, kind)
    return torch.from_numpy(images), torch.from_numpy(labels)


def _trained(model: FasterRCNN, images: Tensor, labels: Tensor) -> TrainingOutputs:
    outputs = model.train()(images, labels)
    assert isinstance(outputs, TrainingOutputs)
    return outputs


def _predicted(model: FasterRCNN, images: Tensor) -> Tensor:
    with torch.no_grad():
        detections = model.eval()(images)
    assert isinstance(detections, Tensor)
    return detections


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small kernels of two threads that share cores with other processes wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model() -> FasterRCNN:
    torch.manual_seed(0)
    return FasterRCNN(TINY)


def test_a_design_with_too_few_candidates_is_refused() -> None:
    with pytest.raises(ValueError, match="20 exceeds 16 scored pairs"):
        dataclasses.replace(TINY, proposals=8)


def test_shapes_of_training(model: FasterRCNN) -> None:
    outputs = _trained(model, *_shapes(3, seed=0))
    assert outputs.proposing.logits.shape == (3, 384)
    assert outputs.classifying.logits.shape == (3, TINY.sampled, 3)
    assert (outputs.proposing.weight.sum(dim=1) == 256).all()
    assert outputs.classifying.weight.sum(dim=1).max() <= TINY.sampled


def test_true_boxes_are_among_the_sampled(model: FasterRCNN) -> None:
    images, labels = _shapes(8, seed=0)
    target = _trained(model, images, labels).classifying.target
    for frame in range(8):
        true = set(labels[frame, labels[frame, :, 4] >= 0, 4].long().tolist())
        assert set((target[frame][target[frame] > 0] - 1).tolist()) == true


def test_every_parameter_learns(model: FasterRCNN) -> None:
    images, labels = _shapes(4, seed=0)
    assert (labels[..., 4] >= 0).any()
    detection_loss(_trained(model, images, labels)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_frames_without_events_train(model: FasterRCNN) -> None:
    images, labels = _shapes(2, seed=0)
    outputs = _trained(model, images, torch.full_like(labels, -1.0))
    loss = detection_loss(outputs)
    loss.backward()
    assert loss.isfinite()
    assert not outputs.classifying.target.any()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())  # type: ignore[union-attr]


def test_a_diverged_model_runs_on_to_its_message(model: FasterRCNN) -> None:
    """The loop says that training diverged: neither stage may fail before it can."""
    images, labels = _shapes(2, seed=5)
    with torch.no_grad():
        for parameter in model.proposing.parameters():
            parameter.fill_(torch.nan)
    assert not detection_loss(_trained(model, images, labels)).isfinite()
    assert (_predicted(model, images) == -1).all()


def test_a_seed_gives_the_same_step(model: FasterRCNN) -> None:
    images, labels = _shapes(4, seed=0)
    losses = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        losses.append(detection_loss(_trained(model, images, labels)))
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_detections_are_sorted_inside_and_padded(model: FasterRCNN) -> None:
    detections = _predicted(model, _shapes(3, seed=0)[0])
    assert detections.shape == (3, TINY.detections, 6)
    valid = detections[..., 4] > 0
    assert (detections[~valid] == -1).all()
    boxes = detections[valid]
    assert (boxes[:, :2] >= 0).all() and (boxes[:, :2] < boxes[:, 2:4]).all()
    assert (boxes[:, 2] <= HEIGHT).all() and (boxes[:, 3] <= WIDTH).all()
    assert (detections[:, :-1, 4] >= detections[:, 1:, 4]).all()
    assert set(boxes[:, 5].tolist()) <= {0.0, 1.0}


def test_an_images_detections_do_not_depend_on_its_batch(model: FasterRCNN) -> None:
    images, _ = _shapes(3, seed=0)
    alone = torch.cat([_predicted(model, image[None]) for image in images])
    torch.testing.assert_close(_predicted(model, images), alone, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("height, width", [(64, 96), (50, 70)])
def test_nothing_is_read_back(model: FasterRCNN, height: int, width: int) -> None:
    """Fake tensors have no values: a size or a branch that needed one would raise."""
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        images = torch.empty(2, 2, height, width)
        labels = torch.empty(2, 15, 5)
        state = {
            name: fake.from_tensor(value)
            for name, value in (*model.named_parameters(), *model.named_buffers())
        }
        model.train()
        outputs = torch.func.functional_call(model, state, (images, labels))
        detection_loss(outputs).backward()
        model.eval()
        detections = torch.func.functional_call(model, state, (images,))
    assert detections.shape == (2, TINY.detections, 6)


def test_it_is_counted_as_torch_counts_it(model: FasterRCNN) -> None:
    """A traced pass without labels has the shapes of a training step with them."""
    images, labels = _shapes(2, seed=0)
    counted = count(model.train(), (2, 2, HEIGHT, WIDTH), convention="matmul")
    with FlopCounterMode(display=False) as forward:
        outputs = _trained(model, images, labels)
    assert counted.forward == forward.get_total_flops()
    loss = detection_loss(outputs)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    assert counted.backward == backward.get_total_flops()
    assert not counted.unknown


def test_the_full_model_beside_v2_table_6() -> None:
    """V2: 41 M parameters. Its 691 GFLOP an image are a profiler's, of a model not published."""
    with torch.device("meta"):
        full = FasterRCNN(RESNET50_FPN)
    counted = count(full, (1, 16, 768, 1152), convention="matmul")
    assert counted.parameters == 41_404_324
    assert round(counted.parameters / 1e6) == 41
    # P2 to P6 of 768×1152 have 73 656 cells; the head's 3×3 convolution alone is this:
    cells = 73_656
    rpn = counted.by_module["proposing.shared"].forward
    assert rpn == 2 * 9 * 256 * 256 * cells
    assert counted.by_module["head.first"].forward == 2 * 512 * (256 * 49) * 1024


def test_flops_prints_both() -> None:
    printed = CliRunner().invoke(app, ["flops", "faster-rcnn", "--convention", "matmul"]).stdout
    assert "1.07 T per sample" in printed
    assert "by a profiler: 691 G per sample" in printed


@pytest.mark.slow
def test_it_learns() -> None:
    """A hundred steps on bright boxes: far above anything untrained weights reach."""
    torch.manual_seed(0)
    model = FasterRCNN(TINY).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images, labels = _shapes(256, seed=1)
    new_images, new_labels = _shapes(64, seed=2)

    def quality() -> float:
        detections = _predicted(model, new_images).numpy()
        return mean_average_precision(detections, new_labels.numpy(), classes=2)

    untrained = quality()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    steps = 100
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.1 * min(1, (step + 1) / 20) * (1 - step / steps)
        chosen = torch.randint(256, (16,))
        loss = detection_loss(_trained(model, images[chosen], labels[chosen]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert untrained < 0.02
    assert quality() > 0.3
