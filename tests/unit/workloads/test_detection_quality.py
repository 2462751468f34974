"""mAP against hand-computed cases and against pycocotools; fusion of members' boxes."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from ai500.core.errors import DataError
from ai500.workloads.detection.fusion import weighted_boxes_fusion
from ai500.workloads.detection.mean_average_precision import (
    RECALLS,
    mean_average_precision,
    precision_recall,
)
from ai500.workloads.member_predictions import ArrayPredictions

Floats = NDArray[np.float64]
FIRST, SECOND, FAR = (0, 0, 10, 10), (20, 20, 40, 60), (90, 90, 99, 99)


def _labels(*frames: list[tuple[tuple[int, ...], int]]) -> Floats:
    labels = np.full((len(frames), 4, 5), -1.0)
    for frame, rows in enumerate(frames):
        for row, (box, kind) in enumerate(rows):
            labels[frame, row] = (*box, kind)
    return labels


def _detections(*frames: list[tuple[tuple[float, ...], float, int]]) -> Floats:
    detections = np.full((len(frames), 5, 6), -1.0)
    for frame, rows in enumerate(frames):
        for row, (box, score, kind) in enumerate(rows):
            detections[frame, row] = (*box, score, kind)
    return detections


def test_all_found_is_one_and_nothing_found_is_zero() -> None:
    labels = _labels([(FIRST, 0), (SECOND, 1)], [])
    everything = _detections([(FIRST, 0.9, 0), (SECOND, 0.4, 1)], [])
    assert mean_average_precision(everything, labels, classes=4) == 1.0
    assert mean_average_precision(_detections([], []), labels, classes=4) == 0.0


def test_half_found_by_hand() -> None:
    """Two right and one wrong of three events: precision 1, then 2/3, then never."""
    labels = _labels([(FIRST, 0), (SECOND, 0)], [(FIRST, 0)])
    detections = _detections([(FIRST, 0.9, 0), (FAR, 0.8, 0), (SECOND, 0.7, 0)], [])
    (curve,) = precision_recall(detections, labels, classes=1)
    assert curve is not None
    third, two_thirds = int(np.sum(RECALLS <= 1 / 3)), int(np.sum(RECALLS <= 2 / 3))
    expected = (third + (two_thirds - third) * 2 / 3) / 101
    assert curve.average_precision == pytest.approx(expected, abs=1e-12)
    assert curve.events == 3


def test_a_second_box_on_one_event_is_wrong() -> None:
    labels = _labels([(FIRST, 0)])
    once_first = _detections([(FIRST, 0.9, 0), (FIRST, 0.8, 0)])
    assert mean_average_precision(once_first, labels, classes=1) == 1.0
    other_first = _detections([(FAR, 0.95, 0), (FIRST, 0.9, 0)])
    assert mean_average_precision(other_first, labels, classes=1) == 0.5


def test_the_wrong_class_and_too_little_overlap_are_wrong() -> None:
    labels = _labels([(FIRST, 0)])
    assert mean_average_precision(_detections([(FIRST, 0.9, 1)]), labels, classes=2) == 0.0
    exactly_half = _detections([((0, 0, 10, 20), 0.9, 0)])
    assert mean_average_precision(exactly_half, labels, classes=2) == 1.0
    less = _detections([((0, 0, 10, 20.1), 0.9, 0)])
    assert mean_average_precision(less, labels, classes=2) == 0.0


def test_classes_without_events_do_not_count() -> None:
    labels = _labels([(FIRST, 2)])
    detections = _detections([(FIRST, 0.5, 2), (SECOND, 0.9, 1)])
    assert mean_average_precision(detections, labels, classes=4) == 1.0
    assert [curve is None for curve in precision_recall(detections, labels, classes=4)] == [
        *(True, True, False, True)
    ]


def test_no_event_at_all_is_an_error() -> None:
    with pytest.raises(DataError) as raised:
        mean_average_precision(_detections([], []), _labels([], []), classes=4)
    assert (raised.value.key, raised.value.value) == ("labels", 2)


def _coco_precision(detections: Floats, labels: Floats, *, classes: int) -> Floats:
    """Return precision at IoU 0.5, [101, classes], by pycocotools; −1: no event."""
    annotations, results = [], []
    for image in range(len(labels)):
        for box in labels[image][labels[image, :, 4] >= 0]:
            number = len(annotations) + 1
            annotations.append(_coco_box(image, box, box[4]) | {"id": number, "iscrowd": 0})
        for box in detections[image][detections[image, :, 5] >= 0]:
            results.append(_coco_box(image, box, box[5]) | {"score": box[4]})
    truth = COCO()
    truth.dataset = {
        "images": [{"id": image} for image in range(len(labels))],
        "categories": [{"id": kind} for kind in range(classes)],
        "annotations": annotations,
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.params.iouThrs = np.array([0.5])
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
        evaluation.params.maxDets = [100]
        evaluation.evaluate()
        evaluation.accumulate()
    precision: Floats = evaluation.eval["precision"][0, :, :, 0, 0]
    return precision


def _coco_box(image: int, box: Floats, kind: float) -> dict[str, Any]:
    height, width = box[2] - box[0], box[3] - box[1]
    return {
        "image_id": image,
        "category_id": int(kind),
        "bbox": [box[1], box[0], width, height],
        "area": height * width,
    }


def _random_case(draw: np.random.Generator) -> tuple[Floats, Floats]:
    """Whole coordinates and few scores, so that overlaps of exactly a half and ties are common."""
    images = int(draw.integers(1, 6))
    labels, detections = np.full((images, 5, 5), -1.0), np.full((images, 10, 6), -1.0)
    for image in range(images):
        events = int(draw.integers(0, 6))
        corner = draw.integers(0, 20, (events, 2))
        labels[image, :events, :2] = corner
        labels[image, :events, 2:4] = corner + draw.integers(1, 12, (events, 2))
        labels[image, :events, 4] = draw.integers(0, 3, events)
        for row in range(int(draw.integers(1, 11))):
            box = np.concatenate([draw.integers(0, 20, 2), [0, 0, draw.integers(3)]]).astype(float)
            box[2:4] = box[:2] + draw.integers(1, 12, 2)
            if events and draw.random() < 0.7:
                box = labels[image, draw.integers(events)].copy()
                box[:4] += draw.integers(-2, 3, 4)
                box[2:4] = np.maximum(box[2:4], box[:2] + 1)
            detections[image, row] = (*box[:4], draw.integers(1, 8) / 8, box[4])
    return detections, labels


def test_it_is_what_pycocotools_computes() -> None:
    draw = np.random.default_rng(0)
    compared = 0
    for _ in range(1000):
        detections, labels = _random_case(draw)
        expected = _coco_precision(detections, labels, classes=3)
        for kind, curve in enumerate(precision_recall(detections, labels, classes=3)):
            if curve is None:
                assert (expected[:, kind] == -1).all()
            else:
                np.testing.assert_allclose(curve.precision, expected[:, kind], rtol=0, atol=1e-12)
                compared += 1
    assert compared > 2000


def test_fusion_by_hand() -> None:
    """Two of three see it, at scores 0.8 and 0.4: coordinates 2 to 1, score 0.6 · 2/3."""
    members = np.stack(
        [
            _detections([((0, 0, 10, 10), 0.8, 1)]),
            _detections([((0, 0, 10, 13), 0.4, 1), (FAR, 0.3, 2)]),
            _detections([((0, 0, 10, 10), 0.9, 0)]),
        ]
    )
    together = weighted_boxes_fusion(ArrayPredictions(members))
    expected = _detections(
        [((0, 0, 10, 11), 0.6 * 2 / 3, 1), ((0, 0, 10, 10), 0.9 / 3, 0), (FAR, 0.1, 2)]
    )
    np.testing.assert_allclose(together, expected, atol=1e-12)


def test_one_voter_is_taken_at_its_word() -> None:
    members = np.stack(
        [_detections([(FIRST, 0.8, 1), (SECOND, 0.5, 0)]), _detections([(FAR, 0.9, 3)])]
    )
    voters = np.array([[True], [False]])
    np.testing.assert_allclose(
        weighted_boxes_fusion(ArrayPredictions(members, voters)), members[0], atol=1e-12
    )


def test_no_votes_and_no_detections_are_empty() -> None:
    members = np.stack([_detections([(FIRST, 0.8, 1)], [])])
    together = weighted_boxes_fusion(ArrayPredictions(members, np.array([[False, True]])))
    assert (together == -1).all()


def test_the_order_of_members_is_no_matter() -> None:
    draw = np.random.default_rng(1)
    frames = [_random_case(draw)[0][0] for _ in range(4 * 40)]
    # Float32 as stored, and scores with many ties: where an order could show.
    members = np.stack(frames).reshape(4, 40, 10, 6).astype(np.float32)
    voters = draw.random((4, 40)) < 0.8
    together = weighted_boxes_fusion(ArrayPredictions(members, voters))
    assert together.dtype == np.float32
    for _ in range(10):
        order = draw.permutation(4)
        np.testing.assert_array_equal(
            weighted_boxes_fusion(ArrayPredictions(members[order], voters[order])), together
        )


def test_two_boxes_of_one_member_are_no_more_votes_than_voters() -> None:
    """Two overlapping boxes of one voter fuse to their mean score, not to a sum of votes."""
    members = np.array([[[[0, 0, 10, 10, 0.8, 0], [0, 0, 10, 10, 0.4, 0]]]], dtype=np.float64)
    (fused, rest) = weighted_boxes_fusion(ArrayPredictions(members))[0]
    np.testing.assert_allclose(fused, [0, 0, 10, 10, 0.6, 0])
    assert rest[4] == -1


def test_fusion_beats_each_of_its_members() -> None:
    """Members that miss a third, err by a little and invent some: what bagging gives."""
    draw = np.random.default_rng(2)
    corner = draw.uniform(0, 60, (80, 3, 2))
    labels = np.concatenate(
        [corner, corner + draw.uniform(10, 30, (80, 3, 2)), draw.integers(0, 2, (80, 3, 1))], 2
    )
    members = np.full((5, 80, 6, 6), -1.0)
    for member in members:
        for frame in range(80):
            for row in np.flatnonzero(draw.random(3) < 0.67):
                box = labels[frame, row, :4] + draw.normal(0, 2.5, 4)
                member[frame, row] = (*box, draw.uniform(0.3, 1), labels[frame, row, 4])
            invented = np.tile(draw.uniform(0, 60, 2), 2) + np.array([0, 0, 12, 12])
            member[frame, 3] = (*invented, draw.uniform(0.1, 0.9), draw.integers(2))
    alone = [mean_average_precision(member, labels, classes=2) for member in members]
    together = mean_average_precision(
        weighted_boxes_fusion(ArrayPredictions(members)), labels, classes=2
    )
    assert together > max(alone) + 0.1
