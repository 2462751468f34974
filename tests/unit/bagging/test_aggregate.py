"""Aggregation: verified predictions, running reductions, and data with little to judge by."""

from __future__ import annotations

import dataclasses
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ai500.bagging.aggregate import aggregate, illustrate
from ai500.bagging.predictions import FinishedMember
from ai500.core.errors import DataError
from ai500.core.reading import file_sha256
from ai500.data.climate.schema import Boxes, frame_fields
from ai500.data.gather import Empty
from ai500.data.store import Arrays, Indices
from ai500.records import EnsembleResult, run_folder
from ai500.records.fields import image_fields
from ai500.records.illustrations import Drawn, Illustrations
from ai500.records.run_folder import TrialFolder
from ai500.workloads.averaging import average
from ai500.workloads.extreme_weather import WORKLOAD
from ai500.workloads.image_classification import WORKLOAD as IMAGES
from ai500.workloads.member_predictions import ArrayPredictions
from tests.support.finished_members import finished_member


@dataclass
class Frames:
    """Boxes alone: aggregation reads targets."""

    boxes: Boxes
    fields = frame_fields(48, 72)

    @property
    def count(self) -> int:
        return len(self.boxes)

    def rows(
        self, indices: Indices, *, names: Sequence[str] | None = None, empty: Empty = np.empty
    ) -> Arrays:
        assert names == ("boxes",)
        return {"boxes": self.boxes[indices]}


@dataclass
class Labels:
    """Labels of images alone."""

    labels: NDArray[np.int64]
    fields = image_fields(8, 8, classes=3)

    @property
    def count(self) -> int:
        return len(self.labels)

    def rows(
        self, indices: Indices, *, names: Sequence[str] | None = None, empty: Empty = np.empty
    ) -> Arrays:
        return {"labels": self.labels[indices]}


def judge(members: list[FinishedMember], *, validation: Any, train: Any) -> EnsembleResult:
    workload = WORKLOAD if isinstance(validation, Frames) else IMAGES
    return aggregate(
        members, workload=workload, validation=validation, train=train,
        ensemble_size=len(members), out_of_bag_limit=20,
    ).result  # fmt: skip


def test_out_of_bag_frames_without_a_box_are_not_judged(tmp_path: Path) -> None:
    """The validation frames have an event, the few frames that no member drew have none."""
    labels = np.full((3, 15, 5), -1.0, np.float32)
    labels[0, 0] = (10, 20, 40, 60, 1)
    predicted = np.full((3, 50, 6), -1.0, np.float32)
    predicted[0, 0] = (10, 20, 40, 60, 0.9, 1)
    counts = np.array([3, 0, 0], np.uint8)
    member = finished_member(
        tmp_path, 0, validation=predicted, out_of_bag=predicted[1:], counts=counts, quality=1.0
    )

    def judged(train_boxes: Boxes) -> object:
        result = judge([member], validation=Frames(labels), train=Frames(train_boxes))
        assert result.ensemble_quality == pytest.approx(1.0)
        return result.out_of_bag_quality, result.out_of_bag_samples

    assert judged(labels) == (None, 2)
    assert judged(labels[[0, 0, 1]]) == (0.0, 2)
    with pytest.raises(DataError):
        WORKLOAD.quality(predicted[1:], {"boxes": labels[1:]})


TRUTH = np.arange(12) % 3
"""Labels of 12 validation samples, and of 12 training samples."""


def ensemble(path: Path, size: int = 5) -> list[FinishedMember]:
    """Members of a classifier that drew about two thirds of the training samples."""
    generator = np.random.default_rng(4)
    members = []
    for number in range(size):
        counts = generator.poisson(1.0, 12).astype(np.uint8)
        validation = generator.random((12, 3), np.float32)
        validation[np.arange(12), TRUTH] += np.float32(0.4)
        members.append(
            finished_member(
                path, number, counts=counts, validation=validation,
                out_of_bag=generator.random((int((counts == 0).sum()), 3), np.float32),
                quality=IMAGES.quality(validation, {"labels": TRUTH}),
            )
        )  # fmt: skip
    return members


def by_the_definition(members: list[FinishedMember]) -> tuple[float, float, int]:
    """Ensemble and out-of-bag quality with everything in memory, sample by sample."""
    stacked = np.stack([member.validation() for member in members]).astype(np.float64)
    validation = np.mean(stacked.mean(axis=0).argmax(axis=1) == TRUTH)
    hits = []
    for sample in range(12):
        votes = []
        for member in members:
            unseen = np.flatnonzero(member.read_counts() == 0)
            if sample in unseen:
                votes.append(member.out_of_bag()[list(unseen).index(sample)].astype(np.float64))
        if votes:
            hits.append(np.mean(votes, axis=0).argmax() == TRUTH[sample])
    return float(validation), float(np.mean(hits)), len(hits)


