"""Parts of the detector against cases worked out by hand and against slow loops."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from ai500.workloads.detection.anchors import level_anchors
from ai500.workloads.detection.boxes import clip_boxes, decode_boxes, encode_boxes, pairwise_iou
from ai500.workloads.detection.nms import ROUNDS, nms_mask
from ai500.workloads.detection.roi_align import pyramid_level, roi_align


def _boxes(number: int, *, side: float = 60.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(number, 2, generator=generator) * side
    size = 1 + torch.rand(number, 2, generator=generator) * side / 2
    return torch.cat([corner, corner + size], dim=1)


def test_iou_by_hand() -> None:
    first = torch.tensor([[0.0, 0, 2, 2], [5, 5, 5, 5]])
    second = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3], [0, 2, 2, 4], [5, 5, 5, 5]])
    expected = torch.tensor([[1, 1 / 7, 0, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(pairwise_iou(first, second), expected)


def test_iou_of_a_batch_is_that_of_its_rows() -> None:
    first, second = _boxes(12).view(3, 4, 4), _boxes(15, seed=1).view(3, 5, 4)
    rows = torch.stack([pairwise_iou(a, b) for a, b in zip(first, second, strict=True)])
    torch.testing.assert_close(pairwise_iou(first, second), rows)


def test_offsets_by_hand() -> None:
    reference = torch.tensor([[0.0, 0, 10, 20]])
    box = torch.tensor([[5.0, 10, 15, 50]])
    offsets = encode_boxes(box, reference, gain=(10.0, 5.0))
    torch.testing.assert_close(offsets, torch.tensor([[5.0, 10, 0, 5 * math.log(2)]]))
    torch.testing.assert_close(decode_boxes(offsets, reference, gain=(10.0, 5.0)), box)


def test_decoding_turns_encoding_round() -> None:
    boxes, references = _boxes(200), _boxes(200, seed=1)
    offsets = encode_boxes(boxes, references, gain=(1.0, 1.0))
    torch.testing.assert_close(
        decode_boxes(offsets, references, gain=(1.0, 1.0)), boxes, atol=1e-3, rtol=1e-4
    )


def test_a_huge_offset_stays_finite() -> None:
    huge = torch.full((1, 4), 1e4)
    assert decode_boxes(huge, torch.tensor([[0.0, 0, 8, 8]]), gain=(1.0, 1.0)).isfinite().all()


def test_clipping_knows_height_from_width() -> None:
    boxes = torch.tensor([[-5.0, -6, 700, 900], [10, 20, 30, 40]])
    expected = torch.tensor([[0.0, 0, 100, 200], [10, 20, 30, 40]])
    torch.testing.assert_close(clip_boxes(boxes, height=100, width=200), expected)


def test_anchors_by_hand() -> None:
    device = torch.device("cpu")
    anchors = level_anchors(2, 3, stride=8, size=16.0, ratios=(0.25, 1.0), device=device)
    assert anchors.shape == (12, 4)
    # The first cell's middle is (4, 4); a ratio of 1/4 is 8 high and 32 wide.
    torch.testing.assert_close(anchors[0], torch.tensor([0.0, -12, 8, 20]))
    torch.testing.assert_close(anchors[1], torch.tensor([-4.0, -4, 12, 12]))
    # Columns run fastest: the last cell is row 1, column 2.
    torch.testing.assert_close(anchors[-1], torch.tensor([4.0, 12, 20, 28]))


def _greedy(boxes: Tensor, eligible: Tensor, *, threshold: float, classes: Tensor) -> list[bool]:
    """Suppress by definition: best first, drop a box that overlaps a kept one of its class."""
    overlaps = pairwise_iou(boxes, boxes)
    kept: list[int] = []
    for box in range(len(boxes)):
        clash = [classes[box] == classes[k] and overlaps[box, k] > threshold for k in kept]
        if eligible[box] and not any(clash):
            kept.append(box)
    return [box in kept for box in range(len(boxes))]


@given(
    number=st.integers(1, 40),
    seed=st.integers(0, 10**6),
    threshold=st.floats(0.05, 0.9),
    side=st.floats(2, 100),
)
@settings(max_examples=150)
def test_suppression_is_greedy(number: int, seed: int, threshold: float, side: float) -> None:
    boxes = _boxes(2 * number, side=side, seed=seed).view(2, number, 4)
    generator = torch.Generator().manual_seed(seed)
    eligible = torch.rand(2, number, generator=generator) < 0.9
    classes = torch.randint(2, (2, number), generator=generator)
    kept = nms_mask(boxes, eligible, threshold=threshold, classes=classes, rounds=number)
    for row in range(2):
        expected = _greedy(boxes[row], eligible[row], threshold=threshold, classes=classes[row])
        assert kept[row].tolist() == expected


def test_suppression_of_a_chain() -> None:
    """Each box overlaps only the next: every other one stays, at any length of the chain."""
    at = torch.arange(101.0)
    chain = torch.stack([at * 0, at, at * 0 + 1, at + 2], dim=1)[None]
    eligible = torch.ones(1, 101, dtype=torch.bool)
    expected = (torch.arange(101) % 2 == 0)[None]
    assert torch.equal(nms_mask(chain, eligible, threshold=0.3, rounds=101), expected)
    # Too few rounds for the chain: right as far as decided, and nothing kept that should not be.
    kept = nms_mask(chain, eligible, threshold=0.3)
    assert torch.equal(kept[:, :ROUNDS], expected[:, :ROUNDS])
    assert not (kept & ~expected).any()
    assert not kept[0, -1]


def test_level_by_size() -> None:
    sides = torch.tensor([10.0, 111, 112, 223, 224, 448, 900, 5000])
    boxes = torch.stack([sides * 0, sides * 0, sides, sides], dim=1)
    # Lin et al. Eq. 1 with k₀ = 4 for 224 pixels, counted from P2.
    expected = [max(0, min(3, math.floor(4 + math.log2(side / 224)) - 2)) for side in sides]
    assert pyramid_level(boxes, levels=4, first_size=56.0).tolist() == expected


def _interpolated(features: Tensor, y: float, x: float) -> Tensor:
    """Interpolate between cell centres; 0 more than a cell outside."""
    height, width = features.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(features.shape[0])
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, along = y - top, x - left
    upper = features[:, top, left] * (1 - along) + features[:, top, right] * along
    lower = features[:, bottom, left] * (1 - along) + features[:, bottom, right] * along
    return upper * (1 - down) + lower * down


def _slow_roi_align(features: Tensor, box: list[float], *, stride: int, bins: int) -> Tensor:
    """Average 2×2 points in every bin; features [C, H, W] to [bins², C]."""
    top, left, bottom, right = (side / stride - 0.5 for side in box)
    tall, wide = (bottom - top) / bins, (right - left) / bins
    rows = []
    for row in range(bins):
        for column in range(bins):
            points = [
                _interpolated(features, top + (row + i) * tall, left + (column + j) * wide)
                for i in (0.25, 0.75)
                for j in (0.25, 0.75)
            ]
            rows.append(torch.stack(points).mean(dim=0))
    return torch.stack(rows)


def test_roi_align_is_the_slow_loop() -> None:
    generator = torch.Generator().manual_seed(3)
    pyramid = [
        torch.randn(2, 3, 24 // 2**level, 32 // 2**level, generator=generator) for level in range(3)
    ]
    inside = _boxes(14, side=80, seed=4)
    outside = torch.tensor([[-30.0, -40, 10, 12], [80, 100, 160, 200], [200, 300, 240, 330]])
    boxes = torch.cat([inside, outside, torch.zeros(1, 4)]).view(2, -1, 4)
    strides, first_size = (4, 8, 16), 20.0
    pooled = roi_align(pyramid, boxes, strides=strides, first_size=first_size, bins=3)
    assert pooled.shape == (2, 9, 9, 3)
    level = pyramid_level(boxes, levels=3, first_size=first_size)
    assert set(level.flatten().tolist()) == {0, 1, 2}
    for image in range(2):
        for region in range(9):
            at = int(level[image, region])
            slow = _slow_roi_align(
                pyramid[at][image], boxes[image, region].tolist(), stride=strides[at], bins=3
            )
            torch.testing.assert_close(pooled[image, region], slow, atol=1e-5, rtol=1e-5)


def test_roi_align_of_a_ramp_by_hand() -> None:
    """On a linear field the mean of a bin is the field at the bin's middle."""
    y = (torch.arange(16.0) + 0.5).view(1, 1, 16, 1).expand(1, 1, 16, 16) * 4
    pooled = roi_align(
        [y], torch.tensor([[[8.0, 8, 40, 40]]]), strides=(4,), first_size=1.0, bins=2
    )
    torch.testing.assert_close(pooled.flatten(), torch.tensor([16.0, 16, 32, 32]))


@pytest.mark.parametrize("bins", [1, 2])
def test_gradient_of_roi_align(bins: int) -> None:
    pyramid = [torch.randn(1, 2, 6, 6, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    boxes = torch.tensor([[[2.0, 3, 17, 20], [1, 1, 40, 40]]])

    def pooled(*levels: Tensor) -> Tensor:
        return roi_align(levels, boxes, strides=(4, 8), first_size=12.0, bins=bins)

    assert torch.autograd.gradcheck(pooled, tuple(pyramid))
