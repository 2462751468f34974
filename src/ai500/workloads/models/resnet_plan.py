"""Division of a ResNet among accelerators. Imports no torch, so `plan` runs anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ai500.records import ParallelPlan, Split

Block = Literal["basic", "bottleneck"]
EXPANSION: dict[Block, int] = {"basic": 1, "bottleneck": 4}


def resnet_plan(block: Block, depths: tuple[int, ...], *, width: int) -> ParallelPlan:
    """Split every convolution and the classifier; pipeline stages may end after any block."""
    names = [f"stages.{i}.{j}" for i, depth in enumerate(depths) for j in range(depth)]
    return ParallelPlan(
        splits=(
            *residual_splits(block, len(depths), width=width),
            # Split by inputs: the number of classes need not be divisible.
            Split("classifier", "rows_of_whole", width * 2 ** (len(depths) - 1) * EXPANSION[block]),
        ),
        stages=(("stem",), *((name,) for name in names), ("pool", "flatten", "classifier")),
    )


def residual_splits(block: Block, stages: int, *, width: int, prefix: str = "") -> Iterator[Split]:
    """Yield the splits of stem and stages, whose names begin with `prefix`.

    Within a block, the output that one layer leaves split is the split input of the next: one
    all-reduce, no gather.
    """
    expansion = EXPANSION[block]
    yield Split(f"{prefix}stem.0", "columns_gathered", width)
    for index in range(stages):
        layers, channels = f"{prefix}stages.{index}.*", width * 2**index
        first, second = ("conv1", "bn1"), "conv2"
        if block == "bottleneck":
            # The 3×3 convolution and the last hold most of the work; the first is gathered.
            yield Split(f"{layers}.conv1", "columns_gathered", channels)
            first, second = ("conv2", "bn2"), "conv3"
        yield Split(f"{layers}.{first[0]}", "columns", channels)
        yield Split(f"{layers}.{first[1]}", "channels", channels)
        yield Split(f"{layers}.{second}", "rows", channels)
        if index > 0 or expansion > 1:  # where the shape changes, the skip has a convolution
            yield Split(f"{layers}.shortcut.0", "columns_gathered", channels * expansion)