@pytest.mark.parametrize("block_values", [1, 6, 1 << 20])
def test_blocks_of_any_size_give_the_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_values: int
) -> None:
    monkeypatch.setattr("ai500.workloads.averaging.BLOCK_VALUES", block_values)
    members = ensemble(tmp_path)
    result = judge(members, validation=Labels(TRUTH), train=Labels(TRUTH))
    expected = by_the_definition(members)
    assert (
        result.ensemble_quality,
        result.out_of_bag_quality,
        result.out_of_bag_samples,
    ) == expected
    assert 0 < expected[1] < 1


def test_running_sums_have_the_bits_of_a_sum_in_the_members_order() -> None:
    generator = np.random.default_rng(5)
    members = generator.random((7, 11, 3), np.float32)
    voters = generator.random((7, 11)) < 0.5
    voters[2] = True
    expected = np.zeros((11, 3))
    for member, votes in zip(members.astype(np.float64), voters, strict=True):
        expected += member * votes[:, None]
    expected /= voters.sum(axis=0)[:, None]
    combined = average(ArrayPredictions(list(members), voters))
    assert combined.tobytes() == expected.tobytes()


def test_boxes_are_fused_in_chunks_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(1)
    labels = np.full((5, 15, 5), -1.0, np.float32)
    labels[:, 0] = (10, 20, 40, 60, 1)
    members = []
    for number in range(2):
        predicted = np.full((5, 50, 6), -1.0, np.float32)
        predicted[:, 0] = (10, 20, 40, 60, 0.9, 1)
        predicted[:, 0, 2] += generator.integers(0, 60, 5)
        counts = np.array([0, 1, number, 1 - number, 1], np.uint8)
        members.append(
            finished_member(
                tmp_path, number, validation=predicted, out_of_bag=predicted[counts == 0],
                counts=counts,
                quality=WORKLOAD.quality(predicted, {"boxes": labels}),
            )
        )  # fmt: skip

    whole = judge(members, validation=Frames(labels), train=Frames(labels))
    assert whole.ensemble_quality is not None and 0 < whole.ensemble_quality < 1
    assert whole.out_of_bag_samples == 3
    for values in (1, 2 * 50 * 6 * 2):
        monkeypatch.setattr("ai500.workloads.detection.fusion.BLOCK_VALUES", values)
        assert judge(members, validation=Frames(labels), train=Frames(labels)) == whole


def test_a_member_that_drew_everything_has_no_rows(tmp_path: Path) -> None:
    """Its worker writes an array of shape (0, 0)."""
    members = ensemble(tmp_path)
    members[1] = finished_member(
        tmp_path, 1, validation=np.array(members[1].validation()),
        out_of_bag=np.zeros((0, 0), np.float32), counts=np.ones(12, np.uint8),
        quality=members[1].record.quality,
    )  # fmt: skip
    result = judge(members, validation=Labels(TRUTH), train=Labels(TRUTH))
    assert result.out_of_bag_quality == by_the_definition(members)[1]


def test_a_limit_on_out_of_bag_samples_evaluates_evenly_spaced_ones(tmp_path: Path) -> None:
    """At most 5 of 12 samples: 0, 2, 4, 7 and 9; the member never drew three of them."""
    counts = np.ones(12, np.uint8)
    counts[[0, 1, 2, 7, 8]] = 0  # 1 and 8 are no candidates
    labels = np.arange(12) % 3
    rows = np.eye(3, dtype=np.float32)[[labels[0], labels[2], (labels[7] + 1) % 3]]
    member = finished_member(
        tmp_path, 0, validation=np.eye(3, dtype=np.float32)[labels], out_of_bag=rows,
        counts=counts, quality=1.0,
    )  # fmt: skip
    result = aggregate(
        [member], workload=IMAGES, validation=Labels(labels), train=Labels(labels),
        ensemble_size=1, out_of_bag_limit=5,
    ).result  # fmt: skip
    assert result.out_of_bag_samples == 3
    assert result.out_of_bag_quality == pytest.approx(2 / 3)


@pytest.mark.parametrize(("unseen", "quality"), [(0, None), (1, 0.0), (2, 0.5)])
def test_as_few_samples_out_of_bag_as_there_are(
    tmp_path: Path, unseen: int, quality: float | None
) -> None:
    counts = np.ones(12, np.uint8)
    counts[:unseen] = 0
    labels = np.arange(12) % 3
    rows = np.eye(3, dtype=np.float32)[[(labels[0] + 1) % 3, labels[1]][:unseen]]
    member = finished_member(
        tmp_path, 0, validation=np.eye(3, dtype=np.float32)[labels], out_of_bag=rows,
        counts=counts, quality=1.0,
    )  # fmt: skip
    result = judge([member], validation=Labels(labels), train=Labels(labels))
    assert (result.out_of_bag_quality, result.out_of_bag_samples) == (quality, unseen)


