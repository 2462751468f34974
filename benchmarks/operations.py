"""Cost of counting operations: time beside fvcore's on the same model, and growth with depth.

    python benchmarks/operations.py

fvcore executes the model on the CPU; the tracer executes nothing. Both are timed in one process,
warm, the best of several. Goals: ratio at most 3.0, and time linear in the operators.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable

import torch
from torch import nn

from ai500.operations.count import count_trace
from ai500.operations.torch_trace import trace
from ai500.workloads.models.resnet import BasicBlock, Bottleneck, ResNet

REPEATS = 5
SHAPE = (1, 3, 224, 224)
DEPTHS: dict[int, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, ...]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
}


def resnet(depth: int) -> nn.Module:
    block, stages = DEPTHS[depth]
    with torch.device("meta"):
        return ResNet(block, stages)


def best_seconds(run: Callable[[], object]) -> float:
    """Return the best of several timings after one warm-up call."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def fvcore_seconds(model: nn.Module) -> float:
    from fvcore.nn import FlopCountAnalysis

    logging.disable(logging.WARNING)
    real = model.to_empty(device="cpu")
    example = torch.zeros(SHAPE)
    with warnings.catch_warnings(action="ignore"):
        return best_seconds(lambda: FlopCountAnalysis(real, example).total())


def main() -> None:
    tracer = best_seconds(lambda: count_trace(trace(resnet(50), SHAPE), convention="aiperf"))
    fvcore = fvcore_seconds(resnet(50))
    print(f"ResNet-50: ai500 {tracer:.3f} s, fvcore {fvcore:.3f} s, ratio {tracer / fvcore:.2f}")
    per_operator = {}
    for depth in DEPTHS:
        model = resnet(depth)
        operators = len(trace(model, SHAPE).ops)
        seconds = best_seconds(lambda model=model: trace(model, SHAPE))
        per_operator[depth] = seconds / operators
        print(
            f"ResNet-{depth}: {operators} operators, {seconds:.3f} s, "
            f"{1e6 * per_operator[depth]:.0f} µs each"
        )
    growth = per_operator[152] / per_operator[18]
    print(f"time per operator, ResNet-152 over ResNet-18: {growth:.2f} (1 is linear)")


if __name__ == "__main__":
    main()
