"""Which boxes a step learns from, and the loss of what was predicted for them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ai500.workloads.detection.assignment import (
    Matches,
    match_anchors,
    match_proposals,
    sample_anchors,
    sample_proposals,
)
from ai500.workloads.detection.losses import StageOutputs, TrainingOutputs, detection_loss, losses

PADDING = [-1.0] * 5


def _flags(*numbers: int) -> Tensor:
    return torch.tensor([numbers], dtype=torch.bool)


def test_anchors_are_matched_as_published() -> None:
    labels = torch.tensor([[[0.0, 0, 10, 10, 2], PADDING, [50, 50, 60, 90, 1]]])
    anchors = torch.tensor(
        [
            [0.0, 0, 10, 10],  # the same: positive
            [0, 0, 10, 12],  # 10/12: above 0.7, positive
            [0, 0, 10, 20],  # 1/2: in between, neither
            [0, 5, 10, 25],  # 1/5: negative
            [50, 50, 60, 60],  # 1/4, but the best that the second event has: positive
            [200, 200, 210, 210],  # nothing: negative
        ]
    )
    matches = match_anchors(anchors, labels, above=0.7, below=0.3)
    assert torch.equal(matches.positive, _flags(1, 1, 0, 0, 1, 0))
    assert torch.equal(matches.negative, _flags(0, 0, 0, 1, 0, 1))
    assert matches.truth[0, [0, 1, 4]].tolist() == [0, 0, 2]


def test_a_frame_without_events_has_negatives_only() -> None:
    labels = torch.full((2, 3, 5), -1.0)
    anchors = torch.tensor([[0.0, 0, 10, 10], [-1, -1, -1, -1]])
    matches = match_anchors(anchors, labels, above=0.7, below=0.3)
    assert not matches.positive.any()
    assert matches.negative.all()


def test_proposals_are_matched_by_half() -> None:
    labels = torch.tensor([[[0.0, 0, 10, 10, 0], PADDING]])
    boxes = torch.tensor([[[0.0, 0, 10, 20], [0, 0, 10, 21], [0, 0, 10, 10]]])
    matches = match_proposals(boxes, _flags(1, 1, 0), labels, above=0.5)
    assert torch.equal(matches.positive, _flags(1, 0, 0))
    assert torch.equal(matches.negative, _flags(0, 1, 0))


def _matches(positives: int, negatives: int, of: int = 100) -> Matches:
    number = torch.arange(of)[None]
    positive = number < positives
    return Matches(number * 0, positive, (number < positives + negatives) & ~positive)


def _counted(sampled_index: Tensor, weight: Tensor, within: Tensor) -> int:
    chosen = sampled_index[weight > 0]
    assert len(chosen.unique()) == len(chosen), "a box was sampled twice"
    return int(within[0, chosen].sum())


def test_sampling_keeps_to_its_numbers() -> None:
    for sample in (sample_anchors, sample_proposals):
        for positives, negatives, expected in (
            (3, 97, (3, 13)),
            (60, 40, (8, 8)),
            (0, 100, (0, 16)),
            (60, 2, (8, 2)),
            (0, 0, (0, 0)),
            (5, 6, (5, 6)),
        ):
            matches = _matches(positives, negatives)
            sampled = sample(matches, sample_size=16, max_positives=8)
            positive = _counted(sampled.indices, sampled.weight, matches.positive)
            negative = _counted(sampled.indices, sampled.weight, matches.negative)
            assert (positive, negative) == expected
            really = matches.positive.gather(1, sampled.indices) & (sampled.weight > 0)
            assert torch.equal(sampled.positive & (sampled.weight > 0), really)


def test_sampling_is_random_and_repeats_with_its_seed() -> None:
    for sample in (sample_anchors, sample_proposals):
        drawn = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            drawn.append(sample(_matches(50, 50), sample_size=16, max_positives=8).indices)
        assert torch.equal(drawn[0], drawn[1])
        assert not torch.equal(drawn[0], drawn[2])


def test_every_box_is_as_likely() -> None:
    torch.manual_seed(0)
    times = torch.zeros(40)
    matches = Matches(*(part.expand(4000, -1) for part in _matches(20, 20, of=40)))
    for sample in (sample_anchors, sample_proposals):
        times.zero_()
        sampled = sample(matches, sample_size=10, max_positives=5)
        times.scatter_add_(0, sampled.indices.flatten(), sampled.weight.flatten())
        # 5 of 20 each; six standard deviations of a binomial around a quarter.
        spread = 6 * math.sqrt(4000 * 0.25 * 0.75)
        assert (times - 1000).abs().max() < spread


def _stage(*, images: int, classes: int | None) -> StageOutputs:
    generator = torch.Generator().manual_seed(images)
    shape = (images, 6) if classes is None else (images, 6, 1 + classes)
    return StageOutputs(
        logits=torch.randn(shape, generator=generator),
        offsets=torch.randn(images, 6, 4, generator=generator),
        target=torch.randint(1 + (classes or 1), (images, 6), generator=generator),
        target_offsets=torch.randn(images, 6, 4, generator=generator),
        weight=(torch.rand(images, 6, generator=generator) < 0.7).float(),
    )


def test_losses_by_hand() -> None:
    proposing = StageOutputs(
        logits=torch.tensor([[0.0, 2.0, 9.0]]),
        offsets=torch.tensor([[[1.0, 0, 0, 0.1], [9, 9, 9, 9], [0, 0, 0, 0]]]),
        # The third place is empty and holds nonsense; it must not show.
        target=torch.tensor([[True, False, False]]),
        target_offsets=torch.tensor([[[0.0] * 4, [0.0] * 4, [math.inf] * 4]]),
        weight=torch.tensor([[1.0, 1.0, 0.0]]),
    )
    classifying = StageOutputs(
        logits=torch.tensor([[[0.0, 0.0, 0.0], [math.log(2), 0, 0]]]),
        offsets=torch.tensor([[[0.0, 0, 0, 0], [0, 3, 0, 0]]]),
        target=torch.tensor([[0, 2]]),
        target_offsets=torch.zeros(1, 2, 4),
        weight=torch.ones(1, 2),
    )
    terms = losses(TrainingOutputs(proposing, classifying))
    softplus = math.log(1 + math.exp(2))
    torch.testing.assert_close(terms.objectness, torch.tensor((math.log(2) + softplus) / 2))
    # |1| − 1/18, and 0.1² / (2/9), over two sampled places
    expected = (1 - 1 / 18 + 0.01 * 4.5) / 2
    torch.testing.assert_close(terms.proposal_offsets, torch.tensor(expected))
    torch.testing.assert_close(terms.classification, torch.tensor((math.log(3) + math.log(4)) / 2))
    torch.testing.assert_close(terms.box_offsets, torch.tensor((3 - 1 / 18) / 2))


def test_a_batchs_loss_is_the_mean_of_its_images() -> None:
    outputs = TrainingOutputs(_stage(images=4, classes=None), _stage(images=4, classes=3))
    parts = [
        TrainingOutputs(
            *(StageOutputs(*(field[image : image + 1] for field in stage)) for stage in outputs)
        )
        for image in range(4)
    ]
    torch.testing.assert_close(
        detection_loss(outputs), torch.stack([detection_loss(part) for part in parts]).mean()
    )