def replace(path: Path, change: Any) -> None:
    np.save(path, change(np.load(path)))


def spoiled(values: NDArray[np.float32]) -> NDArray[np.float32]:
    values[3, 1] = np.nan
    return values


CHANGES: dict[str, Any] = {
    "reversed": lambda values: values[::-1],
    "NaN": spoiled,
    "a row less": lambda values: values[:-1],
    "a class less": lambda values: values[:, :2],
    "a number": lambda values: values.sum(),
}
CASES = [
    (file, forged, change)
    for file in ("validation", "out_of_bag")
    for forged in (False, True)
    for change in CHANGES
    # Nothing but the digest tells the order of out-of-bag rows.
    if (file, forged, change) != ("out_of_bag", True, "reversed")
]


@pytest.mark.parametrize(("file", "forged", "change"), CASES)
def test_changed_predictions_are_refused(
    tmp_path: Path, file: str, forged: bool, change: str
) -> None:
    """Damage shows by the digest; else, made to fit, by shape, finiteness or quality."""
    members = ensemble(tmp_path)
    damaged = members[2]
    path = getattr(damaged.folder, file)
    replace(path, CHANGES[change])
    if forged:
        record = dataclasses.replace(damaged.record, **{f"{file}_sha256": file_sha256(path)})
        members[2] = dataclasses.replace(damaged, record=record)
    with pytest.raises(DataError) as refused:
        judge(members, validation=Labels(TRUTH), train=Labels(TRUTH))
    assert refused.value.path == path
    assert refused.value.key == path.name
    assert "member 2" in str(refused.value)
    assert f"rm {damaged.folder.record} && ai500 resume {tmp_path}" in refused.value.remedy


def test_a_prediction_may_be_one_number(tmp_path: Path) -> None:
    """Of regression, a member's predictions are a row of numbers."""
    numbers = np.linspace(0, 1, 5, dtype=np.float32)
    counts = np.array([0, 1, 2, 0, 1], np.uint8)
    member = finished_member(
        tmp_path, 0, validation=numbers, out_of_bag=numbers[:2], counts=counts, quality=0.5
    )
    member.verify_validation(samples=5)
    member.verify_out_of_bag(samples=2)
    with pytest.raises(DataError):
        member.verify_validation(samples=4)


def test_predictions_that_nothing_vouches_for_are_refused(tmp_path: Path) -> None:
    members = ensemble(tmp_path)
    record = dataclasses.replace(members[0].record, validation_sha256=None)
    members[0] = dataclasses.replace(members[0], record=record)
    with pytest.raises(DataError, match="can't be verified"):
        judge(members, validation=Labels(TRUTH), train=Labels(TRUTH))


@dataclass
class Drawing:
    """A plugin's workload that draws what it is given."""

    drawn: Drawn | Exception | None

    def illustrations(self, *_: Any, **__: Any) -> Drawn | None:
        if isinstance(self.drawn, Exception):
            raise self.drawn
        return self.drawn


@pytest.mark.parametrize(
    ("second", "files", "title"),
    [
        (Drawn(Illustrations("B", ()), {"b.png": b"B", "c.png": b"C"}), {"b.png", "c.png"}, "B"),
        (None, {"a.png", "b.png"}, "A"),
        (RuntimeError("no font"), set(), "Pictures"),
    ],
)
def test_the_last_drawing_replaces_the_one_before(
    second: Any, files: set[str], title: str, tmp_path: Path
) -> None:
    members, trial = ensemble(tmp_path), TrialFolder(tmp_path / "trial")
    for drawn in (Drawn(Illustrations("A", ()), {"a.png": b"A", "b.png": b"A"}), second):
        workload: Any = Drawing(drawn)
        illustrate(trial, members, workload=workload, ensemble=np.zeros(1), samples=Labels(TRUTH))
    assert {path.name for path in trial.pictures.glob("*.png")} == files
    assert run_folder.read(Illustrations, trial.pictures_record).title == title


def test_no_more_files_are_open_than_one_member_has(tmp_path: Path) -> None:
    """M = 4,608 members, two files each, exceed a usual limit of 1,024 open files."""
    members = ensemble(tmp_path, size=40)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, hard))
    try:
        result = judge(members, validation=Labels(TRUTH), train=Labels(TRUTH))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert result.complete
