"""Histories of a search from known numbers, without training anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ai500 import events, schema
from ai500.automl import history
from ai500.automl.architecture import Architecture, basic_resnet
from ai500.automl.counting import count_architecture
from ai500.automl.history import Candidate, Ended, Entry, Epoch, Work

INPUT = (3, 24, 24)
START = basic_resnet((1, 1), width=8, classes=10)
STEPS, BATCH, VALIDATION = 10, 32, 100
BEGAN = 1_790_000_000.0
BOOT = "00000000-0000-0000-0000-000000000000"


def candidate(
    model: str, parent: str | None = None, *, architecture: Architecture = START, **changes: object
) -> Candidate:
    """A model as a worker takes it up."""
    made = Candidate(
        model=model,
        parent=parent,
        round=1,
        digest=architecture.digest,
        architecture=architecture.layers,
        batch_size=BATCH,
        operations=count_architecture(architecture, input_shape=INPUT, convention="aiperf"),
        steps_per_epoch=STEPS,
        validation_images=VALIDATION,
        epochs=2,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def train_operations(steps: int = STEPS) -> int:
    """Of so many steps of the start."""
    count = count_architecture(START, input_shape=INPUT, convention="aiperf")
    return steps * (
        BATCH * (count.forward_per_image + count.backward_per_image) + count.update_per_step
    )


def validation_operations(images: int = VALIDATION) -> int:
    """Of so many images of the start."""
    count = count_architecture(START, input_shape=INPUT, convention="aiperf")
    return images * count.forward_per_image


def epoch(
    model: str, number: int, *, at: float, accuracy: float, seconds: float = 10.0
) -> list[tuple[float, Entry]]:
    """An epoch of training in two chunks and its validation, of which it takes a tenth."""
    training = 0.9 * seconds
    half = STEPS // 2
    return [
        (at + training / 2, Work(model, "train", number, 0, half, training / 2)),
        (at + training, Work(model, "train", number, half, STEPS - half, training / 2)),
        (at + seconds, Work(model, "validate", number, 0, VALIDATION, seconds - training)),
        (at + seconds, Epoch(model, number, 1.0, accuracy, None)),
    ]


def trained(
    made: Candidate, *, at: float, accuracies: Sequence[float], seconds: float = 10.0
) -> list[tuple[float, Entry]]:
    """A model from its first batch to its end."""
    lines: list[tuple[float, Entry]] = [(at, made)]
    for number, accuracy in enumerate(accuracies, start=1):
        begin = at + (number - 1) * seconds
        lines += epoch(made.model, number, at=begin, accuracy=accuracy, seconds=seconds)
    done = at + len(accuracies) * seconds
    return [*lines, (done, Ended(made.model, "trained", f"weights/{made.model}.pt"))]


def write_history(
    members: Path,
    worker: int,
    lines: Sequence[tuple[float, Entry]],
    *,
    attempt: int = 1,
    host: str = "host",
    wall_offset: float = 0.0,
) -> Path:
    """A worker's file as `Writer` writes it, at times of our own."""
    path = members / f"{worker:03d}" / history.FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    before = sum(1 for _ in events.read(path))
    events.append(
        path,
        [
            {
                "event": history.NAMES[type(entry)],
                "wall": BEGAN + at + wall_offset,
                "monotonic": 100.0 + at,
                "host": host,
                "boot": BOOT,
                "sequence": before + number,
                "worker": worker,
                "attempt": attempt,
                "entry": schema.encode(entry),
            }
            for number, (at, entry) in enumerate(lines, start=1)
        ],
    )
    return path
