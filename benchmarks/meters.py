"""What the meters cost a member: throughput with its recorder over throughput without.

One process trains one model on data in memory, in blocks of steps that last one period of the
recorder. In a block with meters it takes the one sample that it would take in that time, beside
the training thread and with all that belongs to it (reading, a line, every 10 s a flush to disk);
in a block without it sleeps. A pair is four blocks, with, without, without, with, or the other
way round, so that a machine that gets slower or faster disturbs both alike. Printed: mean and
lower 95 % bound (Student's t, one-sided, on the logarithms of the pairs' ratios) of the throughput
with over without, in wall time and in processor time of the whole process: the recorder's thread
runs on the same cores, so that all it uses up is in the second, whoever else is on the machine.
On a GPU the model is ResNet-50, which keeps it busy, and wall time alone counts: a host that waits
for a device spends its processor's time on waiting.

    python benchmarks/meters.py [--device cuda] [--pairs 30] [--period 1]
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev

import torch
from torch.nn.functional import cross_entropy

from ai500.meters.log import read_meters
from ai500.meters.recorder import Recorder
from ai500.workloads.models.resnet import resnet50, small_resnet

LEAST = 0.99
NEVER = 1e6
"""Seconds: the recorder samples only when it is told to."""
T_95 = {9: 1.833, 14: 1.761, 19: 1.729, 24: 1.711, 29: 1.699, 39: 1.685, 59: 1.671}
"""Student's t, one-sided 95 %, by degrees of freedom."""


def main() -> int:
    """Alternate, then print both ratios; 1 if a lower bound is below 0.99."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--period", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    step = training(torch.device(options.device))
    steps = steps_in(step, options.period)
    walls, processors = [], []
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(
            Path(folder) / "here-000.jsonl", trial=1, member=0, period_seconds=NEVER,
            lock_name=folder,
        )  # fmt: skip
        recorder.start()
        time.sleep(2.0)  # meters are opened at the start of a job, outside of training
        for pair in range(options.pairs):
            wall, processor = ratios(step, steps, recorder, metered_first=pair % 2 == 0)
            walls.append(wall)
            processors.append(processor)
        recorder.close()
        (log,) = read_meters(Path(folder))
    meters = sorted({column.meter for column in log.samples[-1].columns})
    print(f"{options.pairs} pairs of 2 × 2 blocks of {steps} steps on {options.device}, one sample")
    print(f"in {options.period:g} s of {len(log.samples[-1].columns)} values: {', '.join(meters)}")
    bounds = [tell("wall time", walls)]
    if options.device == "cpu":
        bounds.append(tell("processor time", processors))
    return 0 if min(bounds) >= LEAST else 1


def ratios(
    step: Callable[[], None], steps: int, recorder: Recorder, *, metered_first: bool
) -> tuple[float, float]:
    """Throughput with over without, by wall time and by processor time, of one pair."""
    spent = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for metered in (metered_first, not metered_first, not metered_first, metered_first):
        wall, processor = time.perf_counter(), time.process_time()
        if metered:
            recorder.mark()
        for _ in range(steps):
            step()
        _wait()
        spent[metered][0] += time.perf_counter() - wall
        spent[metered][1] += time.process_time() - processor
    return spent[False][0] / spent[True][0], spent[False][1] / spent[True][1]


def training(device: torch.device) -> Callable[[], None]:
    """A step of a ResNet, its data already on the device."""
    torch.manual_seed(1)
    if device.type == "cpu":
        model, images = small_resnet(classes=12), torch.rand(8, 64, 3, 24, 24)
    else:
        model, images = resnet50(classes=12), torch.rand(2, 128, 3, 224, 224)
    model, images = model.to(device, memory_format=torch.channels_last), images.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    labels = torch.randint(12, images.shape[:2], device=device)
    at = 0

    def step() -> None:
        nonlocal at
        at = (at + 1) % len(images)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
            outputs = model(images[at])
        cross_entropy(outputs.float(), labels[at]).backward()
        optimizer.step()

    for _ in range(16):
        step()
    return step


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def steps_in(step: Callable[[], None], seconds: float) -> int:
    """How many steps a block needs, by the fastest of some: others may be on the machine."""
    fastest = math.inf
    for _ in range(10):
        began = time.perf_counter()
        for _ in range(8):
            step()
        _wait()
        fastest = min(fastest, time.perf_counter() - began)
    return max(8, round(seconds / fastest) * 8)


def tell(name: str, ratios: list[float]) -> float:
    """Print mean and lower bound of a ratio; the bound."""
    logs = [math.log(one) for one in ratios]
    t = T_95[max(n for n in T_95 if n <= max(9, len(logs) - 1))]
    mean, bound = fmean(logs), fmean(logs) - t * stdev(logs) / math.sqrt(len(logs))
    print(
        f"throughput with / without meters, {name}: {math.exp(mean):.4f}, "
        f"lower 95 % bound {math.exp(bound):.4f}"
    )
    return math.exp(bound)


if __name__ == "__main__":
    sys.exit(main())
