"""How a ResNet can be divided among accelerators. No torch here: `plan` reads it anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ai500.records import ParallelPlan, Split

Block = Literal["basic", "bottleneck"]
EXPANSION: dict[Block, int] = {"basic": 1, "bottleneck": 4}


def resnet_plan(block: Block, depths: tuple[int, ...], *, width: int) -> ParallelPlan:
    """Every convolution and the classifier split; stages may end after any block."""
    names = [f"stages.{i}.{j}" for i, depth in enumerate(depths) for j in range(depth)]
    return ParallelPlan(
        splits=(
            *residual_splits(block, len(depths), width=width),
            # By its inputs: the number of classes need not divide.
            Split("classifier", "rows_of_whole", width * 2 ** (len(depths) - 1) * EXPANSION[block]),
        ),
        stages=(("stem",), *((name,) for name in names), ("pool", "flatten", "classifier")),
    )


def residual_splits(block: Block, stages: int, *, width: int, inside: str = "") -> Iterator[Split]:
    """Of stem and stages, whose names begin with `inside`.

    Within a block, what one layer leaves divided the next one takes: one sum, no gather.
    """
    expansion = EXPANSION[block]
    yield Split(f"{inside}stem.0", "columns_gathered", width)
    for index in range(stages):
        layers, channels = f"{inside}stages.{index}.*", width * 2**index
        first, second = ("conv1", "bn1"), "conv2"
        if block == "bottleneck":
            # The 3×3 convolution and its neighbour hold most of the work; the first is gathered.
            yield Split(f"{layers}.conv1", "columns_gathered", channels)
            first, second = ("conv2", "bn2"), "conv3"
        yield Split(f"{layers}.{first[0]}", "columns", channels)
        yield Split(f"{layers}.{first[1]}", "channels", channels)
        yield Split(f"{layers}.{second}", "rows", channels)
        if index > 0 or expansion > 1:  # where the shape changes, the skip has a convolution
            yield Split(f"{layers}.shortcut.0", "columns_gathered", channels * expansion)
