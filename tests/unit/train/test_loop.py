"""The training loop, on a model of one number: its steps, evaluations, seeds and interruptions."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ai500.core import events
from ai500.records.run_folder import MemberFolder
from ai500.train.loop import DivergedError, Trainable, train
from ai500.train.position import Position
from ai500.train.worker import Interrupted
from tests.support.trial_events import two_member_plan

BATCH, STEPS = 4, 3
COUNTS = np.ones(BATCH * STEPS + 1, dtype=np.uint8)  # one more than whole batches


class Losses:
    """Sum of losses times weights."""

    def __init__(self) -> None:
        self.sum = 0.0

    def add(self, loss: float, *, weight: int) -> None:
        self.sum += loss * weight

    def take(self) -> float:
        taken, self.sum = self.sum, 0.0
        return taken


class Feed:
    """Batches of sample numbers."""

    def __init__(self, rank: int) -> None:
        self.rank, self.global_batch_size = rank, BATCH

    def epoch(
        self, epoch: int, order: NDArray[np.int64], *, first_step: int
    ) -> Iterator[NDArray[np.int64]]:
        return iter(order.reshape(-1, BATCH)[first_step:])


class Member:
    """A member whose weight is the sum of what its steps drew."""

    def __init__(self, folder: Path, *, epochs: int = 2, evaluate_every: int = 1, rank: int = 0,
                 seed: int = 7, number: int = 0) -> None:  # fmt: skip
        hyper = dataclasses.replace(
            two_member_plan().hyperparameters, epochs=epochs, evaluate_every_epochs=evaluate_every
        )
        self.task = SimpleNamespace(
            hyperparameters=hyper, steps_per_epoch=STEPS, seed=seed, member=number,
            checkpoint_seconds=1e9,
        )  # fmt: skip
        self.folder = MemberFolder(folder)
        self.workload = SimpleNamespace(quality=lambda predictions, targets: float(predictions[0]))
        self.counts, self.feed = COUNTS, Feed(rank)
        self.evaluator = SimpleNamespace(
            validation=lambda: np.array([self.weight]), validation_targets=dict
        )
        self.checkpoints, self.saved = self, list[tuple[Position, float]]()
        self.checkpoint_file, self.validation_file = (
            folder / "checkpoint",
            folder / "validation.npy",
        )
        self.reports_progress, self.stop_after = False, 0
        self.weight, self.loss = 0.0, 1.0
        self.requests: list[Any] = []
        self.optimizer_sha256 = self.on_ready = self.warm_up = self.begin_epoch = lambda: None
        self.loss_sum, self.step_clock = Losses, lambda: None
        self.on_step = self.on_epoch = lambda _: None
        self.mean_over_replicas = self.agree = lambda value: value

    def save(self, path: Path, trained: Member, position: Position) -> None:
        self.saved.append((copy.copy(position), trained.weight))

    def wait(self) -> None:
        """Wait for nothing: a checkpoint is in memory."""

    def restore(self) -> Position | None:
        if not self.saved:
            return None
        position, self.weight = self.saved[-1]
        return copy.copy(position)

    def stop_requested(self) -> bool:
        return len(self.requests) == self.stop_after

    def step(self, request: Any) -> float:
        self.requests.append(request)
        self.weight += request.seed % 1000 * request.learning_rate + float(request.batch[0])
        return self.loss

    def emit(self, event: str, **fields: object) -> None:
        events.append(self.folder.events, [{"event": event, **fields}])

    def run(self) -> Member:
        member: Trainable = self  # type: ignore[assignment]
        train(member)
        return self

    def logged(self, kind: str) -> list[Any]:
        return [event for event in events.read(self.folder.events) if event["event"] == kind]


@pytest.mark.parametrize(
    ("epochs", "every", "evaluated"),
    [(5, 2, [2, 4, 5]), (4, 2, [2, 4]), (3, 1, [1, 2, 3]), (3, 5, [3])],
)
def test_the_last_epoch_is_evaluated_whatever_comes_between(
    tmp_path: Path, epochs: int, every: int, evaluated: list[int]
) -> None:
    member = Member(tmp_path, epochs=epochs, evaluate_every=every).run()
    assert [event["epoch"] for event in member.logged("quality")] == evaluated
    assert [event["epoch"] for event in member.logged("end")] == [epochs]
    last = member.logged("quality")[-1]["quality"]
    assert np.load(member.validation_file).tolist() == [member.weight] == [last]


def test_an_epoch_has_whole_batches_and_its_mean_loss(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.loss = 0.5
    for event in member.run().logged("epoch"):
        assert (event["samples"], event["steps"], event["loss"]) == (BATCH * STEPS, STEPS, 0.5)
    assert len(member.requests) == 2 * STEPS
    assert len(member.logged("first_batch")) == 1


def test_the_seed_of_a_step_is_its_own(tmp_path: Path) -> None:
    """No two steps of any member, rank or seed draw the same numbers."""
    seeds = [
        request.seed
        for seed in (7, 8)
        for number in (0, 1)
        for rank in (0, 1)
        for request in Member(tmp_path, seed=seed, number=number, rank=rank).run().requests
    ]
    assert len(set(seeds)) == len(seeds) == 2 * 2 * 2 * 2 * STEPS


@pytest.mark.parametrize("stop_after", range(1, 2 * STEPS))
def test_a_member_stopped_after_any_step_ends_with_the_same_weight(
    tmp_path: Path, stop_after: int
) -> None:
    (tmp_path / "whole").mkdir()
    whole, halves = Member(tmp_path / "whole").run(), Member(tmp_path)
    halves.stop_after = stop_after
    with pytest.raises(Interrupted):
        halves.run()
    position, _ = halves.saved[-1]
    assert (position.epoch, position.step) == divmod(stop_after, STEPS) or (
        position.step == STEPS and position.epoch == stop_after // STEPS - 1
    )
    assert halves.run().weight == whole.weight
    for kind in ("epoch", "quality", "end"):
        assert halves.logged(kind) == whole.logged(kind)
    assert [event["step"] for event in halves.logged("resumed")] == [position.step]


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_training(tmp_path: Path, loss: float) -> None:
    member = Member(tmp_path)
    member.loss = loss
    with pytest.raises(DivergedError):
        member.run()
    assert len(member.requests) == STEPS


def test_a_finished_member_predicts_again(tmp_path: Path) -> None:
    member = Member(tmp_path).run()
    member.validation_file.unlink()
    count = len(member.requests)
    member.run()
    assert len(member.requests) == count
    assert np.load(member.validation_file).tolist() == [member.weight]
    assert len(member.logged("quality")) == 2  # the same quality is not logged again
