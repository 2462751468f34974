"""Train a small classifier on one bootstrap: a script that knows nothing of ai500.

It reads the task file of the worker contract, logs with mlperf-logging, and resumes from a
checkpoint of its own.
"""

import json
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from mlperf_logging import mllog
from torch import nn

CHECKPOINTED = 75  # exit code: stopped, and the checkpoint is written

task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
data, output = Path(task["data"]), Path(task["output"])
checkpoint = Path(task["checkpoint"]) / "state.pt"
stopped = False


def stop(number: int, frame: object) -> None:
    """Note that SIGTERM came; the loop stops after its step."""
    global stopped
    stopped = True


def load(name: str) -> torch.Tensor:
    """Read an array of the data folder."""
    return torch.from_numpy(np.load(data / f"{name}.npy"))


def save(epoch: int, step: int) -> None:
    """Write the checkpoint after a step of an epoch: a crash leaves the old one or the new one."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    state |= {"epoch": epoch, "step": step}
    torch.save(state, checkpoint.with_suffix(".new"))
    checkpoint.with_suffix(".new").replace(checkpoint)


def predict() -> torch.Tensor:
    """Compute the class probabilities of the validation samples."""
    model.eval()
    with torch.no_grad():
        return model(held_inputs.to(task["device"])).softmax(dim=1).cpu()


signal.signal(signal.SIGTERM, stop)
torch.manual_seed(task["seed"])
torch.set_num_threads(task["threads"] or 1)
model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
model.to(task["device"])
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
samples = np.load(task["samples"])  # sample numbers, each as often as the bootstrap drew it
inputs, labels = load("train_inputs"), load("train_labels")
held_inputs, held_labels = load("validation_inputs"), load("validation_labels")

first, done = 1, 0
if checkpoint.exists():
    state = torch.load(checkpoint)
    first, done = state["epoch"], state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])

logger = mllog.get_mllogger()
logger.start(key=mllog.constants.RUN_START)
for epoch in range(first, task["epochs"] + 1):
    order = torch.from_numpy(np.random.default_rng([task["seed"], epoch]).permutation(samples))
    model.train()
    for step, batch in enumerate(order.split(task["batch_size"])[done:], start=done):
        if stopped:
            save(epoch, step)
            sys.exit(CHECKPOINTED)
        optimizer.zero_grad()
        scores = model(inputs[batch].to(task["device"]))
        nn.functional.cross_entropy(scores, labels[batch].to(task["device"])).backward()
        optimizer.step()
    logger.end(
        key=mllog.constants.EPOCH_STOP,
        metadata={"epoch_num": epoch, "samples_count": len(samples)},
    )
    accuracy = (predict().argmax(dim=1) == held_labels).double().mean().item()
    logger.event(key=mllog.constants.EVAL_ACCURACY, value=accuracy, metadata={"epoch_num": epoch})
    save(epoch + 1, 0)
    done = 0
logger.end(key=mllog.constants.RUN_STOP, metadata={"status": "success"})
np.save(output / "validation.npy", predict().numpy())
