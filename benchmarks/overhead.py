"""Overhead of `ai500` for a member: its training loop against a bare PyTorch loop, in one process.

Both train the same model from the same weights on the same store. They alternate step by step:
before each of its batches the real loop lets the bare one do a step, whose time is subtracted, so
that a noisy machine affects both alike. The bare loop is what a careful user would write: gather
rows from the memory map, normalize, flip, forward, backward, SGD, and nothing else (no events, no
checkpoints, no schedule, no seeds). Printed: throughput inside ai500 / bare, ≥ 0.98.

    python benchmarks/overhead.py [--epochs 10] [--threads 1]
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from ai500.bagging.data_sampler import BOOTSTRAP
from ai500.data.bootstrap import save_bootstrap
from ai500.data.generated import generate
from ai500.data.packed_store import PackedSplit, PackedStore
from ai500.records import Communication, Parallelism, Slot, Task
from ai500.train import loop
from ai500.train.feed import Batch, Feed
from ai500.train.member import member_from_task
from ai500.train.step import eager_step
from ai500.train.worker import Rank, StopRequest
from ai500.workloads.image_classification import CHANNEL_DEVIATION, CHANNEL_MEAN, WORKLOAD
from ai500.workloads.learnable_images import SMOKE

TRAIN, VALIDATION, BATCH = 4_032, 64, 64
NEVER = 1_000_000
CLASS = dataclasses.replace(
    WORKLOAD.problem_classes["smoke"], train_samples=TRAIN, validation_samples=VALIDATION
)


def main() -> int:
    """Train both loops interleaved; print the ratio of their throughputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        store = make_store(Path(folder) / "store")
        feed, epoch = inside_ai500(Path(folder), store, bare=bare_steps(store.splits["train"]))
        epoch()  # warm-up of both
        feed.bare_seconds = 0.0
        start = time.perf_counter()
        for _ in range(options.epochs):
            epoch()
        total = time.perf_counter() - start
    images = options.epochs * TRAIN
    inside = total - feed.bare_seconds
    print(f"ai500  {images / inside:8.1f} images/s")
    print(f"bare   {images / feed.bare_seconds:8.1f} images/s")
    ratio = feed.bare_seconds / inside
    print(f"ratio of throughputs, ai500 / bare: {ratio:.4f} over {options.epochs} epochs")
    return 0 if ratio >= 0.98 else 1


class Interleaved:
    """The member's feed, with a step of the bare loop before each batch."""

    def __init__(self, feed: Feed, bare: Iterator[None]) -> None:
        self._feed = feed
        self._bare = bare
        self.bare_seconds = 0.0

    def __getattr__(self, name: str) -> object:
        return getattr(self._feed, name)

    def epoch(self, *arguments: object, **named: object) -> Iterator[Batch]:
        """Yield the feed's own epoch; the bare loop's time is kept apart."""
        for batch in self._feed.epoch(*arguments, **named):  # type: ignore[arg-type]
            began = time.perf_counter()
            next(self._bare)
            self.bare_seconds += time.perf_counter() - began
            yield batch


def make_store(path: Path) -> PackedStore:
    """Generate a small store of smoke-like images."""
    return generate(
        path,
        SMOKE,
        name="overhead",
        classes=[str(number) for number in range(SMOKE.classes)],
        splits={"train": TRAIN, "validation": VALIDATION},
    )


def inside_ai500(
    folder: Path, store: PackedStore, *, bare: Iterator[None]
) -> tuple[Interleaved, Callable[[], None]]:
    """Return the feed of the real loop, and a function that trains one epoch: feed, steps,
    schedule, checkpoint, events, progress."""
    counts = BOOTSTRAP.draw(TRAIN, seed=1, member=0)
    save_bootstrap(folder / "bootstrap", counts, algorithm="bootstrap", seed=1, member=0)
    member_folder = folder / "member"
    member_folder.mkdir()
    task = Task(
        run=str(folder), trial=1, member=0, seed=1, workload="image_classification",
        definition=CLASS,
        hyperparameters=dataclasses.replace(
            CLASS.reference, epochs=NEVER, batch_size=BATCH, evaluate_every_epochs=NEVER
        ),
        parallel=Parallelism(mode="data"), communication=Communication(),
        parallel_degree=1, steps_per_epoch=TRAIN // BATCH,
        slots=(Slot(0, "cpu", ()),), bootstrap=str(folder / "bootstrap"),
        store=str(store.path), staged=None, stage=False, scratch=None, node_members=(0,),
        folder=str(member_folder),
        checkpoint_seconds=300, convention="aiperf",
    )  # fmt: skip
    rank = Rank(rank=0, local_rank=0, local_world_size=1, world_size=1)
    member = member_from_task(task, rank=rank, device=torch.device("cpu"), stop=StopRequest(rank))
    feed = Interleaved(member.feed, bare)
    member = dataclasses.replace(member, feed=feed)  # type: ignore[arg-type]
    steps = loop.training_steps(member, loop.prepare(member))
    request = next(steps)

    def epoch() -> None:
        nonlocal request
        for _ in range(task.steps_per_epoch):
            request = steps.send(eager_step(member, request))

    return feed, epoch


def bare_steps(split: PackedSplit) -> Iterator[None]:
    """Train in plain PyTorch on the same data, yielding after each step; neither loop evaluates."""
    torch.manual_seed(1)
    model = WORKLOAD.model(CLASS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=5e-4)
    images, labels = split.array("images"), split.array("labels")
    shift, scale = torch.tensor(CHANNEL_MEAN), torch.tensor(CHANNEL_DEVIATION)
    random = np.random.default_rng(0)
    while True:
        rows = random.integers(0, TRAIN, BATCH)
        inputs = torch.from_numpy(images[rows])
        inputs = ((inputs.float() - shift) / scale).permute(0, 3, 1, 2)
        mirror = (torch.rand(BATCH) < 0.5).view(-1, 1, 1, 1)
        inputs = torch.where(mirror, inputs.flip(3), inputs)
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(model(inputs), torch.from_numpy(labels[rows]))
        loss.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    sys.exit(main())
