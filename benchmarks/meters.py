"""Cost of the meters to a member: throughput with its recorder over throughput without.

One process trains one model on data in memory, in blocks of steps that last one period of the
recorder. In a block with meters the recorder takes the one sample due in that time, in its thread
beside the training thread and with all its work (reading, a line, a flush to disk every 10 s); in a
block without meters it sleeps. A pair is four blocks (with, without, without, with, or the reverse)
so that drifts of the machine affect both alike. Printed: mean and lower 95 % bound (Student's t,
one-sided, on the logarithms of the pairs' ratios) of the throughput with over without, in wall time
and in processor time of the whole process, which includes the recorder's thread and excludes other
processes. On a GPU the model is ResNet-50, which keeps it busy, and only wall time counts: a host
that waits for a device spends processor time on waiting.

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

MIN_RATIO = 0.99
# Seconds: the recorder samples only on `mark`.
NEVER = 1e6
# Student's t, one-sided 95 %, by degrees of freedom.
T_95 = {9: 1.833, 14: 1.761, 19: 1.729, 24: 1.711, 29: 1.699, 39: 1.685, 59: 1.671}


def main() -> int:
    """Alternate blocks, print both ratios; return 1 if a lower bound is below 0.99."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--period", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    step = make_step(torch.device(options.device))
    steps = count_steps(step, options.period)
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
    bounds = [report("wall time", walls)]
    if options.device == "cpu":
        bounds.append(report("processor time", processors))
    return 0 if min(bounds) >= MIN_RATIO else 1


def ratios(
    step: Callable[[], None], steps: int, recorder: Recorder, *, metered_first: bool
) -> tuple[float, float]:
    """Return throughput with over without meters of one pair, by wall time and processor time."""
    seconds = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for metered in (metered_first, not metered_first, not metered_first, metered_first):
        wall, processor = time.perf_counter(), time.process_time()
        if metered:
            recorder.mark()
        for _ in range(steps):
            step()
        _synchronize()
        seconds[metered][0] += time.perf_counter() - wall
        seconds[metered][1] += time.process_time() - processor
    return seconds[False][0] / seconds[True][0], seconds[False][1] / seconds[True][1]


def make_step(device: torch.device) -> Callable[[], None]:
    """Return a training step of a ResNet with its data on the device."""
    torch.manual_seed(1)
    if device.type == "cpu":
        model, images = small_resnet(classes=12), torch.rand(8, 64, 3, 24, 24)
    else:
        model, images = resnet50(classes=12), torch.rand(2, 128, 3, 224, 224)
    model, images = model.to(device, memory_format=torch.channels_last), images.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    labels = torch.randint(12, images.shape[:2], device=device)
    index = 0

    def step() -> None:
        nonlocal index
        index = (index + 1) % len(images)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
            outputs = model(images[index])
        cross_entropy(outputs.float(), labels[index]).backward()
        optimizer.step()

    for _ in range(16):
        step()
    return step


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def count_steps(step: Callable[[], None], seconds: float) -> int:
    """Return the steps of a block, from the fastest of several: the machine may be shared."""
    fastest = math.inf
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(8):
            step()
        _synchronize()
        fastest = min(fastest, time.perf_counter() - start)
    return max(8, round(seconds / fastest) * 8)


def report(name: str, ratios: list[float]) -> float:
    """Print mean and lower bound of a ratio; return the bound."""
    logs = [math.log(ratio) for ratio in ratios]
    t = T_95[max(n for n in T_95 if n <= max(9, len(logs) - 1))]
    mean, bound = fmean(logs), fmean(logs) - t * stdev(logs) / math.sqrt(len(logs))
    print(
        f"throughput with / without meters, {name}: {math.exp(mean):.4f}, "
        f"lower 95 % bound {math.exp(bound):.4f}"
    )
    return math.exp(bound)


if __name__ == "__main__":
    sys.exit(main())
