"""Train a regression on one bootstrap of a packed store: one hidden layer, in NumPy alone."""

import json
import sys
from pathlib import Path

import numpy as np

task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
data, output = Path(task["data"]), Path(task["output"])
generator = np.random.default_rng(task["seed"])
HIDDEN, RATE = 64, 0.02


def report(event: str, **values: float) -> None:
    """Append an event of the worker contract."""
    with Path(task["events"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": event, **values}) + "\n")


def field(split: str, name: str) -> np.ndarray:
    """Map a field of the store: every one is a file of NumPy."""
    return np.load(data / f"{split}.{name}.npy", mmap_mode="r")


def predict(inputs: np.ndarray) -> np.ndarray:
    """Estimate the targets of these samples."""
    return np.maximum(inputs @ first + bias, 0) @ second


inputs, targets = field("train", "inputs"), field("train", "targets")
held_inputs, held_targets = field("validation", "inputs"), field("validation", "targets")
samples = np.load(task["samples"])  # sample numbers, each as often as the bootstrap drew it
first = generator.normal(0, inputs.shape[1] ** -0.5, (inputs.shape[1], HIDDEN))
bias = generator.normal(0, 0.5, HIDDEN)
second = np.zeros(HIDDEN)

report("first_batch")
for epoch in range(1, task["epochs"] + 1):
    order, losses = generator.permutation(samples), []
    for start in range(0, len(order), task["batch_size"]):
        batch = order[start : start + task["batch_size"]]
        active = np.maximum(inputs[batch] @ first + bias, 0)
        error = active @ second - targets[batch]
        losses.append(np.mean(error**2))
        back = np.outer(error, second) * (active > 0) / len(batch)
        second -= RATE * active.T @ error / len(batch)
        first -= RATE * inputs[batch].T @ back
        bias -= RATE * back.sum(axis=0)
    report("epoch", epoch=epoch, samples=len(order), steps=len(losses), loss=np.mean(losses))
    quality = np.mean(np.abs(predict(held_inputs) - held_targets))
    report("quality", epoch=epoch, quality=quality)
report("end")
np.save(output / "validation.npy", predict(held_inputs))
np.save(output / "out_of_bag.npy", predict(inputs[np.load(task["out_of_bag"])]))
