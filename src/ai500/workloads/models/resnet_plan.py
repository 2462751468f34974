"""How a ResNet can be divided among accelerators. No torch here: `plan` reads it anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ai500.workloads.protocol import ParallelPlan, Split

Block = Literal["basic", "bottleneck"]


def resnet_plan(block: Block, depths: tuple[int, ...], *, width: int) -> ParallelPlan:
    """Every convolution and the classifier split; stages may end after any block."""
    names = [f"stages.{i}.{j}" for i, depth in enumerate(depths) for j in range(depth)]
    return ParallelPlan(
        splits=tuple(_splits(block, len(depths), width=width)),
        stages=(("stem",), *((name,) for name in names), ("pool", "flatten", "classifier")),
    )


def _splits(block: Block, stages: int, *, width: int) -> Iterator[Split]:
    """Inside a block, what one layer leaves divided the next one takes: one sum, no gather."""
    expansion = 4 if block == "bottleneck" else 1
    yield Split("stem.0", "columns_gathered", width)
    for index in range(stages):
        inside, channels = f"stages.{index}.*", width * 2**index
        first, second = ("conv1", "bn1"), "conv2"
        if block == "bottleneck":
            # The 3×3 convolution and its neighbour hold most of the work; the first is gathered.
            yield Split(f"{inside}.conv1", "columns_gathered", channels)
            first, second = ("conv2", "bn2"), "conv3"
        yield Split(f"{inside}.{first[0]}", "columns", channels)
        yield Split(f"{inside}.{first[1]}", "channels", channels)
        yield Split(f"{inside}.{second}", "rows", channels)
        if index > 0 or expansion > 1:  # where the shape changes, the skip has a convolution
            yield Split(f"{inside}.shortcut.0", "columns_gathered", channels * expansion)
    # By its inputs: the number of classes need not divide.
    yield Split("classifier", "rows_of_whole", width * 2 ** (stages - 1) * expansion)
